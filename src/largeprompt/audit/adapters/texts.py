"""Texts from files, folders and JSON lines, and their tokens by a model's own tokenizer."""

import logging
import os
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor

from largeprompt import validation
from largeprompt.audit.adapters.source import Source, load_config, one_sentence
from largeprompt.audit.adapters.transformers import AuditError, AuditWarning, transformers_module
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.files import from_json, read_plain

TOKENIZERS = ("tokenizer*.json", "vocab.txt", "vocab.json", "*.model", "*.tiktoken")
# their positions start after that of padding
OFFSET = re.compile("(xlm-)?roberta(-xl)?|camembert|mpnet|longformer|data2vec-text")
UNKNOWN = 10**9  # tokens: tokenizers that know no limit say 10^30
KINDS = (".txt", ".md", ".jsonl")  # what is read of a folder


class ShortenedWarning(AuditWarning):
    """A length beyond what the model reads is taken for that."""

    def __init__(self, asked: int, most: int) -> None:
        super().__init__(
            f"length {asked:,} is taken for {most:,}, which is all that the model reads."
        )
        self.most = most


def texts_in(path: Path | str) -> list[str]:
    """Return the texts of a UTF-8 file, of a JSONL file, or of a folder of both.

    Lines of a JSONL file are strings, or objects with a ``text``. No text is empty.
    """
    if not str(path):
        raise AuditError("text: an empty name; give a file, a folder or -.")
    path = Path(path)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in KINDS)
        if not files:
            ends = ", ".join(KINDS)
            raise AuditError(f"text: the folder {str(path)!r} holds no file that ends in {ends}.")
        return [text for file in files for text in texts_in(file)]
    whole = _read(path)
    if path.suffix.lower() != ".jsonl":
        return [whole]
    lines = enumerate(whole.split("\n"), 1)  # JSON texts may hold other ends of lines
    where = f"of {str(path)!r}"
    return [_line(line, f"line {number} {where}") for number, line in lines if line.strip()]


def _read(file: Path) -> str:
    try:
        text = read_plain(Path(os.path.realpath(file))).decode()
    except FileNotFoundError:
        raise AuditError(f"text: there is no file {str(file)!r}.") from None
    except UnicodeDecodeError as error:
        raise AuditError(f"text: {str(file)!r} is not UTF-8 text ({error}).") from error
    except OSError as error:
        raise AuditError(f"text: {str(file)!r} could not be read ({error.strerror}).") from error
    if not text.strip():
        raise AuditError(f"text: {str(file)!r} is empty; give a text of at least two tokens.")
    return text


def _line(line: str, where: str) -> str:
    try:
        found = from_json(line.encode())
    except ValueError:
        raise AuditError(f"text: {where} is not JSON.") from None
    return _string(found.get("text") if isinstance(found, dict) else found, where)


