"""The authors' grid by exact flow against their SGD loop, and the time of a flow against the prompt length."""

import math
import time

import numpy as np
import torch

import largeprompt as lp
from benchmarks.measuring import alternate
from largeprompt.studies.covariances import KINDS
from largeprompt.studies.paper.config import PaperConfig
from largeprompt.studies.paper.parts import task

STEPS = 300_000
TIMED_LENGTHS = (10, 30, 100, 300, 1000)


class Layer(torch.nn.Module):
    """One head with K, Q, V and a scalar read-out, as anybody would write it in PyTorch."""

    def __init__(self, dim: int, softmax: bool) -> None:
        super().__init__()
        self.key, self.query, self.value = (torch.nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.readout, self.softmax = torch.nn.Linear(dim, 1, bias=False), softmax

    def forward(self, tokens: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        scores = (self.key(tokens) @ self.query(query).unsqueeze(-1)).squeeze(-1) / math.sqrt(query.shape[-1])
        weights = torch.softmax(scores, -1) if self.softmax else scores / tokens.shape[1]
        return self.readout((weights.unsqueeze(1) @ self.value(tokens)).squeeze(1)).squeeze(-1)


def seconds_per_step(softmax: bool, length: int, steps: int = 150) -> float:
    """Median time of an SGD step in float32: draw 128 prompts, forward, backward, update."""
    torch.manual_seed(0)
    d, batch = 5, 128
    index = torch.arange(d)
    factor = torch.linalg.cholesky(0.5 ** (index.unsqueeze(-1) - index).abs().float())
    layer = Layer(d + 1, softmax)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        w = torch.randn(batch, d) / math.sqrt(d)
        x = torch.randn(batch, length + 1, d) @ factor.mT
        y = (x @ w.unsqueeze(-1)).squeeze(-1) + math.sqrt(0.1) * torch.randn(batch, length + 1)
        tokens = torch.cat([x, y.unsqueeze(-1)], -1)
        query = torch.nn.functional.pad(x[:, -1], (0, 1))
        loss = (layer(tokens[:, :-1], query) - y[:, -1]).square().mean() / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def grid_by_flow(config: PaperConfig) -> None:
    """All nineteen lengths, both attentions, to time 300."""
    start = lp.training.Factorised.default(config.dim + 1, torch.Generator().manual_seed(config.seed))
    U, V = (part[0] for part in start.layer(start.start().unsqueeze(0)))
    for kind in KINDS.values():
        lp.gradient_flow(
            task(config, "intended"),
            kind(U, V),
            list(config.lengths),
            config.until,
            parametrisation=start,
            times=np.linspace(0, config.until, config.times),
            tolerance=config.tolerance,
            average=lp.training.SobolAverage(config.points),
        )


def rows() -> list[tuple[str, str, str]]:
    config = PaperConfig()
    measured = {kind: [seconds_per_step(kind == "softmax", length) for length in TIMED_LENGTHS] for kind in KINDS}
    sgd = STEPS * sum(float(np.interp(config.lengths, TIMED_LENGTHS, each).sum()) for each in measured.values())
    begin = time.perf_counter()
    grid_by_flow(config)
    flow = time.perf_counter() - begin
    steps = "; ".join(f"{kind} " + ", ".join(f"{1e3 * s:.2f}" for s in each) for kind, each in measured.items())
    table = [
        (
            "authors' grid (19 lengths, both attentions, t = 300): exact flow against the PyTorch SGD loop, extrapolated",
            f"{sgd / flow:,.0f} times faster (asked: 1,000; aim: 5,000)",
            f"{flow:.1f} s against {sgd / 3600:.1f} h; ms a step at L = {', '.join(map(str, TIMED_LENGTHS))}: {steps}, "
            f"interpolated in L, times {STEPS:,} steps",
        )
    ]
    chosen = task(config, "intended")
    U = torch.diag(torch.tensor([0.3] * 5 + [0.0], dtype=torch.float64))
    V = torch.tensor([[0.0] * 5 + [0.3]], dtype=torch.float64)

    def block(length: int) -> object:
        attention = lp.SoftmaxAttention(U, V)
        average = lp.training.SobolAverage(1024)
        return lp.gradient_flow(chosen, attention, length, 10.0, parametrisation="block", average=average, tolerance=1e-6)

    short, long = alternate(lambda: block(10), lambda: block(10**6), repeats=5)
    table.append(("a flow to t = 10 at L = 10^6 against L = 10", f"{long / short:.2f} x the time (asked: 1.5)", f"{long:.2f} s"))
    return table
