"""Where cells are computed, by name: processes here, Dask, or what a function makes."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.files import RunError, from_json, read_plain
from largeprompt.runs.pool import ATTEMPTS, LOGGER, WORKER, Pool, interrupts_held

PATIENCE = 20.0  # seconds for a scheduler to answer
ALLOWED = "local, dask, dask:tcp://HOST:PORT, dask:FILE (of a scheduler), or module:factory"


@contextlib.contextmanager
def executor(
    name: str = "local", workers: int | None = None, limit: float | None = None
) -> Iterator[Executor]:
    """The executor of this name, for the block; an exception, such as Ctrl-C, stops its work.

    Parameters
    ----------
    name
        'local': worker processes here. 'dask': a Dask cluster here. 'dask:ADDRESS' or 'dask:FILE':
        a scheduler that runs. 'module:factory': the :class:`concurrent.futures.Executor` that
        ``factory(max_workers=workers)`` returns.
    workers
        How many; by default one for each core, at most 8, or what the cluster has.
    limit
        Seconds after which the process of a cell is ended, with 'local' and with Dask.
    """
    kind, _, place = name.partition(":")
    dask = name == "dask" or (kind == "dask" and place)
    if name == "local":
        made: Any = contextlib.nullcontext(Pool(workers or default_workers(), limit, ("torch",)))
    elif dask:
        made = _dask(place, workers)
    elif place and limit is not None:
        raise InvalidArgumentError(
            "--cell-limit", f"{limit:g} with --executor {name}", "the executors local and dask"
        )
    elif place:
        made = contextlib.nullcontext(_made(name, workers))
    else:
        raise InvalidArgumentError("--executor", repr(name), ALLOWED)
    with made as found:
        try:
            yield found
        except BaseException:
            stop = {"cancel_futures": True} if name == "local" else {"wait": False}
            found.shutdown(**stop)
            raise
        found.shutdown()


def default_workers() -> int:
    """One for each core, at most 8."""
    return min(os.cpu_count() or 1, 8)


@contextlib.contextmanager
def _dask(place: str, workers: int | None) -> Iterator[Executor]:
    """The scheduler at a place, or a cluster of our own; its workers are like those of a Pool."""
    try:
        import dask
        import distributed
    except ImportError:
        remedy = "Dask comes with pip install 'largeprompt[cluster]'."
        allowed = "an executor that is installed"
        raise InvalidArgumentError("--executor", "'dask'", allowed, remedy) from None
    with contextlib.ExitStack() as stack:
        stack.enter_context(_silent("distributed"))  # what goes wrong is said by us, once
        address: Any = _address(place) if place else None
        if not place:
            # no cell is blamed for another of its worker
            options = {"allowed-failures": ATTEMPTS - 1, "worker-saturation": 1.0}
            named = {f"distributed.scheduler.{name}": value for name, value in options.items()}
            stack.enter_context(dask.config.set(named))
            address = stack.enter_context(_cluster(workers or default_workers()))
        try:
            client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
            stack.enter_context(client)
        except (OSError, ValueError, TypeError, AssertionError) as error:
            raise RunError(
                f"no Dask scheduler answers at {address} ({error}); is it running?"
            ) from None
        # a worker in this process would forward to itself, for ever
        if os.getpid() not in client.run(os.getpid).values():
            client.forward_logging(LOGGER.name, logging.INFO)
        yield client.get_executor(pure=False)


def _cluster(workers: int) -> Any:
    """A cluster on this machine. Where a worker dies as it begins, another cluster is made."""
    import distributed

    for _ in range(ATTEMPTS):
        try:
            with interrupts_held():
                return distributed.LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    memory_limit=0,  # as for local processes
                    dashboard_address="127.0.0.1:0",
                    env=WORKER,
                    silence_logs=logging.CRITICAL,
                )
        except (RuntimeError, OSError) as error:
            LOGGER.warning("a Dask cluster could not be started (%s)", error)
            trouble = error
    advice = "try fewer --workers, or --executor local"
    raise RunError(f"no Dask cluster can be started here ({trouble}); {advice}.")


def _address(place: str) -> str:
    """Address of a scheduler, as given or from its file; a client would wait for a wrong one."""
    from distributed.comm import addressing, registry

    try:
        if "://" not in place:
            content = read_plain(Path(os.path.realpath(place)), 2**20)
            place = str(from_json(content)["address"])
        kind, rest = addressing.parse_address(place, strict=True)
        if kind not in registry.backends:
            raise ValueError(f"known are {', '.join(registry.backends)}")
        if kind in ("tcp", "tls") and not 1 <= addressing.parse_host_port(rest)[1] < 2**16:
            raise ValueError("no such port")
    except (OSError, ValueError, KeyError, TypeError) as error:
        trouble = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        given = f"{f'dask:{place}'!r} ({trouble})"
        allowed = "the address or the file of a scheduler that runs"
        raise InvalidArgumentError("--executor", given, allowed) from None
    return place


@contextlib.contextmanager
def _silent(name: str) -> Iterator[None]:
    """Log nothing of this logger and those below it while the block runs."""
    below = [each for each in logging.root.manager.loggerDict if each.startswith(f"{name}.")]
    before = [(each, each.level) for each in map(logging.getLogger, [name, *below])]
    for logger, _ in before:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in before:
            logger.setLevel(level)


def _made(name: str, workers: int | None) -> Executor:
    """What a function somewhere makes."""
    module, _, function = name.rpartition(":")
    sys.path.insert(0, str(Path.cwd()))  # as for `python -m`
    try:
        factory = getattr(importlib.import_module(module), function)
    except Exception as error:  # whatever stands in the module
        allowed = f"{ALLOWED} that is there ({error})"
        raise InvalidArgumentError("--executor", repr(name), allowed) from None
    finally:
        sys.path.pop(0)
    try:
        found: Executor = factory() if workers is None else factory(max_workers=workers)
    except Exception as error:  # whatever it needs
        raise RunError(
            f"--executor {name}: the executor cannot be made ({type(error).__name__}: {error})."
        ) from error
    if not callable(getattr(found, "submit", None)):
        given = f"{name!r}, which makes a {type(found).__name__}"
        raise InvalidArgumentError("--executor", given, "a function that makes an executor")
    return found
