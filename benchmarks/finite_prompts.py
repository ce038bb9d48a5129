"""The exact law against Monte Carlo, the reduced sampler against the full one, flatness in L, and
memory.
"""

import math
import time

import numpy as np
import torch

import largeprompt as lp
from benchmarks.measuring import alternate, peak_memory
from largeprompt.law.weights import weight_moments

SAMPLING = """
import torch, largeprompt as lp
torch.set_num_threads(1)
eye = torch.eye(4, dtype=torch.float64)
mu, attention = lp.Gaussian(torch.zeros(4, dtype=torch.float64), eye), lp.SoftmaxAttention(eye, eye)
z, generator = [1.0, 0.0, 0.0, 0.0], torch.Generator().manual_seed(0)
lp.sample_prompts(attention, mu, z, [{length}], 1, generator, reduced={reduced})
"""


def monte_carlo(
    rng: np.random.Generator, replicas: int, length: int, query: np.ndarray
) -> np.ndarray:
    """Squared errors of plain attention over freshly drawn tokens, in NumPy: what one would write
    without the library.
    """
    squared = np.empty(replicas)
    for i in range(replicas):
        tokens = rng.standard_normal((length, len(query)))
        scores = tokens @ query
        weights = np.exp(scores - scores.max())
        squared[i] = ((weights @ tokens / weights.sum() - query) ** 2).sum()
    return squared


def neighbors() -> list[tuple[str, str, str]]:
    """Settings of other people's experiments, exact, against prompts drawn by this library."""
    eye, wide = (torch.eye(dim, dtype=torch.float64) for dim in (4, 50))
    small, large = lp.Gaussian(0 * eye[0], eye), lp.Gaussian(0 * wide[0], wide)
    half, one, lengths = (
        lp.SoftmaxAttention(eye / 2, eye),
        lp.SoftmaxAttention(wide, wide),
        [16, 32, 64, 128, 256, 512, 1024],
    )
    steps = [int(n) for n in torch.logspace(3, math.log10(30_000), 12, dtype=torch.float64)]
    queries = (
        torch.logspace(math.log10(0.05), math.log10(5), 12, dtype=torch.float64)[:, None] * wide[0]
    )

    def all_errors() -> None:
        law = lp.finite_prompt(half, small, eye[0], lengths)
        law.mse, law.jacobian_u_mse, law.jacobian_v_mse  # noqa: B018

    def drawn() -> None:
        lp.sample_prompts(
            half, small, eye[0], lengths, 1000, torch.Generator().manual_seed(0), jacobian=True
        )

    exact, sampled = alternate(all_errors, drawn, repeats=5)
    (grid,) = alternate(lambda: lp.finite_prompt(one, large, queries, steps).mse, repeats=5)
    begin = time.perf_counter()
    lp.sample_prompts(
        one, large, queries, steps[:1], 20, torch.Generator().manual_seed(0), reduced=False
    )
    all_drawn = (time.perf_counter() - begin) / 20 * 200 * steps[-1] / steps[0]
    return [
        (
            "the setting of the public audit, d = 4, L = 16 to 1024, output and both Jacobians: "
            "exact against 1,000 drawn prompts",
            f"{sampled / exact:.1f} times faster",
            f"{exact * 1e3:.0f} ms against {sampled * 1e3:.0f} ms",
        ),
        (
            "the grid of token-sample-complexity, d = 50, 12 lengths from 1,000 to 30,000, 12 "
            "score scales: exact against 200 "
            "prompts drawn for all of them, extrapolated from 20 of the shortest",
            f"{all_drawn / grid:,.0f} times faster",
            f"{grid * 1e3:.0f} ms against {all_drawn:.0f} s",
        ),
    ]


