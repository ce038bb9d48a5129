"""Which sources decide the numbers of a study: this package, and the package of the study."""

import hashlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
APART = ("cli", "explore", "report", "testing", "__main__.py")  # they decide no number


def fingerprint(functions: Iterable[Callable[..., object] | type]) -> str:
    """SHA-256 of the sources of this package, and of the packages of functions and classes.

    A module that is in no package counts with all modules in its folder.
    """
    files = {
        path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in APART
    }
    for each in functions:
        # a partial is its function
        top = getattr(each, "func", each).__module__.partition(".")[0]
        place = getattr(sys.modules.get(top), "__file__", None)
        if place is not None and top != PACKAGE.name:
            folder, package = Path(place).parent, Path(place).stem == "__init__"
            files |= set(folder.rglob("*.py") if package else folder.glob("*.py"))
    digest = hashlib.sha256()
    for name, path in sorted((_name(path), path) for path in files if path.is_file()):
        digest.update(f"{name}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _name(path: Path) -> str:
    """A name that does not depend on where the package is installed."""
    inside = path.is_relative_to(PACKAGE)
    return path.relative_to(PACKAGE.parent).as_posix() if inside else path.name
