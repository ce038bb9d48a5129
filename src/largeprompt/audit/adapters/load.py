"""Models and texts from disk or from the hub: weights from safetensors only, no code of theirs is ever run."""

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from largeprompt.audit.adapters.transformers import CAUSAL, AuditError, Model, transformers_module

TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "*.model", "*.tiktoken")
OFFSET = ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "mpnet", "longformer", "data2vec-text")  # positions start late


@contextlib.contextmanager
def _one_sentence(model: str) -> Iterator[None]:
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
    with _one_sentence(model):
        config = transformers.AutoConfig.from_pretrained(model, **_safely(model))
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
        raise AuditError(f"model: the folder {model!r} does not hold a model: it has no config.json.")
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise AuditError(f"model: the config.json of {model!r} is not a JSON object.")
    _refuse_code(found, model)
    if not any(folder.glob("*.safetensors")):
        raise AuditError(
            f"model: the folder {model!r} has no *.safetensors file; weights come from safetensors only, as others can hold "
            "code. Convert it: model.save_pretrained(folder)."
        )


def _safely(model: str) -> dict[str, Any]:
    """Options of every ``from_pretrained``: no code of the model's own, and no network where the files are on this machine."""
    find = transformers_module("huggingface_hub").try_to_load_from_cache
    return {"trust_remote_code": False, "local_files_only": Path(model).exists() or isinstance(find(model, "config.json"), str)}


def _refuse_code(config: dict[str, Any], model: str) -> None:
    if config.get("auto_map"):
        raise AuditError(
            f"model: {model!r} asks for code of its own (auto_map in config.json), which is never run. "
            "Use an architecture that transformers has itself."
        )


def load_model(model: str, device: str = "cpu", dtype: str = "float32") -> Model:
    """A model for inference: a causal language model with its head where it is one, the bare model otherwise.

    Parameters
    ----------
    model
        Folder that ``save_pretrained`` wrote, or a name on the hub. Weights come from safetensors; no code of the model runs.
    device, dtype
        Names that PyTorch knows, such as 'cuda' and 'bfloat16'.

    Returns
    -------
    PreTrainedModel
        Without dropout.
    """
    return _weights(model, load_config(model), device, dtype)


def _weights(model: str, config: Any, device: str, dtype: str) -> Model:
    """The model that the config describes, after a check that no weight is missing."""
    transformers = transformers_module()
    causal = any(name.endswith(CAUSAL) for name in config.architectures or [])
    kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    options = {"use_safetensors": True, "dtype": getattr(torch, dtype), "output_loading_info": True}
    with _one_sentence(model):
        loaded, report = kind.from_pretrained(model, **options, **_safely(model))
        absent = [name for name in report["missing_keys"] if "pooler" not in name]
        if absent:
            raise AuditError(
                f"model: the weights of {model!r} lack {len(absent)} tensors ({absent[0]}, ...); nothing is made up for them."
            )
        found: Model = loaded.to(torch.device(device)).eval()
    return found


def load_with_texts(
    model: str, files: Sequence[Path | str], longest: int | None = None, *, device: str = "cpu", dtype: str = "float32"
) -> tuple[Model, dict[str, Tensor]]:
    """A model and the tokens of its texts, both on the device; each is read once, and they must belong together."""
    config = load_config(model)
    transformers_module().utils.logging.disable_progress_bar()  # its bar for the weights would break into ours
    inputs = read_texts(model, files, longest, allowed=most_tokens(config))
    loaded = _weights(model, config, device, dtype)
    if int(inputs["input_ids"].max()) >= len(cast(Tensor, loaded.get_input_embeddings().weight)):
        raise AuditError("model: the tokenizer gives numbers that the model has no embedding for: they do not belong together.")
    return loaded, {name: value.to(loaded.device) for name, value in inputs.items()}


def read_texts(
    model: str, files: Sequence[Path | str], longest: int | None = None, *, allowed: int | None = None
) -> dict[str, Tensor]:
    """Tokens of texts, one for each file, padded on the right to one length.

    Parameters
    ----------
    model
        Folder or name of the model whose tokenizer is used.
    files
        UTF-8 texts.
    longest
        Cut texts to so many tokens; None leaves them whole.
    allowed
        Most tokens that the model's positions allow, None when unknown: a longer text is refused.

    Returns
    -------
    dict of str to Tensor
        ``input_ids`` (texts, T), and ``attention_mask`` where there is padding.
    """
    texts = [_text(Path(file)) for file in files]
    tokenizer = _tokenizer(model)
    most = tokenizer.model_max_length  # 10^30 where it is not known
    allowed = min((each for each in (allowed, most) if each is not None and each < 10**9), default=None)
    if longest is not None and allowed is not None and longest > allowed:
        raise AuditError(f"lengths: got {longest}; the model reads at most {allowed} tokens.")
    logging.getLogger("transformers.tokenization_utils_base").setLevel(logging.ERROR)  # long texts have our own message below
    tokens = tokenizer(texts, return_tensors="pt", padding=len(texts) > 1, truncation=longest is not None, max_length=longest)
    found = {name: tokens[name] for name in ("input_ids", "attention_mask") if name in tokens}
    count = found["input_ids"].shape[1]
    if allowed is not None and count > allowed:
        raise AuditError(
            f"text: {count:,} tokens, and the model reads at most {allowed:,}. To audit the first {allowed:,} of them, give "
            f"--lengths {allowed} on the command line, or longest={allowed} in Python."
        )
    if count < 2:
        raise AuditError("text: one token only; give a text of at least two tokens.")
    if bool(found["attention_mask"].all()):
        del found["attention_mask"]
    return found


def _text(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise AuditError(f"text: there is no file {str(file)!r}.") from None
    except UnicodeDecodeError as error:
        raise AuditError(f"text: {str(file)!r} is not UTF-8 text ({error}).") from error
    except OSError as error:
        raise AuditError(f"text: {str(file)!r} could not be read ({error.strerror}).") from error
    if not text.strip():
        raise AuditError(f"text: {str(file)!r} is empty; give a text of at least two tokens.")
    return text


def _tokenizer(model: str) -> Any:
    folder = Path(model)
    if folder.is_dir() and not any(any(folder.glob(pattern)) for pattern in TOKENIZERS):
        raise AuditError(f"model: the folder {model!r} has no tokenizer (tokenizer.json or the like): its texts cannot be read.")
    with _one_sentence(model):
        tokenizer = transformers_module().AutoTokenizer.from_pretrained(model, **_safely(model))
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


def fingerprint(model: str, texts: Sequence[str]) -> str:
    """Digest of the texts, of the model's config and of the names, sizes and times of its weights."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(Path(text).read_bytes())
    folder = Path(model)
    if folder.is_dir():
        digest.update((folder / "config.json").read_bytes())
        for file in sorted(folder.glob("*.safetensors")):
            digest.update(f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}".encode())
    return digest.hexdigest()[:16]
