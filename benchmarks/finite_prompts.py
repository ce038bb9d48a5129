"""The exact law against Monte Carlo, the reduced sampler against the full one, flatness in L, and memory."""

import math
import time

import numpy as np
import torch

import largeprompt as lp
from benchmarks.measuring import alternate, peak_memory

SAMPLING = """
import torch, largeprompt as lp
torch.set_num_threads(1)
eye = torch.eye(4, dtype=torch.float64)
mu, attention = lp.Gaussian(torch.zeros(4, dtype=torch.float64), eye), lp.SoftmaxAttention(eye, eye)
lp.sample_prompts(attention, mu, [1.0, 0.0, 0.0, 0.0], [{length}], 1, torch.Generator().manual_seed(0), reduced={reduced})
"""


def monte_carlo(rng: np.random.Generator, replicas: int, length: int, query: np.ndarray) -> np.ndarray:
    """Squared errors of plain attention over freshly drawn tokens, in NumPy: what one would write without the library."""
    squared = np.empty(replicas)
    for i in range(replicas):
        tokens = rng.standard_normal((length, len(query)))
        scores = tokens @ query
        weights = np.exp(scores - scores.max())
        squared[i] = ((weights @ tokens / weights.sum() - query) ** 2).sum()
    return squared


def rows() -> list[tuple[str, str, str]]:
    table = []
    dim, length = 16, 10_000
    eye = torch.eye(dim, dtype=torch.float64)
    mu, attention = lp.Gaussian(torch.zeros(dim, dtype=torch.float64), eye), lp.SoftmaxAttention(eye, eye)
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
            f"exact mse against NumPy Monte Carlo at 1 %, L = 10^4, d = {dim}",
            f"{ratio:,.0f} times faster",
            f"{exact * 1e3:.2f} ms; {needed:.0f} prompts needed, {each * 1e3:.1f} ms each (measured on 400)",
        )
    )
    for size in (16, 64):
        wide = torch.eye(size, dtype=torch.float64)
        law, layer = lp.Gaussian(torch.zeros(size, dtype=torch.float64), wide), lp.SoftmaxAttention(wide, wide)
        query = torch.zeros(size, dtype=torch.float64)
        query[0] = 1.0

        def draw(reduced: bool, law=law, layer=layer, query=query):
            return lp.sample_prompts(layer, law, query, [10_000], 256, torch.Generator().manual_seed(0), reduced=reduced)

        full, reduced = alternate(lambda: draw(False), lambda: draw(True), repeats=3)
        table.append(
            (
                f"reduced against full sampling, L = 10^4, d = {size}",
                f"{full / reduced:.1f} times faster (asked: {size / 3:.1f})",
                f"{reduced / 256 * 1e3:.2f} ms against {full / 256 * 1e3:.2f} ms a prompt",
            )
        )
    scales = torch.linspace(0.01, 3, 200, dtype=torch.float64)
    products = [[(2, 0)], [(1, 1)], [(1, 1), (1, 1)]]
    short, long = alternate(
        lambda: lp.law.weight_moments(10, scales, products), lambda: lp.law.weight_moments(10**12, scales, products), repeats=25
    )
    table.append(
        (
            "table of E Y, E S, E S² at 200 scales up to 3, L = 10^12 against 10",
            f"{long / short:.2f} x the time",
            f"{long * 1e3:.0f} ms",
        )
    )
    wide_scales = torch.linspace(0.01, 10, 200, dtype=torch.float64)
    short, long = alternate(
        lambda: lp.law.weight_moments(10, wide_scales, products),
        lambda: lp.law.weight_moments(10**12, wide_scales, products),
        repeats=9,
    )
    table.append(("the same at 200 scales up to 10", f"{long / short:.2f} x the time", f"{long * 1e3:.0f} ms"))
    for reduced in (False, True):
        memory = peak_memory(SAMPLING.format(length=10**8, reduced=reduced))
        table.append(
            (
                f"peak memory of {'reduced' if reduced else 'full'} sampling, L = 10^8, d = 4",
                f"{memory / 2**30:.2f} of 1 GiB",
                f"{memory / 2**20:.0f} MiB, torch itself included",
            )
        )
    return table
