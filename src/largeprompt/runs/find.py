"""A study by its place: ``package.module:NAME`` or ``path/to/file.py:NAME``."""

import dataclasses
import importlib
import importlib.util
import sys
import threading
import traceback
from pathlib import Path

from largeprompt.errors import InvalidArgumentError, interrupted
from largeprompt.runs.study import Study

ALLOWED = "a study that is there, as file.py:STUDY or package.module:STUDY"
_LOADING = threading.RLock()  # of another thread, a module may be half there


def find_study(source: str, *, listed: bool = False) -> Study:
    """Return the study that ``source`` names; it keeps the source, for worker processes."""
    place, _, name = source.rpartition(":")
    place, name = (place, name) if place else (source, "STUDY")
    if place.startswith("."):
        allowed = "the full name of a module, or a file that ends in .py"
        raise InvalidArgumentError("study", repr(source), allowed)
    try:
        file = Path(place).resolve() if place.endswith(".py") else None
        module = _from_file(file) if file else importlib.import_module(place)
    except InvalidArgumentError:
        raise
    except Exception as error:  # whatever stands in the module
        if interrupted(error):
            raise KeyboardInterrupt from error
        absent = isinstance(error, ModuleNotFoundError) and (
            error.name is None or place.startswith(error.name)
        )
        why = "" if absent else f", which cannot be imported ({_trouble(error)})"
        raise InvalidArgumentError("study", f"{source!r}{why}", ALLOWED) from error
    found = getattr(module, name, None)
    if not isinstance(found, Study):
        what = "not there" if found is None else f"a {type(found).__name__}"
        raise InvalidArgumentError("study", f"{source!r}, where {name} is {what}", ALLOWED)
    return dataclasses.replace(found, source=f"{file or place}:{name}", listed=listed)


def _trouble(error: Exception) -> str:
    """What went wrong in a module, with its file and line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    file, line, said = last.filename, last.lineno, str(error)
    if isinstance(error, SyntaxError) and error.filename:
        file, line, said = error.filename, error.lineno, error.msg
    return f"{type(error).__name__}: {said}; {file}, line {line}"


def _from_file(path: Path) -> object:
    """Import a file by its path, once for each path and process."""
    with _LOADING:
        return _loaded(path)


def _loaded(path: Path) -> object:
    name = path.stem
    before = sys.modules.get(name)
    if before is not None and getattr(before, "__file__", None) == str(path):
        return before
    spec = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise InvalidArgumentError("study", str(path), "a Python file that is there")
    # in the current folder it may be this file
    other = None if before else importlib.util.find_spec(name)
    if before is not None or (other is not None and Path(str(other.origin)).resolve() != path):
        allowed = f"a file with a name of its own: there is another module {name!r}"
        raise InvalidArgumentError("study", str(path), allowed, "Rename the file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs, as its classes are looked up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
