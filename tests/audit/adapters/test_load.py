"""Models and texts from disk: what is read, and what is refused."""

import json

import pytest
import torch

from largeprompt.audit import AuditError, load_model, read_texts
from largeprompt.audit.adapters.load import load_with_texts, most_tokens

transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def test_missing_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(AuditError, match=r"largeprompt\[models\]"):
        load_model("anything")


@pytest.fixture
def saved(tmp_path, built):
    built("bert").to(torch.float32).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def test_folders_that_are_not_models(tmp_path, saved):
    with pytest.raises(AuditError, match=r"config\.json"):
        load_model(str(tmp_path))
    (tmp_path / "file").write_text("x")
    with pytest.raises(AuditError, match="is a file"):
        load_model(str(tmp_path / "file"))
    assert isinstance(load_model(str(saved)), transformers.BertModel)
    found = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps(found | {"auto_map": {"AutoModel": "mine.Model"}}))
    with pytest.raises(AuditError, match="never run"):
        load_model(str(saved))
    (saved / "config.json").write_text(json.dumps(found))
    for broken in ("{not json", "[1, 2]"):
        (saved / "config.json").write_text(broken)
        with pytest.raises(AuditError, match="not a JSON object"):
            load_model(str(saved))
    (saved / "config.json").write_text(json.dumps(found))
    with pytest.raises(AuditError, match="no tokenizer"):
        read_texts(str(saved), [saved / "config.json"])
    for path in ("/nowhere/at/all", "./nothing", "~/nothing-here"):
        with pytest.raises(AuditError, match="no folder"):
            load_model(path)
    (saved / "model.safetensors").rename(saved / "pytorch_model.bin")
    with pytest.raises(AuditError, match="safetensors only"):
        load_model(str(saved))


def test_weights_that_are_missing_are_not_made_up(saved):
    from safetensors.torch import save_file

    save_file({"something.else": torch.zeros(3)}, saved / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(AuditError, match="lack"):
        load_model(str(saved))
    (saved / "model.safetensors").write_bytes(b"\x10")
    with pytest.raises(AuditError, match="could not be loaded"):
        load_model(str(saved))


def test_positions_that_start_late_are_not_counted():
    sizes = SIZES | {"max_position_embeddings": 130}
    assert most_tokens(transformers.RobertaConfig(**sizes, pad_token_id=1)) == 128
    assert most_tokens(transformers.BertConfig(**sizes)) == 130


def test_texts_that_cannot_be_read(tmp_path, encoder):
    folder = encoder
    (tmp_path / "empty.txt").write_text("  \n")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    for name, words in (
        ("empty.txt", "empty"),
        ("bytes.txt", "not UTF-8 text"),
        (".", "could not be read"),
        ("none.txt", "there is no file"),
    ):
        with pytest.raises(AuditError, match=words):
            read_texts(folder, [tmp_path / name])
    (tmp_path / "good.txt").write_text("two words and more", encoding="utf-8")
    (tmp_path / "long.txt").write_text("word " * 300, encoding="utf-8")
    with pytest.raises(AuditError, match="at most 512"):
        read_texts(folder, [tmp_path / "good.txt"], 600, allowed=512)
    (tmp_path / "endless.txt").write_text("word " * 700, encoding="utf-8")
    with pytest.raises(AuditError, match=r"702 tokens, and the model reads at most 512\..*--lengths 512 .*longest=512 in Python"):
        read_texts(folder, [tmp_path / "endless.txt"], allowed=512)
    both = read_texts(folder, [tmp_path / "good.txt", tmp_path / "long.txt"], 128)
    assert both["input_ids"].shape == (2, 128)
    assert int(both["attention_mask"].sum()) == 128 + 6


def test_a_model_and_its_texts_are_each_read_once(encoder, tmp_path, monkeypatch):
    from largeprompt.audit.adapters import load

    calls = []
    for name in ("load_config", "_tokenizer", "_weights", "_text"):
        original = getattr(load, name)
        monkeypatch.setattr(load, name, lambda *given, name=name, original=original: calls.append(name) or original(*given))
    (tmp_path / "text.txt").write_text("two words and more", encoding="utf-8")
    model, inputs = load_with_texts(encoder, [tmp_path / "text.txt"])
    assert sorted(calls) == ["_text", "_tokenizer", "_weights", "load_config"]
    assert isinstance(model, transformers.BertModel)
    assert inputs["input_ids"].shape == (1, 6)
