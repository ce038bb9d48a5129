"""Models for inference, from a folder, a GGUF file or the hub, with the tokens of their texts."""

import contextlib
import copy
import hashlib
import importlib.util
import io
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.audit.adapters.source import Source, load_config, one_sentence
from largeprompt.audit.adapters.texts import texts_in, tokens_of
from largeprompt.audit.adapters.transformers import (
    CAUSAL,
    AuditError,
    AuditWarning,
    Model,
    check_model,
    transformers_module,
)
from largeprompt.errors import InvalidArgumentError

MAPS = ("auto", "balanced", "balanced_low_0", "sequential")


def load_model(
    model: str | Path,
    device: str = "cpu",
    dtype: str = "float32",
    *,
    revision: str | None = None,
    token: str | None = None,
    attn_implementation: str | None = None,
    device_map: str | None = None,
) -> Model:
    """Return a model for inference, a causal language model with its head.

    Of an encoder-decoder it is the encoder. Quantized weights are read where the package that they
    need is installed.

    Parameters
    ----------
    model
        Folder that ``save_pretrained`` wrote, a GGUF file, or a name on the hub (for a GGUF file,
        owner/name/file.gguf). Weights come from safetensors or GGUF; no code of the model runs.
    device, dtype
        Names that PyTorch knows, such as 'cuda' and 'bfloat16'; the dtype 'auto' is that of the
        weights.
    revision, token
        Branch, tag or commit on the hub, and the token for models that are not public (HF_TOKEN by
        default).
    attn_implementation
        'sdpa' or 'eager', or what else transformers has; nothing from a hub.
    device_map
        Spread the weights over devices, such as 'auto', instead of putting them on one; needs
        accelerate.

    Returns
    -------
    PreTrainedModel
        Without dropout.
    """
    source = Source(str(model) if isinstance(model, Path) else model, revision, token)
    options = {"attn_implementation": attn_implementation, "device_map": device_map}
    return _weights(source, load_config(source), device=device, dtype=dtype, **options)


def check_device_map(given: Any) -> None:
    """Refuse a map that transformers does not know, or that lacks its package."""
    if not isinstance(given, str):
        return
    if importlib.util.find_spec("accelerate") is None:
        raise AuditError("device_map: accelerate is not installed: pip install accelerate")
    if given not in MAPS:
        try:
            torch.device(given)
        except RuntimeError:
            allowed = f"{', '.join(MAPS)}, or a device"
            raise InvalidArgumentError("device_map", validation.text(given), allowed) from None


def _kind(config: Any) -> Any:
    """The class that makes the model: with its head where it predicts the next token."""
    names = transformers_module("transformers.models.auto.modeling_auto")
    causal = any(name.endswith(CAUSAL) for name in config.architectures or [])
    if not config.architectures:  # GGUF files do not say
        causal = config.model_type in names.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        causal = causal and config.model_type not in names.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return names.AutoModelForCausalLM if causal else names.AutoModel


def _weights(
    source: Source,
    config: Any,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    attn_implementation: str | None = None,
    device_map: Any = None,
) -> Model:
    """The model that the config describes, after a check that no weight is missing."""
    if attn_implementation is not None and "/" in attn_implementation:
        given, allowed = validation.text(attn_implementation), "'sdpa', 'eager', ..."
        remedy = "A slash asks a hub for a kernel, whose code is never run."
        raise InvalidArgumentError("attn_implementation", given, allowed, remedy)
    kind = dtype if dtype == "auto" else getattr(torch, dtype, None)
    if not isinstance(kind, str | torch.dtype):
        allowed = "'auto', or a floating dtype of PyTorch such as 'float32'"
        raise InvalidArgumentError("dtype", validation.text(dtype), allowed)
    check_device_map(device_map)
    if device_map is None and getattr(config, "quantization_config", None) is not None:
        device_map = {"": device}  # quantized weights cannot be moved afterwards
    options: dict[str, Any] = {"dtype": kind, "output_loading_info": True}
    options |= {"use_safetensors": True} if source.file is None else {}
    options |= {"device_map": device_map} if device_map is not None else {}
    if attn_implementation is not None:
        options["attn_implementation"] = attn_implementation
    with one_sentence(source.model):
        loaded, report = _kind(config).from_pretrained(source.place, **options, **source.options())
        absent = [name for name in report["missing_keys"] if "pooler" not in name]
        if absent:
            raise AuditError(
                f"model: the weights of {source.model!r} lack {len(absent)} tensors ({absent[0]}, "
                "...); none are made up."
            )
        if device_map is None:
            loaded = loaded.to(torch.device(device))
    return _read(loaded.eval(), config)


def _read(model: Model, config: Any) -> Model:
    """What reads the text: of an encoder-decoder the encoder."""
    both = getattr(config, "is_encoder_decoder", False)
    return cast(Model, model.get_encoder()) if both else model


def skeleton(config: Any) -> Model:
    """Return the model without weights: enough to see its layers, and what it reads."""
    with torch.device("meta"), one_sentence(config.model_type):
        found = _read(_kind(config).from_config(copy.deepcopy(config)), config)
    if found.main_input_name != "input_ids":
        raise AuditError(
            f"{type(found).__name__} reads {found.main_input_name}, not text. Audit it in Python: "
            f"audit_model(model, {{{found.main_input_name!r}: ...}})."
        )
    return found


def load_with_texts(
    source: Source, files: Sequence[Path | str], longest: int | None = None, **options: Any
) -> tuple[Model, dict[str, Tensor]]:
    """Return a model and the tokens of its texts, with options of :func:`load_model`."""
    config = load_config(source)
    transformers_module().utils.logging.disable_progress_bar()  # its bars would break into ours
    texts = [text for file in files for text in texts_in(file)]
    with warnings.catch_warnings():  # the command has said that a text is cut
        warnings.simplefilter("ignore", AuditWarning)
        inputs = tokens_of(source, config, texts, longest)
    # a bar of its own for GGUF files
    with contextlib.redirect_stderr(io.StringIO() if source.file is not None else sys.stderr):
        loaded = _weights(source, config, **options)
    check_model(loaded, inputs)
    return loaded, {name: value.to(loaded.device) for name, value in inputs.items()}


def fingerprint(model: str, texts: Sequence[str]) -> str:
    """Return a digest of the texts, the config, and names, sizes and times of the weights."""
    digest = hashlib.sha256()
    for text in (each for file in texts for each in texts_in(file)):
        digest.update(text.encode() + b"\0")
    path = Path(model)
    files = [path] if path.is_file() else []
    if path.is_dir():
        digest.update((path / "config.json").read_bytes())
        files = sorted(path.glob("*.safetensors"))
    for file in files:
        digest.update(f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}".encode())
    return digest.hexdigest()[:16]
