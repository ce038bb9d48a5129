"""Where a model comes from: safetensors or GGUF only, and no code of it is run."""

import contextlib
import dataclasses
import importlib.util
import os
import re
import socket
import struct
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from largeprompt import validation
from largeprompt.audit.adapters.transformers import AuditError, transformers_module
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.files import from_json, read_plain

# what foreign packages raise of files that are damaged, missing or not what they expect
DAMAGED = (OSError, ValueError, RuntimeError, LookupError, TypeError, AttributeError, ImportError)
PACKAGES = ("safetensors", "huggingface_hub", "transformers")  # with errors of their own
INDEX = "model.safetensors.index.json"
MOST_JSON = 2**26  # bytes of a config or an index: those of the largest models have a few million
# what counts layers, heads and the like in a config; no model has so many
COUNTS, MOST_COUNTED = re.compile(r"(num|n|encoder|decoder)_.*(layers?|heads?|blocks?)$"), 10**4


@dataclasses.dataclass(frozen=True)
class Source:
    """A folder of ``save_pretrained``, a GGUF file, or a name on the hub."""

    model: str
    revision: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model or "\0" in self.model:
            allowed = "a folder, a GGUF file, or a name on the hub"
            raise InvalidArgumentError("model", validation.text(self.model), allowed)

    @property
    def here(self) -> bool:
        """Whether the model is a file or folder of this machine, there or not."""
        path = Path(self.model)
        gguf = path.suffix.lower() == ".gguf"
        outside = self.model.startswith(("/", ".", "~"))
        return path.exists() or outside or (len(path.parts) < 3) == gguf

    @property
    def file(self) -> str | None:
        """Name of the GGUF file, None where the model is not one."""
        path = Path(self.model)
        if path.suffix.lower() != ".gguf":
            return None
        return path.name if self.here else "/".join(path.parts[2:])

    @property
    def place(self) -> str:
        """The folder or the name on the hub, as ``from_pretrained`` takes it."""
        if self.file is None:
            return self.model
        path = Path(self.model)
        return str(path.parent) if self.here else "/".join(path.parts[:2])

    def options(self) -> dict[str, Any]:
        """Options of every ``from_pretrained``: no code, and no network where it is not needed."""
        name = self.file or "config.json"
        find = transformers_module("huggingface_hub").try_to_load_from_cache
        here = Path(self.place).exists()
        here = here or isinstance(find(self.place, name, revision=self.revision), str)
        found: dict[str, Any] = {"trust_remote_code": False, "local_files_only": here}
        given = {"revision": self.revision, "token": self.token, "gguf_file": self.file}
        return found | {name: value for name, value in given.items() if value is not None}


@contextlib.contextmanager
def one_sentence(model: str) -> Iterator[None]:
    """Turn what transformers, safetensors and the hub raise into one sentence."""
    try:
        yield
    except AuditError:
        raise
    except Exception as error:
        foreign = type(error).__module__.startswith(PACKAGES)
        # tokenizers raises bare exceptions
        if not (foreign or isinstance(error, DAMAGED) or type(error) is Exception):
            raise
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise AuditError(
            f"model: {model!r} could not be loaded ({first[:200]}). Allowed: a folder that "
            "save_pretrained wrote, a GGUF file, or a name on the hub."
        ) from error


def load_config(source: Source) -> Any:
    """Return the model's configuration, after the checks that need no weights."""
    model, path = source.model, Path(source.model)
    if source.file is not None:
        _check_gguf(source)
    elif path.exists():
        _check_folder(path, model)
    elif source.here:
        raise AuditError(f"model: there is no folder {model!r}.")
    transformers = transformers_module()
    with one_sentence(model):  # a name that the hub's library does not take
        options = source.options()
    if not options["local_files_only"]:
        _check_hub(model)
    with one_sentence(model):
        raw, _ = transformers.PretrainedConfig.get_config_dict(source.place, **options)
        check_config(raw, model)  # before a class makes lists as long as it says
        if source.file is None:
            config = transformers.AutoConfig.from_pretrained(source.place, **options)
        else:  # reading a header takes seconds: once is enough
            config = transformers.CONFIG_MAPPING[raw["model_type"]].from_dict(raw)
        _refuse_code(config.to_dict() | {"attn_implementation": config._attn_implementation}, model)
        if source.file is None and not path.exists():
            _check_index(_on_hub(source, options), model)
    return config


