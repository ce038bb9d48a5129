"""The exact engine for any law of tokens: against drawing prompts, flat in the length, and never
above a certificate.
"""

import functools
import math
import time

import torch

import largeprompt as lp
from benchmarks.measuring import alternate

LENGTHS = [1, 10, 100, 1000, 10**5, 10**7, 10**10]
CASES = 100_000  # in which the certificate must lie above the exact error


def layer(dim: int, outputs: int | None = None) -> lp.SoftmaxAttention:
    eye = torch.eye(dim, dtype=torch.float64)
    return lp.SoftmaxAttention(eye, eye[: outputs or dim])


def query(dim: int, size: float) -> torch.Tensor:
    u = torch.randn(dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return size * u / u.norm()


def errors(
    attention: lp.SoftmaxAttention, mu: lp.Measure, z: torch.Tensor, lengths: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    law = lp.finite_prompt(attention, mu, z, lengths)
    return law.mse, law.bias


def drawn(
    attention: lp.SoftmaxAttention, mu: lp.Measure, z: torch.Tensor, prompts: int, length: int
) -> torch.Tensor:
    """Squared errors of attention over freshly drawn tokens."""
    tokens = mu.sample(prompts * length, torch.Generator().manual_seed(1)).reshape(
        prompts, length, mu.dim
    )
    return (attention(lp.Empirical(tokens), z) - attention(mu, z)).square().sum(-1)


def least_processor_time(call: functools.partial, repeats: int) -> float:
    """Least seconds of processor time, which other programs on the machine move little."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def speed(mu: lp.Measure, size: float, asked: float, repeats: int) -> tuple[str, str, str]:
    """Seven lengths at once against the drawn prompts that know one of them, L = 1000, to 1 %."""
    attention, z = layer(mu.dim), query(mu.dim, size)
    exact = functools.partial(errors, attention, mu, z, LENGTHS)
    prompts = 64 if mu.dim < 100 else 16
    squared = drawn(attention, mu, z, prompts, 1000)
    needed = (float(squared.std() / squared.mean()) / 0.01) ** 2
    ours, theirs = alternate(
        exact, functools.partial(drawn, attention, mu, z, prompts, 1000), repeats=repeats
    )
    least = least_processor_time(exact, repeats)
    return (
        f"exact mse and bias of {type(mu).__name__}, d = {mu.dim}, score variance {size**2:g}, "
        "seven lengths from 1 to 10¹⁰, against drawn prompts at 1 % for L = 1000 alone",
        f"{theirs / prompts * needed / ours:,.0f} times faster",
        f"{ours * 1e3:.0f} ms, {least * 1e3:.0f} ms of processor time (asked: {asked * 1e3:g}); "
        f"{needed:.0f} prompts needed",
    )


def flatness(mu: lp.Measure, size: float) -> tuple[str, str, str]:
    attention, z = layer(mu.dim), query(mu.dim, size)
    short, long = alternate(
        *(functools.partial(errors, attention, mu, z, [length]) for length in (10, 10**12)),
        repeats=15,
    )
    return (
        f"exact law of {type(mu).__name__}, d = {mu.dim}, L = 10¹² against 10",
        f"{long / short:.2f} x the time (asked: 1.5)",
        f"{long * 1e3:.1f} ms",
    )


def certificates() -> tuple[str, str, str]:
    """Exact error over certificate for every law, lengths from 1 to 10¹², 10^5 cases in all."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    laws = [
        lambda d: lp.Rademacher(d),
        lambda d: lp.Uniform(d),
        lambda d: lp.Laplace(d),
        lambda d: lp.Sphere(d),
        lambda d: lp.scalar.SkewNormal(d, skew=0.8),
        lambda d: lp.Gaussian(normal(d), (lambda root: root @ root.mT / d)(normal(d, d))),
        lambda d: lp.GaussianMixture(
            [0.3, 0.7], normal(2, d), torch.eye(d, dtype=torch.float64).expand(2, d, d) / 2
        ),
        lambda d: lp.Discrete(normal(5, d), [0.1, 0.2, 0.3, 0.3, 0.1]),
        lambda d: lp.Uniform(d).map(normal(d, d) / math.sqrt(d), normal(d)),
    ]
    lengths = sorted({int(10 ** (k / 10)) for k in range(121)})  # up to 10¹²
    cases = violations = 0
    worst = 0.0
    start = time.perf_counter()
    while cases < CASES:
        for law in laws:
            d = int(torch.randint(1, 5, (), generator=generator))
            mu, attention = (
                law(d),
                lp.SoftmaxAttention(torch.eye(d, dtype=torch.float64), normal(d, d)),
            )
            sizes = 10 ** (3 * torch.rand(8, 1, generator=generator, dtype=torch.float64) - 3)
            z = 1.3 * sizes * torch.nn.functional.normalize(normal(8, d), dim=-1)
            ratio = (
                lp.finite_prompt(attention, mu, z, lengths).mse
                / lp.certificate(attention, mu, z, lengths).bound
            )
            cases += ratio.numel()
            violations += int((~(ratio <= 1 + 1e-9)).sum())
            worst = max(worst, float(ratio.max()))
    seconds = time.perf_counter() - start
    return (
        f"{cases:,} certificates of {len(laws)} laws against the exact error: how many lie below "
        "it",
        f"{violations} (asked: 0)",
        f"largest ratio {worst:.4f}; {seconds:.0f} s",
    )


def rows() -> list[tuple[str, str, str]]:
    table = [
        speed(lp.Rademacher(40), 1.0, 0.03, 15),
        speed(lp.Laplace(40), 1.0, 0.03, 15),
        speed(lp.Rademacher(1000), 1.0, 0.5, 3),
        speed(lp.Laplace(1000), 1.0, 0.5, 3),
        flatness(lp.Rademacher(40), 1.0),
        flatness(lp.Laplace(40), 1.0),
    ]
    dim = 16
    mu = lp.Gaussian(torch.zeros(dim, dtype=torch.float64), torch.eye(dim, dtype=torch.float64))
    ours, theirs = alternate(
        functools.partial(errors, layer(dim), mu, query(dim, 1.0), [1000]),
        functools.partial(errors, layer(dim), lp.Uniform(dim), query(dim, 1.0), [1000]),
        repeats=51,
    )
    table.append(
        (
            "exact law of a Gaussian, d = 16, L = 1000, against uniform tokens",
            f"{ours / theirs:.2f} x the time",
            f"{ours * 1e3:.2f} ms (asked: 1)",
        )
    )
    return [*table, certificates()]
