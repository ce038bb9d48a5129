"""``largeprompt doctor``: what is installed here, and does it give the right numbers?"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import json
import math
import os
import platform
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from largeprompt.cli.perform import AsJson, table
from largeprompt.runs.words import typeset

if TYPE_CHECKING:
    from torch import Tensor

EXTRAS = {
    "models": ("transformers", "safetensors"),
    "explore": ("marimo",),
    "cluster": ("distributed",),
    "real": ("gguf", "accelerate", "scikit-learn"),
}
MODULES = {"scikit-learn": "sklearn"}  # where the module has another name than the package


def doctor(as_json: AsJson = False) -> None:
    """Show versions, devices and extras, and check some numbers; exit code 1 if one is off."""
    with Console(stderr=True).status("checking a few numbers"):
        found: dict[str, Any] = {
            "versions": _versions(),
            "devices": _devices(),
            "extras": _extras(),
            "checks": [_checked(*one) for one in CHECKS],
        }
    failed = [check for check in found["checks"] if not check["passed"]]
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    else:
        _show(found)
        typer.echo(
            f"{len(failed)} of {len(CHECKS)} checks failed: please report the lines above."
            if failed
            else "Everything works."
        )
    raise typer.Exit(1 if failed else 0)


def _show(found: dict[str, Any]) -> None:
    console = Console()
    for title in ("versions", "devices", "extras"):
        console.print(table(("", ""), found[title].items(), title=title, show_header=False), "")
    lines = [
        (
            "ok" if check["passed"] else "FAILED",
            check["check"],
            check["error"] or typeset(f"{check['off']:.1e}"),
            typeset(f"{check['allowed']:.0g}"),
            f"{check['seconds']:.2f}",
        )
        for check in found["checks"]
    ]
    right = ("off by", "allowed", "seconds")
    console.print(table(("", "check", *right), lines, right=right, title="self-test"), "")


def _versions() -> dict[str, str]:
    names = ("largeprompt", "torch", "numpy", "scipy", "xarray", "matplotlib")
    return {"python": f"{platform.python_version()}, {platform.system()} {platform.machine()}"} | {
        name: importlib.metadata.version(name) for name in names
    }


def _devices() -> dict[str, str]:
    import torch

    found = {"cpu": f"{os.cpu_count()} cores; threads of PyTorch: {torch.get_num_threads()}"}
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(index)
            found[f"cuda:{index}"] = f"{about.name}, {about.total_memory / 2**30:.0f} GiB"
    else:
        found["cuda"] = "none: everything runs on the CPU"
    if torch.backends.mps.is_available():
        found["mps"] = "there, but without float64, which largeprompt computes in: not used"
    return found


def _extras() -> dict[str, str]:
    found = {}
    for extra, packages in EXTRAS.items():
        missing = [
            name for name in packages if importlib.util.find_spec(MODULES.get(name, name)) is None
        ]
        there = ", ".join(
            f"{name} {importlib.metadata.version(name)}" for name in packages if name not in missing
        )
        found[extra] = (
            f"lacks {', '.join(missing)}: pip install '.[{extra}]' where the source is"
            if missing
            else there
        )
    return found


def _checked(name: str, allowed: float, deviation: Callable[[], float]) -> dict[str, Any]:
    """One check: how far the library's number is from an independent one, and what is allowed."""
    start = time.perf_counter()
    off, error = math.nan, None
    try:
        off = deviation()
    except Exception as problem:  # whatever is broken here is what the reader wants to see
        error = f"{type(problem).__name__}: {problem}"
    seconds = time.perf_counter() - start
    return {"check": name, "passed": bool(off <= allowed), "off": off} | {
        "allowed": allowed,
        "error": error,
        "seconds": seconds,
    }


def _vector(*numbers: float) -> Tensor:
    import torch

    return torch.tensor(numbers, dtype=torch.float64)


def _enumeration() -> float:
    """Signs, u = 0.7, L = 3: all eight prompts."""
    import largeprompt as lp

    outputs = []
    for prompt in itertools.product((-1.0, 1.0), repeat=3):
        weights = [math.exp(0.7 * x) for x in prompt]
        outputs.append(sum(w * x for w, x in zip(weights, prompt, strict=True)) / sum(weights))
    truth = sum((output - math.tanh(0.7)) ** 2 for output in outputs) / 8
    law = lp.finite_prompt(lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Rademacher(1), _vector(0.7), 3)
    return abs(float(law.mse) / truth - 1)


def _contour() -> float:
    """Gaussian tokens in closed form, and as a mixture of two equal halves by quadrature."""
    import largeprompt as lp

    attention = lp.SoftmaxAttention([[1.0, 0.2], [0.0, 1.0]], [[1.0, 0.0], [0.5, 1.0]])
    zero, eye = [0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]]
    halves = lp.GaussianMixture([0.5, 0.5], [zero, zero], [eye, eye])
    ours, other = (
        lp.finite_prompt(attention, mu, _vector(0.8, -0.5), [10, 10**9])
        for mu in (lp.Gaussian(zero, eye), halves)
    )
    return float((ours.mse / other.mse - 1).abs().max())


def _certificate() -> float:
    """By how much the proved bound falls below the exact error: 0 if it holds."""
    import largeprompt as lp

    attention, shortfall = lp.SoftmaxAttention([[1.0]], [[1.0]]), 0.0
    for mu in (lp.Gaussian(dim=1), lp.Rademacher(1), lp.Uniform(1), lp.Laplace(1)):
        exact = lp.finite_prompt(attention, mu, _vector(0.6), 1000).mse
        bound = lp.certificate(attention, mu, _vector(0.6), 1000).bound
        shortfall = max(shortfall, 1 - float(bound / exact))
    return shortfall


def _drawn() -> float:
    """Mean squared error of 4,000 drawn prompts against the exact one, in standard errors."""
    import largeprompt as lp

    attention, mu = lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Gaussian(dim=1)
    law = lp.finite_prompt(attention, mu, _vector(1.0), 200)
    drawn = lp.sample_prompts(attention, mu, _vector(1.0), [200], 4000, 0)
    mse, standard_error = drawn.mse(law.limit)
    return float(((mse - law.mse) / standard_error).abs().max())


def _training() -> float:
    """Risk in closed form at an infinite prompt, and what is left of it after the flow."""
    import largeprompt as lp

    one = _vector(1.0)[:, None]
    task = lp.LinearRegression(one, one, 0.0)
    start = lp.SoftmaxAttention([[0.5, 0.0], [0.0, 0.0]], [[0.0, 0.5]])
    flow = lp.gradient_flow(task, start, math.inf, until=200.0, parametrization="block")
    return abs(float(flow.risk[0]) - 0.5 * 0.75**2) + abs(float(flow.risk[-1]))


CHECKS: tuple[tuple[str, float, Callable[[], float]], ...] = (
    ("exact law, enumerated", 1e-13, _enumeration),
    ("exact law, two routes", 1e-12, _contour),
    ("certificate above it, four laws", 0.0, _certificate),
    ("drawn, in standard errors", 5.0, _drawn),
    ("gradient flow to risk zero", 1e-8, _training),
)
