"""Which sources decide a study's numbers: those that its computations reach by imports, in its own
package and in ours.
"""

import ast
import functools
import hashlib
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

PACKAGE = __name__.partition(".")[0]
APART = ("report", "cli", "testing", "__main__")  # they decide no number


def fingerprint(functions: Iterable[Callable[..., object] | type]) -> str:
    """SHA-256 of the sources that these functions and classes reach.

    Imports inside functions count. ``import largeprompt`` reaches all of the package, as its names
    are found by attribute.
    """
    digest = hashlib.sha256()
    # a partial is its function
    modules = frozenset(getattr(each, "func", each).__module__ for each in functions)
    for name, path in sorted(reached(modules).items()):
        digest.update(f"{name}\n".encode() + path.read_bytes())
    return digest.hexdigest()


@functools.cache
def reached(modules: frozenset[str]) -> dict[str, Path]:
    """Files of these modules and of all that they import, directly or not, by module name."""
    packages = {name.partition(".")[0] for name in modules} | {PACKAGE}
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in found or (path := _file(name)) is None:
            continue
        found[name] = path
        imported = _everything() if name == PACKAGE else _imports(name, path)
        waiting += [
            each for each in imported if each.partition(".")[0] in packages and each not in found
        ]
    return found


def _file(name: str) -> Path | None:
    """Where a module's source is; None for what is not a module, such as a class
    that was imported.
    """
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None):
        return Path(str(loaded.__file__))
    top, *rest = name.split(".")
    root = sys.modules.get(top) or sys.modules.get(PACKAGE)
    spec = importlib.util.find_spec(top) if root is None or root.__name__ != top else root.__spec__
    if spec is None or not spec.origin:
        return None
    if not rest:
        return Path(spec.origin)
    base = Path(spec.origin).parent.joinpath(*rest)
    return next(
        (path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None
    )


@functools.cache
def _imports(name: str, path: Path) -> tuple[str, ...]:
    """Modules that a source may import; a name that a package only passes on leads to the module
    that it comes from.
    """
    package = name if path.name.startswith("__init__.") else name.rpartition(".")[0]
    stub = path.with_suffix(".pyi")  # of a package whose names are loaded lazily
    files = [path, stub] if path.name == "__init__.py" and stub.is_file() else [path]
    found: list[str] = []
    for node in itertools.chain.from_iterable(
        ast.walk(ast.parse(file.read_bytes())) for file in files
    ):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            passed_on = _passed_on(base)
            for alias in node.names:
                module = f"{base}.{alias.name}"
                found.append(
                    module if _file(module) is not None else passed_on.get(alias.name, base)
                )
    return tuple(found)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """The module that ``from ... import`` names, without leading dots."""
    if not node.level:
        return node.module or ""
    parents = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parents, *([node.module] if node.module else [])])


@functools.cache
def _passed_on(package: str) -> dict[str, str]:
    """Names that a package's __init__ (or its stub, where they are loaded lazily) imports from
    elsewhere, with the module.
    """
    path = _file(package)
    if path is None or path.name != "__init__.py":
        return {}
    stub = path.with_suffix(".pyi")
    nodes = ast.parse((stub if stub.is_file() else path).read_bytes()).body
    found = [
        (_absolute(node, package), alias)
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    return {alias.asname or alias.name: base for base, alias in found}


@functools.cache
def _everything() -> tuple[str, ...]:
    """All modules of the package but those apart."""
    root = Path(str(sys.modules[PACKAGE].__file__)).parent
    names = []
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[0] not in APART and parts != ("__init__",):
            names.append(".".join((PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts))))
    return tuple(names)