def _on_hub(source: Source, options: dict[str, Any]) -> Path | None:
    """The index of a model on the hub, where its weights have one."""
    hub = transformers_module("huggingface_hub")
    given = {name: options.get(name) for name in ("revision", "token", "local_files_only")}
    try:
        return Path(hub.hf_hub_download(source.place, INDEX, **given))
    except (hub.errors.EntryNotFoundError, hub.errors.LocalEntryNotFoundError):
        return None


def check_config(config: dict[str, Any], model: str) -> None:
    """Refuse a configuration that asks for code, or counts more layers or heads than there are."""
    _refuse_code(config, model)
    for name, value in config.items():
        if isinstance(value, dict):
            check_config(value, model)
        elif COUNTS.match(name) and not isinstance(value, list | type(None)):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not 0 <= value <= MOST_COUNTED:
                raise AuditError(
                    f"model: the config of {model!r} says {name} = {validation.text(value)}; "
                    f"allowed: whole numbers from 0 to {MOST_COUNTED:,}."
                )


def _check_hub(model: str) -> None:
    """Say at once that the hub cannot be reached, which its library tries for a minute."""
    known = transformers_module("huggingface_hub.constants")
    host = urllib.parse.urlsplit(known.ENDPOINT).hostname
    if known.HF_HUB_OFFLINE or urllib.request.getproxies():
        return  # a proxy may know the host
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        raise AuditError(
            f"model: there is no folder or file {model!r} here, and {host} cannot be reached."
        ) from None


def _check_gguf(source: Source) -> None:
    path = Path(source.model)
    if source.here and not path.is_file():
        raise AuditError(f"model: there is no file {source.model!r}.")
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(24)
        # every tensor and every field of the header takes eight bytes and more
        magic, version, *counts = struct.unpack("<4sIQQ", head.ljust(24, b"\0"))
        if magic != b"GGUF" or version > 3 or sum(counts) > path.stat().st_size // 8:
            raise AuditError(f"model: {source.model!r} is damaged, or no GGUF file of version 3.")
    missing = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        which = f"{' and '.join(missing)}: pip install {' '.join(missing)}"
        raise AuditError(f"model: a GGUF file needs {which}")


def _check_folder(folder: Path, model: str) -> None:
    """A folder that holds a configuration, and weights that cannot hold code."""
    if not folder.is_dir():
        raise AuditError(f"model: {model!r} is a file; give the folder, or a GGUF file.")
    if not (folder / "config.json").is_file():
        raise AuditError(f"model: the folder {model!r} has no config.json.")
    check_config(_json(folder / "config.json", model), model)
    if not any(folder.glob("*.safetensors")):
        raise AuditError(
            f"model: the folder {model!r} has no *.safetensors file; weights come from safetensors "
            "only, as others can hold code. Use model.save_pretrained(folder)."
        )
    _check_index(folder / INDEX if (folder / INDEX).exists() else None, model)


def _check_index(index: Path | None, model: str) -> None:
    """Refuse an index that names other files than safetensors beside it."""
    named = {} if index is None else _json(index, model).get("weight_map")
    files = set(named.values()) if isinstance(named, dict) else {None}
    for name in files:
        if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+\.safetensors", name):
            raise AuditError(
                f"model: the {INDEX} of {model!r} names {validation.text(name)}; allowed: files "
                "that end in .safetensors, without folders."
            )


def _json(file: Path, model: str) -> dict[str, Any]:
    """A JSON object of moderate size."""
    try:
        # in the hub's cache it is a link
        found = from_json(read_plain(Path(os.path.realpath(file)), MOST_JSON))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise AuditError(f"model: the {file.name} of {model!r} is not a JSON object.")
    return found


def _refuse_code(config: dict[str, Any], model: str) -> None:
    if config.get("auto_map"):
        raise AuditError(
            f"model: {model!r} asks for code of its own (auto_map in config.json), which is never "
            "run."
        )
    if "/" in str(config.get("attn_implementation")):
        raise AuditError(
            f"model: the config of {model!r} asks a hub for its attention "
            f"({config['attn_implementation']}), whose code is never run."
        )
