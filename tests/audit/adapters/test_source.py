"""Where models come from: what is accepted, and what is refused before any weight is read."""

import importlib.util
import json
import struct

import pytest
import torch

from largeprompt.audit import AuditError, load_model
from largeprompt.audit.adapters.source import Source, load_config, one_sentence

transformers = pytest.importorskip("transformers")


@pytest.fixture
def saved(tmp_path, built):
    built("bert").to(torch.float32).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def test_missing_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(AuditError, match=r"largeprompt\[models\]"):
        load_model("anything")


def test_folders_that_are_not_models(tmp_path, saved):
    with pytest.raises(AuditError, match=r"config\.json"):
        load_model(str(tmp_path))
    (tmp_path / "file").write_text("x")
    with pytest.raises(AuditError, match="is a file"):
        load_model(str(tmp_path / "file"))
    assert load_config(Source(str(saved))).model_type == "bert"
    for path in ("/nowhere/at/all", "./nothing", "~/nothing-here"):
        with pytest.raises(AuditError, match="no folder"):
            load_model(path)
    found = json.loads((saved / "config.json").read_text())
    for broken in ("{not json", "[1, 2]", "[" * 100_000, '{"a":' * 100_000):
        (saved / "config.json").write_text(broken)
        with pytest.raises(AuditError, match="not a JSON object"):
            load_model(str(saved))
    (saved / "config.json").write_text(json.dumps(found))
    (saved / "model.safetensors").rename(saved / "pytorch_model.bin")
    with pytest.raises(AuditError, match="safetensors only"):
        load_model(str(saved))


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"auto_map": {"AutoModel": "mine.Model"}}, "never run"),
        ({"attn_implementation": "any/kernel"}, "asks a hub"),
    ],
)
def test_code_that_a_config_asks_for_is_never_run(saved, asked, answer):
    found = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(found | asked))
    with pytest.raises(AuditError, match=answer):
        load_model(str(saved))


def test_gguf_files_are_told_from_folders_and_names(tmp_path, monkeypatch):
    file = tmp_path / "model.Q4.gguf"
    with pytest.raises(AuditError, match="there is no file"):
        load_config(Source(str(file)))
    file.write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 0))
    assert (Source(str(file)).place, Source(str(file)).file) == (str(tmp_path), "model.Q4.gguf")
    assert Source(str(file)).options()["gguf_file"] == "model.Q4.gguf"
    remote = Source("owner/name/deep/model.gguf", revision="v1", token="secret")
    assert (remote.place, remote.file) == ("owner/name", "deep/model.gguf")
    assert remote.options() == {
        "trust_remote_code": False,
        "local_files_only": False,
        "revision": "v1",
        "token": "secret",
        "gguf_file": "deep/model.gguf",
    }
    assert "secret" not in repr(remote)
    monkeypatch.chdir(tmp_path)
    assert (Source("model.Q4.gguf").place, Source("model.Q4.gguf").file) == (".", "model.Q4.gguf")
    (tmp_path / "folder").mkdir()
    file.rename(tmp_path / "folder" / "model.Q4.gguf")
    for name in ("./folder/model.Q4.gguf", "folder//model.Q4.gguf", "folder/model.Q4.gguf"):
        assert (Source(name).place, Source(name).file) == ("folder", "model.Q4.gguf")
    file = tmp_path / "folder" / "model.Q4.gguf"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(AuditError, match="needs gguf and accelerate: pip install gguf accelerate"):
        load_config(Source(str(file)))


def test_that_the_hub_cannot_be_reached_is_said_at_once(monkeypatch):
    """Its library would try again and again, for a minute; with a proxy, which may know the hub, it
    is left to try.
    """
    asked = []

    def nobody(host, *given):
        asked.append(host)
        raise OSError("Name or service not known")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("largeprompt.audit.adapters.source.socket.getaddrinfo", nobody)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    monkeypatch.setattr(transformers.PretrainedConfig, "get_config_dict", pytest.fail)
    with pytest.raises(
        AuditError, match=r"no folder or file 'minilm' here, and huggingface\.co cannot be reached"
    ):
        load_model("minilm")
    assert asked == ["huggingface.co"]
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"https": "http://proxy"})
    with pytest.raises(BaseException, match="minilm"):
        load_model("minilm")
    assert len(asked) == 1


@pytest.mark.parametrize("mistake", [NameError("ours"), AssertionError("ours"), MemoryError()])
def test_mistakes_are_not_told_as_damaged_models(mistake):
    with pytest.raises(type(mistake)), one_sentence("model"):
        raise mistake


@pytest.mark.parametrize("theirs", [Exception("bare"), OSError("gone"), KeyError("layers")])
def test_what_packages_raise_is_one_sentence(theirs):
    with pytest.raises(AuditError, match="could not be loaded"), one_sentence("model"):
        raise theirs
