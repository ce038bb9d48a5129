"""How a benchmark measures: alternating medians for time, a fresh process for peak memory."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor


def alternate(*calls: Callable[[], object], repeats: int = 15) -> list[float]:
    """Median seconds of each call, taken in turns so that all meet the same state
    of the machine.
    """
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(repeats):
        for call, seconds in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
    return [statistics.median(seconds) for seconds in times]


def peak_memory(code: str) -> int:
    """Peak resident bytes of a fresh Python process that runs ``code`` (Linux)."""
    # VmHWM starts anew with the program; ru_maxrss would inherit the peak of this process
    report = (
        "\nprint(next(line for line in open('/proc/self/status') if "
        "line.startswith('VmHWM')).split()[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code + report], check=True, capture_output=True, text=True
    )
    return int(done.stdout.split()[-1]) * 1024


def keops(u: Tensor, tokens: Tensor) -> Callable[[], Tensor] | None:
    """Softmax averages of tokens by KeOps, which compiles a kernel at the first call; None where it
    or its compiler is missing.
    """
    try:
        import pykeops
        from pykeops.torch import LazyTensor
    except ImportError:
        return None
    pykeops.set_verbose(False)

    def averages() -> Tensor:
        read = LazyTensor(tokens[None])
        return (LazyTensor(u[:, None]) | read).sumsoftmaxweight(read, axis=1)

    try:
        torch.testing.assert_close(
            averages(), torch.softmax(u @ tokens.mT, -1) @ tokens, rtol=1e-3, atol=1e-3
        )
    except (RuntimeError, OSError, ValueError):
        return None
    return averages
