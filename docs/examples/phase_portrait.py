"""Ten thousand training runs side by side: the phase portrait of in-context regression at several
prompt lengths.

    python phase_portrait.py --device cuda              # 10,000 starts to t = 300 at four lengths
    python phase_portrait.py --starts 100 --until 30    # the same, smaller, on a CPU

Layers are U = [[A, 0], [0, 0]], A = αI/√d, V = (0, b): two numbers, α = ±‖A‖ and b, so that a run
is a path in a plane. The gradient flow of the infinite prompt conserves b² - α² and ends where αb =
√d, each start at its own place; at a finite length every start of the same sign goes on, slowly, to
one and the same layer, the best there is. No prompt is drawn: slopes are those of the exact risk.
"""

import argparse
import math
import time
from collections.abc import Callable

import matplotlib.pyplot as plt
import torch

from largeprompt.law.table import WeightTables

DIM, NOISE, SHOWN = 5, 0.1, 12


def risk_of(length: float, device: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Exact risks of layers (α, b), shape (run, 2), by one rule over r = ‖x_q‖ that all share.

    Formula (risk.6) of docs/mathematics/regression.md with Σ = Σ_q = I and W = I/d.
    """
    log_r = torch.arange(-38 / DIM, math.log(10 + math.sqrt(DIM)), 0.04, dtype=torch.float64)
    r2 = torch.exp(2 * log_r).to(device)
    weight = torch.exp(DIM * log_r.to(device) - r2 / 2)
    weight = weight / weight.sum()

    def risk(theta: torch.Tensor) -> torch.Tensor:
        alpha, b = theta.unbind(-1)
        a = alpha / math.sqrt(DIM)
        read, agreement = (a * b) ** 2 / DIM, 2 * a * b / DIM
        twice = NOISE + 1 + (read - agreement) * DIM
        if math.isfinite(length):
            q = a.square().unsqueeze(-1) * r2
            tables = WeightTables.reaching([length], float(q.detach().max()))
            f, h = (part[0] for part in tables(q.unsqueeze(0)))
            sizes = weight * r2
            twice = twice + b**2 * (1 + NOISE) * (f @ weight) + agreement * (f @ sizes)
            twice = twice - read * ((f + 6 * h) @ sizes)
        return twice / 2

    return risk


def portrait(length: float, starts: int, until: float, steps: int, device: str) -> torch.Tensor:
    """Paths of (α, b) from a square of starts, shape (time, start, 2), by the Runge-Kutta rule."""
    risk, h = risk_of(length, device), until / steps

    def slope(theta: torch.Tensor) -> torch.Tensor:
        point = theta.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(risk(point).sum(), point)
        return -gradient

    side = torch.linspace(-2.0, 2.0, math.isqrt(starts), dtype=torch.float64, device=device)
    path = [torch.cartesian_prod(side, side)]
    for _ in range(steps):
        theta = path[-1]
        first = slope(theta)
        second = slope(theta + h / 2 * first)
        third = slope(theta + h / 2 * second)
        fourth = slope(theta + h * third)
        path.append(theta + h / 6 * (first + 2 * second + 2 * third + fourth))
    return torch.stack(path).cpu()


def draw(paths: dict[float, torch.Tensor], file: str) -> None:
    """One panel for each length: a few paths, and where all of them are at the end."""
    figure, panels = plt.subplots(
        1,
        len(paths),
        figsize=(3.2 * len(paths), 3.4),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axes, (length, states) in zip(panels[0], paths.items(), strict=True):
        side = math.isqrt(states.shape[1])
        every = torch.arange(0, side, max(1, side // SHOWN))
        chosen = (every[:, None] * side + every).flatten()
        axes.plot(states[:, chosen, 0], states[:, chosen, 1], color="tab:blue", lw=0.4, alpha=0.6)
        axes.plot(states[-1, :, 0], states[-1, :, 1], ".", color="tab:red", ms=2)
        axes.set(
            title="infinite prompt" if math.isinf(length) else f"L = {length:g}",
            xlabel="α",
            xlim=(-3, 3),
            ylim=(-3, 3),
        )
    panels[0, 0].set_ylabel("b")
    figure.savefig(file, dpi=150)


def main() -> None:
    """Integrate, time and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=10_000)
    parser.add_argument("--until", type=float, default=300.0)
    parser.add_argument("--step", type=float, default=0.2)
    parser.add_argument("--lengths", type=float, nargs="+", default=[20, 100, 1000, math.inf])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", default="phase_portrait.png")
    asked = parser.parse_args()
    paths = {}
    for length in asked.lengths:
        before = time.perf_counter()
        steps = math.ceil(asked.until / asked.step)
        paths[length] = portrait(length, asked.starts, asked.until, steps, asked.device)[
            :: max(1, steps // 300)
        ]
        a = paths[length][-1, :, 0].abs()
        took, spread = time.perf_counter() - before, float((a - a.median()).abs().max())
        print(
            f"L = {length:g}: {len(a):,} starts to t = {asked.until:g} in {took:.1f} s; |α| ends "
            f"at {a.median():.4f} ± {spread:.1e}"
        )
    draw(paths, asked.out)


if __name__ == "__main__":
    main()
