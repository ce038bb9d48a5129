"""Models with their weights, and with the tokens of their texts."""

import copy
import importlib.util
import json
import shutil
import types

import numpy as np
import pytest
import torch

from largeprompt.audit import AuditError, audit_model, linearize, load_model
from largeprompt.audit.adapters import load, texts
from largeprompt.audit.adapters.load import fingerprint, load_with_texts, skeleton
from largeprompt.audit.adapters.source import Source
from largeprompt.errors import InvalidArgumentError

transformers = pytest.importorskip("transformers")


@pytest.fixture
def saved(tmp_path, built):
    built("bert").to(torch.bfloat16).save_pretrained(tmp_path / "bert")
    built("bert").to(torch.float32)
    return tmp_path / "bert"


def test_options_of_loading(saved):
    assert load_model(str(saved)).dtype == torch.float32
    model = load_model(str(saved), dtype="auto", attn_implementation="eager")
    assert (model.dtype, model.config._attn_implementation, model.training) == (
        torch.bfloat16,
        "eager",
        False,
    )
    with pytest.raises(InvalidArgumentError, match=r"attn_implementation.*'any/kernel'"):
        load_model(str(saved), attn_implementation="any/kernel")
    with pytest.raises(InvalidArgumentError, match=r"dtype.*'nn'"):
        load_model(str(saved), dtype="nn")


def test_quantised_weights_are_put_on_the_device_while_they_are_read(monkeypatch):
    """They cannot be moved afterwards."""
    config = transformers.BertConfig(architectures=["BertModel"])
    config.quantization_config = {"quant_method": "any"}
    seen = {}

    class Kind:
        @staticmethod
        def from_pretrained(place, **options):
            seen.update(options)
            model = types.SimpleNamespace(
                eval=lambda: "ready", to=lambda device: pytest.fail("it was moved")
            )
            return model, {"missing_keys": []}

    monkeypatch.setattr(load, "_kind", lambda config: Kind)
    assert load._weights(Source("any"), config, device="cuda") == "ready"
    assert seen["device_map"] == {"": "cuda"}
    load._weights(Source("any"), config, device_map={"": "mps"})
    assert seen["device_map"] == {"": "mps"}


class Int8(torch.nn.Module):
    """A linear map with weights of one byte, as quantisers put in the place of the model's own."""

    def __init__(self, linear):
        super().__init__()
        self.scale = linear.weight.detach().abs().amax(1, keepdim=True) / 127
        self.bytes, self.bias = (
            (linear.weight.detach() / self.scale).round().to(torch.int8),
            linear.bias,
        )

    def forward(self, x):
        return torch.nn.functional.linear(x, self.bytes * self.scale, self.bias)


def test_quantised_maps_are_audited_as_they_compute(built, tokens):
    """The numbers are those of the model with the rounded weights."""
    whole, rounded = (copy.deepcopy(built("llama").to(torch.float32)) for _ in range(2))
    for name, module in list(whole.model.named_modules()):
        if isinstance(module, torch.nn.Linear):
            small = Int8(module)
            rounded.model.set_submodule(name, small)
            module.weight.data = small.bytes * small.scale
    found, expected, exact = (
        audit_model(model, tokens(), positions=4, components=())
        for model in (rounded, whole, built("llama"))
    )
    np.testing.assert_allclose(found.affine_error, expected.affine_error, rtol=1e-5)
    assert not np.allclose(found.affine_error, exact.affine_error, rtol=1e-5)
    with linearize(rounded, [(0, 0)]), torch.no_grad():
        assert bool(torch.isfinite(rounded(**tokens()).logits).all())


def test_a_device_map_needs_accelerate_and_says_so(saved, monkeypatch):
    if importlib.util.find_spec("accelerate") is None:
        with pytest.raises(AuditError, match="accelerate"):
            load_model(str(saved), device_map="auto")
    else:
        assert load_model(str(saved), device_map="auto").device.type in ("cpu", "cuda", "mps")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    with pytest.raises(
        InvalidArgumentError, match="device_map: got 'nonsense'; allowed: auto, balanced"
    ):
        load_model(str(saved), device_map="nonsense")


