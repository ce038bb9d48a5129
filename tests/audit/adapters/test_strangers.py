"""Models and texts from strangers: each is refused in one sentence, and none of it is run."""

import json
import struct
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from largeprompt.audit import AuditError, audit_model, load_model, read_texts
from largeprompt.audit.adapters.source import INDEX, Source, load_config
from largeprompt.audit.adapters.texts import texts_in
from largeprompt.errors import InvalidArgumentError

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture
def saved(tmp_path, built):
    """A small model with a tokenizer of words."""
    built("llama").to(torch.float32).save_pretrained(tmp_path / "llama")
    write_tokenizer(tmp_path / "llama")
    return tmp_path / "llama"


def write_tokenizer(folder, words=("<unk>", "one", "two"), **options):
    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    options = {"unk_token": "<unk>", "pad_token": words[0]} | options
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, **options).save_pretrained(folder)


def change(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.mark.parametrize(
    "name", ["w.bin", "../../outside.bin", "../outside.safetensors", "a/b.safetensors", 3, None]
)
def test_an_index_names_safetensors_beside_it_only(saved, name):
    (saved / INDEX).write_text(json.dumps({"weight_map": {"lm_head.weight": name}}))
    with pytest.raises(AuditError, match=f"{INDEX}.* names .*safetensors, without folders"):
        load_model(str(saved))


def test_an_index_that_is_no_object_is_refused(saved):
    for text in ("[1]", "{", '{"weight_map": 3}'):
        (saved / INDEX).write_text(text)
        with pytest.raises(AuditError, match=INDEX):
            load_model(str(saved))


def test_an_index_of_the_hub_is_checked_too(saved, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    store = tmp_path / "hub" / "models--owner--name"
    (store / "refs").mkdir(parents=True)
    (store / "refs" / "main").write_text("a" * 40)
    (store / "snapshots").mkdir()
    saved.rename(store / "snapshots" / ("a" * 40))
    assert load_config(Source("owner/name")).model_type == "llama"
    index = store / "snapshots" / ("a" * 40) / INDEX
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": "w.bin"}}))
    with pytest.raises(AuditError, match=r"names 'w\.bin'"):
        load_config(Source("owner/name"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_hidden_layers", 10**9),
        ("num_hidden_layers", "many"),
        ("num_attention_heads", -2),
        ("num_key_value_heads", 1.5),
        ("num_attention_heads", True),
    ],
)
def test_counts_that_no_model_has_are_refused_at_once(saved, name, value):
    change(saved / "config.json", **{name: value})
    start = time.perf_counter()
    with pytest.raises(AuditError, match=f"says {name} = .*whole numbers"):
        load_model(str(saved))
    assert time.perf_counter() - start < 5


def test_counts_of_a_part_are_checked_too(saved):
    change(saved / "config.json", text_config={"num_hidden_layers": 10**9})
    with pytest.raises(AuditError, match="num_hidden_layers"):
        load_model(str(saved))


@pytest.mark.parametrize("most", [-5, "many", 0, None])
def test_a_limit_that_is_none_is_refused(saved, most):
    change(saved / "tokenizer_config.json", model_max_length=most)
    if most is None:  # not known: what the model itself reads
        assert read_texts(str(saved), texts=["one two"])["input_ids"].shape == (1, 2)
        return
    with pytest.raises(AuditError, match="model_max_length"):
        read_texts(str(saved), texts=["one two"])


def test_a_word_that_the_tokenizer_does_not_know_is_one_sentence(saved):
    """Its unknown token is not in its vocabulary."""
    file = saved / "tokenizer.json"
    found = json.loads(file.read_text())
    found["model"]["vocab"] = {"one": 0, "two": 1}
    found["added_tokens"] = []
    file.write_text(json.dumps(found))
    change(saved / "tokenizer_config.json", unk_token=None, pad_token="one")
    with pytest.raises(AuditError, match="could not be loaded"):
        read_texts(str(saved), texts=["one three"])


def test_numbers_without_an_embedding_are_refused(saved):
    file = saved / "tokenizer.json"
    found = json.loads(file.read_text())
    found["model"]["vocab"]["two"] = 10**9
    file.write_text(json.dumps(found))
    inputs = read_texts(str(saved), texts=["one two two"])
    with pytest.raises(AuditError, match="do not belong together"):
        audit_model(load_model(str(saved)), inputs)
    with pytest.raises(AuditError, match="do not belong together"):
        audit_model(load_model(str(saved)), {"input_ids": torch.tensor([[1, -3, 2]])})


def test_json_lines_end_at_line_feeds_alone(tmp_path):
    texts = ["one\u2028two", "a\u0085b", "three"]
    lines = "\r\n".join(json.dumps(text, ensure_ascii=False) for text in texts)
    (tmp_path / "a.jsonl").write_bytes(lines.encode())
    assert texts_in(tmp_path / "a.jsonl") == texts


def test_half_of_a_surrogate_pair_is_refused(saved, tmp_path):
    (tmp_path / "a.jsonl").write_text('"one"\n{"text": "two \\ud800"}', encoding="utf-8")
    with pytest.raises(AuditError, match=r"line 2 of .* half of a surrogate pair"):
        texts_in(tmp_path / "a.jsonl")
    with pytest.raises(AuditError, match="number 1 of texts holds half of a surrogate pair"):
        read_texts(str(saved), texts=["one two", "\udfff"])


class Column:
    """As a Hugging Face dataset gives a column: it can be read, and is no list."""

    def __init__(self, texts):
        self.texts = texts

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, place):
        return self.texts[place]


def test_texts_come_from_lists_and_columns_as_well_as_files(saved, tmp_path):
    (tmp_path / "text.txt").write_text("two one one", encoding="utf-8")
    for texts in (["one two", "two two"], Column(["one two", "two two"])):
        found = read_texts(str(saved), [tmp_path / "text.txt"], texts=texts)
        assert found["attention_mask"].sum(1).tolist() == [2, 2, 3]
    plain = read_texts(str(saved), texts=Column(["one two", "two one"]))
    assert plain["input_ids"].tolist() == [[1, 2], [2, 1]]
    with pytest.raises(InvalidArgumentError, match="texts: got 'one two'"):
        read_texts(str(saved), texts="one two")
    with pytest.raises(AuditError, match="number 1 of texts holds no text"):
        read_texts(str(saved), texts=["one two", 3])
    with pytest.raises(InvalidArgumentError, match="at least one file or text"):
        read_texts(str(saved))


def test_damaged_headers_of_gguf_files_are_one_sentence(tmp_path):
    """Every byte of a small header changed in turn, and random files."""
    key, value = b"general.architecture", b"llama"
    header = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1)
    header += struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    draw = np.random.default_rng(0)
    file = tmp_path / "model.gguf"
    tried = [header[:end] for end in (0, 3, 8, 23, 30)]
    tried += [
        header[:place] + bytes([int(draw.integers(256))]) + header[place + 1 :]
        for place in range(len(header))
    ]
    tried += [b"GGUF" + draw.bytes(60) for _ in range(20)]
    tried += [struct.pack("<4sIQQ", b"GGUF", 3, 2**60, 2**60)]
    for content in tried:
        file.write_bytes(content)
        try:  # with the package gguf a change may do no harm
            found = load_config(Source(str(file)))
        except AuditError as error:
            assert str(error).startswith("model: "), error  # noqa: PT017
        else:
            assert found.model_type == "llama"


def test_a_path_is_as_good_as_its_text(saved):
    """Of the model, and of its tokenizer."""
    found = load_model(Path(saved)).config.to_dict()
    assert found == load_model(str(saved)).config.to_dict()
    tokens = read_texts(Path(saved), texts=["one two"])["input_ids"]
    assert torch.equal(tokens, read_texts(str(saved), texts=["one two"])["input_ids"])
