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

_LOADING = threading.RLock()


def find_study(source: str, *, listed: bool = False) -> Study:
    """The study that ``source`` names; it remembers the source, so that worker processes find it
    too.
    """
    place, _, name = source.rpartition(":")
    place, name = (place, name) if place else (source, "STUDY")
    if place.startswith("."):
        raise InvalidArgumentError(
            "study", repr(source), "the full name of a module, or a file that ends in .py"
        )
    try:
        module = (
            _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        )
    except InvalidArgumentError:
        raise
    except Exception as error:  # whatever stands in the module
        if interrupted(error):
            raise KeyboardInterrupt from error
        absent = isinstance(error, ModuleNotFoundError) and (
            error.name is None or place.startswith(error.name)
        )
        given = (
            repr(source) if absent else f"{source!r}, which cannot be imported ({_trouble(error)})"
        )
        allowed = "a study that is there, as file.py:STUDY or package.module:STUDY"
        raise InvalidArgumentError("study", given, allowed) from error
    found = getattr(module, name, None)
    if not isinstance(found, Study):
        given = (
            f"{source!r}, where {name} is "
            f"{'not there' if found is None else f'a {type(found).__name__}'}"
        )
        raise InvalidArgumentError(
            "study", given, "the name of a Study, as file.py:STUDY or package.module:STUDY"
        )
    absolute = f"{Path(place).resolve()}:{name}" if place.endswith(".py") else f"{place}:{name}"
    return dataclasses.replace(found, source=absolute, listed=listed)


def _trouble(error: Exception) -> str:
    """What went wrong in a module, with its file and line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    file, line, said = last.filename, last.lineno, str(error)
    if isinstance(error, SyntaxError) and error.filename:
        file, line, said = error.filename, error.lineno, error.msg
    return f"{type(error).__name__}: {said}; {file}, line {line}"


def _from_file(path: Path) -> object:
    """Import a file by its path, once for each path and process."""
    with _LOADING:  # of another thread, a module may be half there
        return _loaded(path.resolve())


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
        raise InvalidArgumentError(
            "study",
            str(path),
            f"a file with a name of its own: there is another module {name!r}",
            "Rename the file.",
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs, as its classes are looked up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
