"""Where a model comes from: weights from safetensors or GGUF only, no code of theirs
is ever run.
"""

import contextlib
import dataclasses
import importlib.util
import os
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from largeprompt import validation
from largeprompt.audit.adapters.transformers import AuditError, transformers_module
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.files import from_json, read_plain


@dataclasses.dataclass(frozen=True)
class Source:
    """A folder that ``save_pretrained`` wrote, a GGUF file (on the hub: owner/name/file.gguf), or a
    name on the hub.
    """

    model: str
    revision: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model or "\0" in self.model:
            allowed = "a text: a folder, a GGUF file, or a name on the hub"
            raise InvalidArgumentError(
                "model", validation.text(self.model), allowed, "Use str(path) for a path."
            )

    @property
    def file(self) -> str | None:
        """Name of the GGUF file, None where the model is not one."""
        return (
            self.model.removeprefix(self.place).strip("/\\")
            if self.model.lower().endswith(".gguf")
            else None
        )

    @property
    def place(self) -> str:
        """The folder or the name on the hub, as ``from_pretrained`` takes it."""
        if not self.model.lower().endswith(".gguf"):
            return self.model
        path = Path(self.model)
        return (
            str(path.parent)
            if path.exists() or self.model.count("/") < 2
            else "/".join(path.parts[:2])
        )

    def options(self) -> dict[str, Any]:
        """Options of every ``from_pretrained``: no code of the model's own, no network where the
        files are on this machine.
        """
        name = self.file or "config.json"
        find = transformers_module("huggingface_hub").try_to_load_from_cache
        here = Path(self.place).exists() or isinstance(
            find(self.place, name, revision=self.revision), str
        )
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
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise AuditError(
            f"model: {model!r} could not be loaded ({first[:200]}). Allowed: a folder that "
            "transformers' save_pretrained wrote, "
            "a GGUF file, or a hub name that is in the cache or can be reached."
        ) from error


def load_config(source: Source) -> Any:
    """The model's configuration, after the checks that need no weights."""
    model, path = source.model, Path(source.model)
    if source.file is not None:
        _check_gguf(source)
    elif path.exists():
        _check_folder(path, model)
    elif model.startswith(("/", ".", "~")) or model.count("/") > 1:
        raise AuditError(f"model: there is no folder {model!r}.")
    transformers = transformers_module()
    with one_sentence(model):  # a name that the hub's library does not take
        options = source.options()
    if not options["local_files_only"]:
        _check_hub(model)
    with one_sentence(model):
        config = transformers.AutoConfig.from_pretrained(source.place, **options)
        _refuse_code(config.to_dict() | {"attn_implementation": config._attn_implementation}, model)
    return config


def _check_hub(model: str) -> None:
    """Say at once that the hub cannot be reached, which its library tries for a minute; a proxy may
    know it all the same.
    """
    known = transformers_module("huggingface_hub.constants")
    host = urllib.parse.urlsplit(known.ENDPOINT).hostname
    if known.HF_HUB_OFFLINE or urllib.request.getproxies():
        return
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        raise AuditError(
            f"model: there is no folder or file {model!r} here, and {host} cannot be reached to "
            "look for a model of that name."
        ) from None


def _check_gguf(source: Source) -> None:
    if (source.model.startswith(("/", ".", "~")) or source.model.count("/") < 2) and not Path(
        source.model
    ).is_file():
        raise AuditError(f"model: there is no file {source.model!r}.")
    missing = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise AuditError(
            f"model: a GGUF file needs {' and '.join(missing)}: pip install {' '.join(missing)}"
        )


def _check_folder(folder: Path, model: str) -> None:
    """A folder that holds a configuration, and weights that cannot hold code."""
    if not folder.is_dir():
        raise AuditError(
            f"model: {model!r} is a file; give the folder of config.json and model.safetensors, or "
            "a GGUF file."
        )
    if not (folder / "config.json").is_file():
        raise AuditError(
            f"model: the folder {model!r} does not hold a model: it has no config.json."
        )
    try:
        # on the hub's cache it is a link
        found = from_json(read_plain(Path(os.path.realpath(folder / "config.json")), 2**26))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise AuditError(
            f"model: the config.json of {model!r} is not a JSON object of moderate size."
        )
    _refuse_code(found, model)
    if not any(folder.glob("*.safetensors")):
        raise AuditError(
            f"model: the folder {model!r} has no *.safetensors file; weights come from safetensors "
            "only, as others can hold "
            "code. Convert it: model.save_pretrained(folder)."
        )


def _refuse_code(config: dict[str, Any], model: str) -> None:
    if config.get("auto_map"):
        raise AuditError(
            f"model: {model!r} asks for code of its own (auto_map in config.json), which is never "
            "run. Use an architecture that transformers has itself."
        )
    if "/" in str(config.get("attn_implementation")):
        raise AuditError(
            f"model: the config of {model!r} asks a hub for its attention "
            f"({config['attn_implementation']}), whose code is never "
            "run. Take attn_implementation out of it."
        )