def _string(text: Any, where: str) -> str:
    """A text that a tokenizer can read."""
    if not isinstance(text, str) or not text.strip():
        raise AuditError(f"text: {where} holds no text; give a string, or an object with a 'text'.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise AuditError(f"text: {where} holds half of a surrogate pair.") from None
    return text


def read_texts(
    model: str | Path,
    files: Iterable[Path | str] = (),
    longest: int | None = None,
    *,
    texts: Iterable[str] = (),
    revision: str | None = None,
    token: str | None = None,
) -> dict[str, Tensor]:
    """Return the tokens of texts, padded on the right to one length.

    A text that is longer than the model reads is cut, with a warning.

    Parameters
    ----------
    model
        Folder, GGUF file or hub name of the model whose tokenizer is used.
    files
        UTF-8 texts, one in each file; JSONL files (one text in each line) and folders hold several.
    longest
        Cut texts to so many tokens; None for what the model reads.
    texts
        The texts themselves: a list of strings, or a column of a Hugging Face dataset,
        ``dataset["text"]``.
    revision, token
        Of the hub, as for :func:`load_model`.

    Returns
    -------
    dict of str to Tensor
        ``input_ids`` (texts, T), and ``attention_mask`` where there is padding.
    """
    source, allowed = (
        Source(str(model) if isinstance(model, Path) else model, revision, token),
        "a list of names of files",
    )
    files = validation.listed("files", files, allowed)
    for file in files:
        validation.instance("files", file, (str, Path), allowed)
    longest = None if longest is None else validation.integer("longest", longest, minimum=2)
    given = validation.listed("texts", texts, "a list of strings, or a column of a dataset")
    strings = [_string(each, f"number {place} of texts") for place, each in enumerate(given)]
    strings += [text for file in files for text in texts_in(file)]
    if not strings:
        raise InvalidArgumentError("files, texts", "none", "at least one file or text")
    return tokens_of(source, load_config(source), strings, longest)


def tokens_of(
    source: Source, config: Any, texts: list[str], longest: int | None = None
) -> dict[str, Tensor]:
    """Return what :func:`read_texts` gives, of a loaded config and of texts that are read."""
    tokenizer = _tokenizer(source)
    most = (most_tokens(config), tokenizer.model_max_length)
    allowed = min((each for each in most if each is not None and each < UNKNOWN), default=None)
    if longest is not None and allowed is not None and longest > allowed:
        warnings.warn(ShortenedWarning(longest, allowed), stacklevel=3)
        longest = allowed
    # long texts have our own message below
    logging.getLogger("transformers.tokenization_utils_base").setLevel(logging.ERROR)
    with one_sentence(source.model):  # such as a word that the tokenizer has no number for
        if longest is not None:
            texts = [_beginning(tokenizer, text, longest) for text in texts]
        read = tokenizer(texts, truncation=longest is not None, max_length=longest)
    counts = [len(ids) for ids in read["input_ids"]]
    if allowed is not None and max(counts) > allowed:
        long = f"{sum(count > allowed for count in counts)} of {len(texts)} texts have up to"
        _warn(
            f"{'the text has' if len(texts) == 1 else long} {max(counts):,} tokens, and the model "
            f"reads at most {allowed:,}: the rest is left out."
        )
        read = tokenizer(texts, truncation=True, max_length=allowed)
    if min(counts) < 2:
        raise AuditError("text: one token only; give a text of at least two tokens.")
    with one_sentence(source.model):
        tokens = tokenizer.pad(read, return_tensors="pt", padding=len(texts) > 1)
    found = {name: tokens[name] for name in ("input_ids", "attention_mask") if name in tokens}
    start, first = tokenizer.bos_token_id, found["input_ids"][:, 0]
    gemma = config.model_type.startswith("gemma") and start is not None
    if gemma and not bool((first == start).all()):
        begins = "which this model was trained to begin with"
        _warn(f"the tokenizer leaves out {tokenizer.bos_token!r}, {begins}.")
    if bool(found["attention_mask"].all()):
        del found["attention_mask"]
    return found


def _warn(text: str) -> None:
    warnings.warn(text, AuditWarning, 4)


def _beginning(tokenizer: Any, text: str, longest: int) -> str:
    """As much of a text as surely holds its first tokens, twice over."""
    start = text[: 64 * longest]
    enough = len(start) < len(text) and len(tokenizer([start])["input_ids"][0]) >= 2 * longest
    return start if enough else text


def _tokenizer(source: Source) -> Any:
    folder, make = Path(source.place), transformers_module().AutoTokenizer.from_pretrained
    here = source.file is None and folder.is_dir()
    if here and not any(any(folder.glob(pattern)) for pattern in TOKENIZERS):
        raise AuditError(
            f"model: the folder {source.model!r} has no tokenizer (tokenizer.json or the like)."
        )
    with one_sentence(source.model):
        tokenizer = make(source.place, **source.options())
    most = tokenizer.model_max_length
    if not isinstance(most, int | float) or not most >= 2:
        raise AuditError(
            f"model: the tokenizer of {source.model!r} says model_max_length = "
            f"{validation.text(most)}; allowed: a number of at least two tokens."
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    return tokenizer


def most_tokens(config: Any) -> int | None:
    """Return the most positions that the model was made for."""
    config = config.get_text_config()
    for name in ("max_position_embeddings", "n_positions"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            late = OFFSET.fullmatch(config.model_type)
            return value - ((config.pad_token_id or 0) + 1 if late else 0)
    return None
