"""Texts of every kind of file, and their tokens."""

import os

import pytest
import torch

from largeprompt.audit import AuditError, AuditWarning, read_texts
from largeprompt.audit.adapters import texts
from largeprompt.audit.adapters.source import Source
from largeprompt.audit.adapters.texts import most_tokens, texts_in, tokens_of

transformers = pytest.importorskip("transformers")


def test_texts_come_from_files_lines_and_folders(tmp_path):
    (tmp_path / "b.txt").write_text("a text\nof two lines", encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('"one"\n\n{"text": "two", "id": 3}\n', encoding="utf-8")
    (tmp_path / "c.bin").write_bytes(b"\xff")
    assert texts_in(tmp_path / "b.txt") == ["a text\nof two lines"]
    assert texts_in(tmp_path / "a.jsonl") == ["one", "two"]
    assert texts_in(str(tmp_path)) == ["one", "two", "a text\nof two lines"]


@pytest.mark.parametrize(
    ("name", "content", "answer"),
    [
        ("empty.txt", b"  \n", "is empty"),
        ("bytes.txt", b"\xff\xfe\x00", "not UTF-8 text"),
        ("none.txt", None, "there is no file"),
        ("a.jsonl", b'"one"\n{"text": ', "line 2 of .* is not JSON"),
        ("a.jsonl", b'{"txt": "one"}', "line 1 of .* holds no text"),
        ("a.jsonl", b'{"text": " "}', "holds no text"),
        ("a.jsonl", b"[3]", "holds no text"),
        (".", None, "holds no file that ends in .txt"),
    ],
)
def test_texts_that_cannot_be_read(tmp_path, name, content, answer):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(AuditError, match=answer):
        texts_in(tmp_path / name)


def test_long_texts_are_cut_to_what_the_model_reads(tmp_path, encoder):
    (tmp_path / "good.txt").write_text("two words and more", encoding="utf-8")
    (tmp_path / "long.txt").write_text("word " * 700, encoding="utf-8")
    with pytest.warns(
        AuditWarning,
        match="the text has 702 tokens, and the model reads at most 512: the rest is left out",
    ):
        cut = read_texts(encoder, [tmp_path / "long.txt"])
    assert cut["input_ids"].shape == (1, 512)
    assert int(cut["input_ids"][0, -1]) == 102  # [SEP] still ends it
    with pytest.warns(AuditWarning, match="1 of 2 texts have up to 702"):
        both = read_texts(encoder, [tmp_path])
    assert int(both["attention_mask"].sum()) == 512 + 6
    chosen = read_texts(encoder, [tmp_path], 128)
    assert chosen["input_ids"].shape == (2, 128)
    with pytest.warns(
        AuditWarning, match="length 600 is taken for 512, which is all that the model reads"
    ):
        assert read_texts(encoder, [tmp_path / "long.txt"], 600)["input_ids"].shape == (1, 512)


def test_a_text_that_fits_is_tokenised_once(tmp_path, encoder, monkeypatch):
    transformers = pytest.importorskip("transformers")
    calls, original = [], transformers.PreTrainedTokenizerBase.__call__
    watched = lambda self, *given, **more: calls.append(given) or original(self, *given, **more)  # noqa: E731
    monkeypatch.setattr(transformers.PreTrainedTokenizerBase, "__call__", watched)
    for name, words in (("a", 30), ("b", 50)):
        (tmp_path / f"{name}.txt").write_text("word " * words, encoding="utf-8")
    found = read_texts(encoder, [tmp_path])
    assert found["input_ids"].shape == (2, 52)
    assert found["attention_mask"].sum(1).tolist() == [32, 52]
    assert len(calls) == 1


class Words:
    """As much of a tokenizer as is asked for, one token for each word."""

    model_max_length, bos_token, bos_token_id = 10**30, "<bos>", 2

    def __call__(self, texts, **options):
        return {"input_ids": [[5] * len(text.split()) for text in texts]}

    def pad(self, found, **options):
        ids = torch.tensor(found["input_ids"])
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def test_a_missing_start_is_said_where_the_model_needs_it(monkeypatch):
    monkeypatch.setattr(texts, "_tokenizer", lambda source: Words())
    config = transformers.Gemma2Config()
    with pytest.warns(AuditWarning, match="leaves out '<bos>'"):
        found = tokens_of(Source("any"), config, ["three words here"])
    assert list(found) == ["input_ids"]
    tokens_of(Source("any"), transformers.LlamaConfig(), ["three words here"])
    with pytest.raises(AuditError, match="at least two tokens"):
        tokens_of(Source("any"), config, ["one"])


def test_a_book_is_not_tokenised_for_its_first_page(encoder, tmp_path, monkeypatch):
    """The tokens are those of the whole text, and the tokenizer sees little more of it than they
    need.
    """
    whole, seen = texts._tokenizer(Source(encoder)), []
    text = " ".join(f"word{number} and, so on" for number in range(3000))

    class Watching:
        def __getattr__(self, name):
            return getattr(whole, name)

        def __call__(self, given, **options):
            seen.extend(map(len, given))
            return whole(given, **options)

    monkeypatch.setattr(texts, "_tokenizer", lambda source: Watching())
    for begin in ("", " " * 10**5):  # spaces are no tokens: then all of it is read
        (tmp_path / "a.txt").write_text(begin + text)
        seen.clear()
        found = read_texts(encoder, [tmp_path / "a.txt"], 64)["input_ids"]
        assert found.tolist() == whole([begin + text], truncation=True, max_length=64)["input_ids"]
        assert (max(seen) == 64 * 64) == (begin == "")


def test_positions_that_start_late_are_not_counted():
    sizes = {"max_position_embeddings": 130}
    assert most_tokens(transformers.RobertaConfig(**sizes, pad_token_id=1)) == 128
    assert most_tokens(transformers.BertConfig(**sizes)) == 130
    assert most_tokens(transformers.BloomConfig()) is None


def test_a_folder_without_a_tokenizer_is_refused(tmp_path, built):
    import torch

    built("bert").to(torch.float32).save_pretrained(tmp_path / "bert")
    with pytest.raises(AuditError, match="no tokenizer"):
        read_texts(str(tmp_path / "bert"), [tmp_path / "bert" / "config.json"])


def test_pipes_devices_and_deep_lines(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "deep.jsonl").write_text("[" * 100_000)
    for path in (tmp_path / "pipe.txt", "/dev/zero", tmp_path / "deep.jsonl"):
        with pytest.raises(AuditError, match=r"text: .*(not a plain file|is not JSON)"):
            texts_in(path)
