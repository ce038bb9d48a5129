"""Models and texts from disk or from the hub: weights from safetensors only, no code of theirs is ever run."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from largeprompt.audit.capture import AuditError, transformers_module

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@contextlib.contextmanager
def _told(model: str) -> Iterator[None]:
    """Turn what transformers and the hub raise into one sentence."""
    try:
        yield
    except AuditError:
        raise
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise AuditError(
            f"model: {model!r} could not be loaded ({first[:200]}). Allowed: a folder that transformers' save_pretrained wrote, "
            "or a hub name that is in the cache or can be reached."
        ) from error


def load_config(model: str) -> Any:
    """The model's configuration, after the checks that need no weights."""
    folder = Path(model)
    if folder.exists():
        if not folder.is_dir():
            raise AuditError(f"model: {model!r} is a file; give the folder that holds config.json and model.safetensors.")
        if not (folder / "config.json").is_file():
            raise AuditError(f"model: the folder {model!r} is no model: it has no config.json.")
        _refuse_code(json.loads((folder / "config.json").read_text(encoding="utf-8")), model)
        if not list(folder.glob("*.safetensors")):
            raise AuditError(
                f"model: the folder {model!r} has no *.safetensors file; weights come from safetensors only, as others can hold "
                "code. Convert it: model.save_pretrained(folder)."
            )
    transformers = transformers_module()
    with _told(model):
        config = transformers.AutoConfig.from_pretrained(model, trust_remote_code=False)
    _refuse_code(config.to_dict(), model)
    if getattr(config, "is_encoder_decoder", False):
        raise AuditError(
            f"model: {model!r} is an encoder-decoder ({config.model_type}), whose cross-attention reads two prompts. "
            "Audit an encoder or a decoder-only model."
        )
    return config


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
    causal = any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names)
    kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    with _told(model):
        loaded: PreTrainedModel = kind.from_pretrained(
            model, use_safetensors=True, trust_remote_code=False, dtype=getattr(torch, dtype), attn_implementation="sdpa"
        )
        loaded.to(torch.device(device))  # type: ignore[arg-type]
        loaded.train(False)
    return loaded


def read_texts(model: str, files: Sequence[Path], longest: int | None = None, *, allowed: int | None = None) -> dict[str, Tensor]:
    """Tokens of the texts in ``files``, one text for each, cut to ``longest`` tokens and padded to one length.

    Parameters
    ----------
    longest
        Cut here; without it, at what the model allows. More than the model allows is refused.
    allowed
        Most tokens that the model's positions allow; None when unknown.
    """
    transformers = transformers_module()
    texts = []
    for file in files:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise AuditError(f"text: {str(file)!r} could not be read as UTF-8 text ({error}).") from error
        if not text.strip():
            raise AuditError(f"text: {str(file)!r} is empty; give a text of at least two tokens.")
        texts.append(text)
    if longest is not None and allowed is not None and longest > allowed:
        raise AuditError(f"lengths: got {longest}; the model reads at most {allowed} tokens.")
    with _told(model):
        tokenizer = transformers.AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    cut = longest or allowed
    tokens = tokenizer(texts, return_tensors="pt", padding=len(texts) > 1, truncation=cut is not None, max_length=cut)
    found = {name: tokens[name] for name in ("input_ids", "attention_mask") if name in tokens}
    if bool(found["attention_mask"].all()):
        del found["attention_mask"]
    if found["input_ids"].shape[1] < 2:
        raise AuditError("text: one token only; give a text of at least two tokens.")
    return found


def most_tokens(config: Any) -> int | None:
    """Most positions that the model was made for."""
    for name in ("max_position_embeddings", "n_positions"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return None
