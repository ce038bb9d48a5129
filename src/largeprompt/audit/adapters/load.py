"""Models and texts from disk or from the hub: weights from safetensors only, no code of theirs is ever run."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from largeprompt.audit.adapters.transformers import CAUSAL, AuditError, transformers_module

if TYPE_CHECKING:
    from transformers import PreTrainedModel


TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "*.model", "*.tiktoken")
OFFSET = ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "mpnet", "longformer", "data2vec-text")  # positions start late


@contextlib.contextmanager
def _told(model: str) -> Iterator[None]:
    """Turn what transformers, safetensors and the hub raise into one sentence."""
    try:
        yield
    except AuditError:
        raise
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise AuditError(
            f"model: {model!r} could not be loaded ({first[:200]}). Allowed: a folder that transformers' save_pretrained wrote, "
            "or a hub name that is in the cache or can be reached."
        ) from error


def load_config(model: str) -> Any:
    """The model's configuration, after the checks that need no weights."""
    folder = Path(model)
    if folder.exists():
        _check_folder(folder, model)
    elif model.startswith(("/", ".", "~")) or model.count("/") > 1:
        raise AuditError(f"model: there is no folder {model!r}.")
    transformers = transformers_module()
    with _told(model):
        config = transformers.AutoConfig.from_pretrained(model, trust_remote_code=False, local_files_only=_stored(model))
    _refuse_code(config.to_dict(), model)
    if getattr(config, "is_encoder_decoder", False):
        raise AuditError(
            f"model: {model!r} is an encoder-decoder ({config.model_type}), whose cross-attention reads two prompts. "
            "Audit an encoder or a decoder-only model."
        )
    return config


def _check_folder(folder: Path, model: str) -> None:
    """A folder that holds a configuration, and weights that cannot hold code."""
    if not folder.is_dir():
        raise AuditError(f"model: {model!r} is a file; give the folder that holds config.json and model.safetensors.")
    if not (folder / "config.json").is_file():
        raise AuditError(f"model: the folder {model!r} is no model: it has no config.json.")
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise AuditError(f"model: the config.json of {model!r} is not a JSON object.")
    _refuse_code(found, model)
    if not list(folder.glob("*.safetensors")):
        raise AuditError(
            f"model: the folder {model!r} has no *.safetensors file; weights come from safetensors only, as others can hold "
            "code. Convert it: model.save_pretrained(folder)."
        )


def _stored(model: str) -> bool:
    """Whether the files are on this machine, so that nobody need be asked."""
    if Path(model).exists():
        return True
    return isinstance(transformers_module("huggingface_hub").try_to_load_from_cache(model, "config.json"), str)


def _refuse_code(config: dict[str, Any], model: str) -> None:
    if config.get("auto_map"):
        raise AuditError(
            f"model: {model!r} asks for code of its own (auto_map in config.json), which is never run. "
            "Use an architecture that transformers has itself."
        )


def load_model(model: str, device: str = "cpu", dtype: str = "float32") -> PreTrainedModel:
    """A model for inference: a causal language model with its head where it is one, the bare model otherwise."""
    transformers = transformers_module()
    config = load_config(model)
    names = config.architectures or []
    causal = any(name.endswith(CAUSAL) for name in names)
    kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    with _told(model):
        loaded, told = kind.from_pretrained(
            model,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=_stored(model),
            dtype=getattr(torch, dtype),
            output_loading_info=True,
        )
        absent = [name for name in told["missing_keys"] if "pooler" not in name]
        if absent:
            raise AuditError(
                f"model: the weights of {model!r} lack {len(absent)} tensors ({absent[0]}, ...); nothing is made up for them."
            )
        loaded.to(torch.device(device))
        loaded.train(False)
    found: PreTrainedModel = loaded
    return found


def read_texts(model: str, files: Sequence[Path], longest: int | None = None, *, allowed: int | None = None) -> dict[str, Tensor]:
    """Tokens of the texts in ``files``, one text for each, cut to ``longest`` tokens and padded on the right to one length.

    Parameters
    ----------
    longest
        Cut here; without it a text that is longer than the model allows is refused.
    allowed
        Most tokens that the model's positions allow; None when unknown.
    """
    texts = []
    for file in files:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise AuditError(f"text: {str(file)!r} could not be read as UTF-8 text ({error}).") from error
        if not text.strip():
            raise AuditError(f"text: {str(file)!r} is empty; give a text of at least two tokens.")
        texts.append(text)
    tokenizer = _tokenizer(model)
    most = tokenizer.model_max_length if tokenizer.model_max_length < 10**9 else None
    allowed = min((each for each in (allowed, most) if each is not None), default=None)
    if longest is not None and allowed is not None and longest > allowed:
        raise AuditError(f"lengths: got {longest}; the model reads at most {allowed} tokens.")
    logging.getLogger("transformers.tokenization_utils_base").setLevel(logging.ERROR)  # of long texts: told below
    tokens = tokenizer(texts, return_tensors="pt", padding=len(texts) > 1, truncation=longest is not None, max_length=longest)
    found = {name: tokens[name] for name in ("input_ids", "attention_mask") if name in tokens}
    count = found["input_ids"].shape[1]
    if allowed is not None and count > allowed:
        raise AuditError(
            f"text: {count:,} tokens, and the model reads at most {allowed:,}. To audit the first {allowed} of them, say so: "
            f"lengths {allowed}."
        )
    if count < 2:
        raise AuditError("text: one token only; give a text of at least two tokens.")
    if bool(found["attention_mask"].all()):
        del found["attention_mask"]
    return found


def _tokenizer(model: str) -> Any:
    folder = Path(model)
    if folder.is_dir() and not any(list(folder.glob(pattern)) for pattern in TOKENIZERS):
        raise AuditError(f"model: the folder {model!r} has no tokenizer (tokenizer.json or the like): its texts cannot be read.")
    with _told(model):
        tokenizer = transformers_module().AutoTokenizer.from_pretrained(
            model, trust_remote_code=False, local_files_only=_stored(model)
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    return tokenizer


def most_tokens(config: Any) -> int | None:
    """Most positions that the model was made for."""
    for name in ("max_position_embeddings", "n_positions"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value - ((config.pad_token_id or 0) + 1 if config.model_type in OFFSET else 0)
    return None