def drawn_scalars(length: int, replicas: int) -> tuple[str, str, str]:
    """The reduced sampler against drawing its scalars and doing nothing with them, in pieces that
    stay in the cache.
    """
    eye, buffer = torch.eye(16, dtype=torch.float64), torch.empty(2**17, dtype=torch.float64)
    mu, attention, generator = (
        lp.Gaussian(0 * eye[0], eye),
        lp.SoftmaxAttention(eye, eye),
        torch.Generator().manual_seed(0),
    )
    count = length * replicas

    def draws() -> None:
        for _ in range(round(count / buffer.numel())):
            buffer.normal_(generator=generator)

    ours, peer = alternate(
        lambda: lp.sample_prompts(
            attention, mu, eye[0], [length // 100, length], replicas, generator, reduced=True
        ),
        draws,
        repeats=5,
    )
    what = (
        f"reduced sampler, L = {length:,}, {replicas} prompts, d = 16, against drawing its scalars"
    )
    return (
        what,
        f"{ours / peer:.2f} x the time (asked: 1.5)",
        f"{ours / count * 1e9:.1f} ns a token",
    )


def many_queries() -> tuple[str, str, str]:
    """The exact law of ten thousand queries from the table of its moments, against that of one
    after the other.
    """
    eye = torch.eye(16, dtype=torch.float64)
    mu, attention = lp.Gaussian(0 * eye[0], eye), lp.SoftmaxAttention(eye, eye)
    z = torch.randn(10_000, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 4
    many, one = alternate(
        lambda: lp.finite_prompt(attention, mu, z, 1000).mse,
        lambda: lp.finite_prompt(attention, mu, z[0], 1000).mse,
        repeats=5,
    )
    return (
        "exact mse of 10⁴ queries at once",
        f"{10_000 * one / many:,.0f} times faster than one by one",
        f"{many * 1e3:.1f} ms",
    )


def rows() -> list[tuple[str, str, str]]:
    table = neighbors()
    dim, length = 16, 10_000
    eye = torch.eye(dim, dtype=torch.float64)
    mu, attention = (
        lp.Gaussian(torch.zeros(dim, dtype=torch.float64), eye),
        lp.SoftmaxAttention(eye, eye),
    )
    z = torch.zeros(dim, dtype=torch.float64)
    z[0] = math.sqrt(2)
    (exact,) = alternate(lambda: lp.finite_prompt(attention, mu, z, length).mse, repeats=101)
    start = time.perf_counter()
    squared = monte_carlo(np.random.default_rng(0), 400, length, z.numpy())
    each = (time.perf_counter() - start) / 400
    needed = (float(squared.std() / squared.mean()) / 0.01) ** 2
    ratio = needed * each / exact
    table.append(
        (
            f"exact mse against NumPy Monte Carlo at 1 %, L = 10⁴, d = {dim}",
            f"{ratio:,.0f} times faster",
            f"{exact * 1e3:.2f} ms; {needed:.0f} prompts needed, {each * 1e3:.1f} ms each "
            "(measured on 400)",
        )
    )
    for size in (16, 64):
        wide = torch.eye(size, dtype=torch.float64)
        law, layer = (
            lp.Gaussian(torch.zeros(size, dtype=torch.float64), wide),
            lp.SoftmaxAttention(wide, wide),
        )
        query = torch.zeros(size, dtype=torch.float64)
        query[0] = 1.0

        def draw(reduced: bool, law=law, layer=layer, query=query):
            return lp.sample_prompts(
                layer, law, query, [10_000], 256, torch.Generator().manual_seed(0), reduced=reduced
            )

        full, reduced = alternate(lambda: draw(False), lambda: draw(True), repeats=3)
        table.append(
            (
                f"reduced against full sampling, L = 10⁴, d = {size}",
                f"{full / reduced:.1f} times faster (asked: {size / 3:.1f})",
                f"{reduced / 256 * 1e3:.2f} ms against {full / 256 * 1e3:.2f} ms a prompt",
            )
        )
    table += [drawn_scalars(10**4, 256), drawn_scalars(10**6, 8), many_queries()]
    scales = torch.linspace(0.01, 3, 200, dtype=torch.float64)
    products = [[(2, 0)], [(1, 1)], [(1, 1), (1, 1)]]
    short, long = alternate(
        lambda: weight_moments(10, scales, products),
        lambda: weight_moments(10**12, scales, products),
        repeats=25,
    )
    table.append(
        (
            "table of E Y, E S, E S² at 200 scales up to 3, L = 10¹² against 10",
            f"{long / short:.2f} x the time",
            f"{long * 1e3:.0f} ms",
        )
    )
    wide_scales = torch.linspace(0.01, 10, 200, dtype=torch.float64)
    short, long = alternate(
        lambda: weight_moments(10, wide_scales, products),
        lambda: weight_moments(10**12, wide_scales, products),
        repeats=9,
    )
    table.append(
        (
            "the same at 200 scales up to 10",
            f"{long / short:.2f} x the time",
            f"{long * 1e3:.0f} ms",
        )
    )
    for reduced in (False, True):
        memory = peak_memory(SAMPLING.format(length=10**8, reduced=reduced))
        table.append(
            (
                f"peak memory of {'reduced' if reduced else 'full'} sampling, L = 10⁸, d = 4",
                f"{memory / 2**30:.2f} of 1 GiB",
                f"{memory / 2**20:.0f} MiB, torch itself included",
            )
        )
    return table
