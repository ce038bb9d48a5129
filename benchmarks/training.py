"""The authors' grid by exact flow against their SGD loop, and the time of a flow against the prompt
length.
"""

import math
import time
from collections.abc import Callable

import numpy as np
import torch

import largeprompt as lp
from benchmarks.measuring import alternate
from largeprompt.studies.covariances import KINDS
from largeprompt.studies.paper import PaperConfig, start, task

STEPS = 300_000
TIMED_LENGTHS = (10, 30, 100, 300, 1000)


class Layer(torch.nn.Module):
    """One head with K, Q, V and a scalar read-out, as anybody would write it in PyTorch."""

    def __init__(self, dim: int, softmax: bool) -> None:
        super().__init__()
        self.key, self.query, self.value = (torch.nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.readout, self.softmax = torch.nn.Linear(dim, 1, bias=False), softmax

    def forward(self, tokens: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        scores = (self.key(tokens) @ self.query(query).unsqueeze(-1)).squeeze(-1) / math.sqrt(
            query.shape[-1]
        )
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


def blocks(dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """U and V of a layer that scores by inputs and reads labels."""
    U = torch.diag(torch.tensor([0.3] * dim + [0.0], dtype=torch.float64))
    return U, torch.tensor([[0.0] * dim + [0.3]], dtype=torch.float64)


def grid_by_flow(config: PaperConfig, in_blocks: bool) -> tuple[float, float]:
    """Seconds on the clock and of the processor for all nineteen lengths, both attentions, to
    time 300.
    """
    clock, processor = time.perf_counter(), time.process_time()
    for kind, attention in KINDS.items():
        factors, layer = start(config, kind)
        lp.gradient_flow(
            task(config, "intended"),
            attention(*blocks(config.dim)) if in_blocks else layer,
            list(config.lengths),
            config.until,
            parametrization="block" if in_blocks else factors,
            times=np.linspace(0, config.until, config.times),
            tolerance=config.tolerance,
        ).completed()
    return time.perf_counter() - clock, time.process_time() - processor


def stochastic_steps(
    length: int, device: torch.device, batch: int = 256, dim: int = 16
) -> tuple[Callable, Callable]:
    """A gradient over drawn prompts as the library draws them, and by drawn tokens and autograd, as
    a training loop has it.
    """
    eye = torch.eye(dim, dtype=torch.float64)
    regression, generator = (
        lp.LinearRegression(eye, eye / dim, 0.1),
        torch.Generator(device=device).manual_seed(0),
    )
    U, V = (
        torch.randn(n, dim + 1, dtype=torch.float64, device=device, generator=generator) / 8
        for n in (dim + 1, 1)
    )
    layer = lp.SoftmaxAttention(U, V)

    def eager() -> None:
        tokens, query, answer = regression.sample(batch, length, generator)
        u, v = U.clone().requires_grad_(), V.clone().requires_grad_()
        weights = torch.softmax((tokens @ (query @ u.mT).unsqueeze(-1)).squeeze(-1), -1)
        error = (weights.unsqueeze(-2) @ tokens).squeeze(-2) @ v.mT - answer
        (error.square().sum(-1).mean() / 2).backward()

    return lambda: regression.prompt_gradients(layer, length, batch, generator), eager


def rows() -> list[tuple[str, str, str]]:
    config = PaperConfig()
    measured = {
        kind: [seconds_per_step(kind == "softmax", length) for length in TIMED_LENGTHS]
        for kind in KINDS
    }
    sgd = STEPS * sum(
        float(np.interp(config.lengths, TIMED_LENGTHS, each).sum()) for each in measured.values()
    )
    flow, processor = grid_by_flow(config, in_blocks=False)
    blockwise, blockwise_processor = grid_by_flow(config, in_blocks=True)
    steps = "; ".join(
        f"{kind} " + ", ".join(f"{1e3 * s:.2f}" for s in each) for kind, each in measured.items()
    )
    table = [
        (
            "authors' grid (19 lengths, both attentions, t = 300) in their parametrization: exact "
            "flow against a PyTorch SGD loop, extrapolated",
            f"{sgd / flow:,.0f} times faster (asked: 1,000; aim: 5,000)",
            f"{flow:.1f} s, {processor:.1f} s of processor time (asked: 25) against "
            f"{sgd / 3600:.1f} h; ms a step at L = {', '.join(map(str, TIMED_LENGTHS))}: {steps}, "
            f"interpolated in L, times {STEPS:,} steps",
        ),
        (
            "the same grid from a start in blocks (scores by inputs, output from labels), against "
            "the authors' start",
            f"{flow / blockwise:.1f} times faster",
            f"{blockwise:.1f} s, {blockwise_processor:.1f} s of processor time (asked: 15)",
        ),
    ]
    chosen = task(config, "intended")

    def flow_to_ten(length: int) -> object:
        return lp.gradient_flow(
            chosen,
            lp.SoftmaxAttention(*blocks(config.dim)),
            length,
            10.0,
            parametrization="block",
            tolerance=1e-6,
        )

    short, long = alternate(lambda: flow_to_ten(10), lambda: flow_to_ten(10**6), repeats=5)
    table.append(
        (
            "a flow to t = 10 at L = 10⁶ against L = 10",
            f"{long / short:.2f} x the time (asked: 1.5)",
            f"{long:.2f} s",
        )
    )
    ours, peer = alternate(*stochastic_steps(10**4, torch.device("cpu")), repeats=3)
    table.append(
        (
            "one step of SGD, L = 10⁴, d = 16, batch 256, against drawn tokens and autograd",
            f"{peer / ours:.1f} times faster (asked: 5)",
            f"{ours * 1e3:.0f} ms against {peer * 1e3:.0f} ms",
        )
    )
    return table
