"""Models with their weights, and with the tokens of their texts."""

import types

import pytest
import torch

from largeprompt.audit import AuditError, load_model
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
    assert (model.dtype, model.config._attn_implementation, model.training) == (torch.bfloat16, "eager", False)
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
            model = types.SimpleNamespace(eval=lambda: "ready", to=lambda device: pytest.fail("it was moved"))
            return model, {"missing_keys": []}

    monkeypatch.setattr(load, "_kind", lambda config: Kind)
    assert load._weights(Source("any"), config, device="cuda") == "ready"
    assert seen["device_map"] == {"": "cuda"}
    load._weights(Source("any"), config, device_map="auto")
    assert seen["device_map"] == "auto"


def test_weights_that_are_missing_are_not_made_up(saved):
    from safetensors.torch import save_file

    save_file({"something.else": torch.zeros(3)}, saved / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(AuditError, match="lack"):
        load_model(str(saved))
    (saved / "model.safetensors").write_bytes(b"\x10")
    with pytest.raises(AuditError, match="could not be loaded"):
        load_model(str(saved))


def test_of_an_encoder_decoder_the_encoder_is_loaded(tmp_path):
    sizes = {"vocab_size": 97, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))
    model.save_pretrained(tmp_path / "t5")
    found = load_model(str(tmp_path / "t5"))
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        torch.testing.assert_close(found(ids).last_hidden_state, model.eval().get_encoder()(ids).last_hidden_state)


def test_a_skeleton_has_no_weights_and_reads_text():
    found = skeleton(transformers.LlamaConfig(num_hidden_layers=2))
    assert {each.device.type for each in found.parameters()} == {"meta"}
    with pytest.raises(AuditError, match="ViTModel reads pixel_values, not text"):
        skeleton(transformers.ViTConfig(num_hidden_layers=1))


def test_a_model_and_its_texts_are_each_read_once(encoder, tmp_path, monkeypatch):
    calls = []
    for module, name in ((load, "load_config"), (texts, "_tokenizer"), (load, "_weights"), (texts, "_read")):
        original = getattr(module, name)
        count = lambda *given, name=name, original=original, **more: calls.append(name) or original(*given, **more)  # noqa: E731
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