def test_a_revision_on_the_hub_is_found_in_its_cache(saved, tmp_path, monkeypatch):
    """Two commits of one name, as the hub's cache has them; nothing is fetched where a commit is
    there.
    """
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    store = tmp_path / "hub" / "models--owner--name"
    (store / "refs").mkdir(parents=True)
    for branch, commit, dropout in (("main", "a" * 40, 0.1), ("v2", "b" * 40, 0.3)):
        shutil.copytree(saved, store / "snapshots" / commit)
        (store / "refs" / branch).write_text(commit)
        file = store / "snapshots" / commit / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"hidden_dropout_prob": dropout}))
    assert load_model("owner/name").config.hidden_dropout_prob == 0.1
    assert load_model("owner/name", revision="v2", token="secret").config.hidden_dropout_prob == 0.3
    with pytest.raises(AuditError, match="'owner/name' could not be loaded") as raised:
        load_model("owner/name", revision="v3", token="secret")
    assert "secret" not in str(raised.value)


def test_weights_that_are_missing_are_not_made_up(saved):
    from safetensors.torch import save_file

    save_file(
        {"something.else": torch.zeros(3)}, saved / "model.safetensors", metadata={"format": "pt"}
    )
    with pytest.raises(AuditError, match="lack"):
        load_model(str(saved))
    (saved / "model.safetensors").write_bytes(b"\x10")
    with pytest.raises(AuditError, match="could not be loaded"):
        load_model(str(saved))


def test_of_an_encoder_decoder_the_encoder_is_loaded(tmp_path):
    sizes = {
        "vocab_size": 97,
        "d_model": 16,
        "d_kv": 8,
        "d_ff": 24,
        "num_layers": 2,
        "num_heads": 2,
    }
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))
    model.save_pretrained(tmp_path / "t5")
    found = load_model(str(tmp_path / "t5"))
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        torch.testing.assert_close(
            found(ids).last_hidden_state, model.eval().get_encoder()(ids).last_hidden_state
        )


def test_a_skeleton_has_no_weights_and_reads_text():
    found = skeleton(transformers.LlamaConfig(num_hidden_layers=2))
    assert {each.device.type for each in found.parameters()} == {"meta"}
    with pytest.raises(AuditError, match="ViTModel reads pixel_values, not text"):
        skeleton(transformers.ViTConfig(num_hidden_layers=1))


def test_a_model_and_its_texts_are_each_read_once(encoder, tmp_path, monkeypatch):
    calls = []
    for module, name in (
        (load, "load_config"),
        (texts, "_tokenizer"),
        (load, "_weights"),
        (texts, "_read"),
    ):
        original = getattr(module, name)
        count = lambda *given, name=name, original=original, **more: (  # noqa: E731
            calls.append(name) or original(*given, **more)
        )
        monkeypatch.setattr(module, name, count)
    (tmp_path / "text.txt").write_text("two words and more", encoding="utf-8")
    model, inputs = load_with_texts(Source(encoder), [tmp_path / "text.txt"])
    assert sorted(calls) == ["_read", "_tokenizer", "_weights", "load_config"]
    assert isinstance(model, transformers.BertModel)
    assert inputs["input_ids"].shape == (1, 6)


def test_fingerprints_change_with_texts_and_weights(tmp_path, saved):
    text = tmp_path / "text.txt"
    text.write_text("some words", encoding="utf-8")
    first = fingerprint(str(saved), [str(text)])
    assert fingerprint(str(saved), [str(text)]) == first
    text.write_text("other words", encoding="utf-8")
    second = fingerprint(str(saved), [str(text)])
    (saved / "model.safetensors").write_bytes(b"shorter")
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    found = {
        first,
        second,
        fingerprint(str(saved), [str(text)]),
        fingerprint(str(file), [str(text)]),
        fingerprint("hub/name", [str(text)]),
    }
    assert len(found) == 5
