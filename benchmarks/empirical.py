"""Finite prompts: the streamed measure against PyTorch's fused attention, and its memory against
the score matrix.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

import largeprompt as lp
from benchmarks.measuring import alternate, keops, peak_memory

STREAM = """
import torch, largeprompt as lp
mu = lp.Empirical(torch.randn({tokens}, 8, dtype=torch.float64))
u = 0.3 * torch.randn({queries}, 8, dtype=torch.float64)
{call}
"""


def rows() -> list[tuple[str, str, str]]:
    table = []
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float64, torch.float32):
        for length, dim in ((10**6, 64), (10**5, 16), (10**4, 64)):
            tokens = torch.randn(length, dim, generator=generator, dtype=dtype)
            u = 0.3 * torch.randn(1, dim, generator=generator, dtype=dtype)
            mu = lp.Empirical(tokens)
            batch = tokens[None, None]

            def peer(u=u, batch=batch):
                return scaled_dot_product_attention(u[None, None], batch, batch, scale=1.0)

            ours, theirs = alternate(lambda mu=mu, u=u: mu.tilted_mean(u), peer)
            name = f"one query, L = {length:,}, d = {dim}, {str(dtype).removeprefix('torch.')}"
            table.append(
                (
                    name,
                    f"{ours / theirs:.2f} x the time of the fused kernel",
                    f"{ours * 1e3:.2f} ms",
                )
            )
    for length, queries in ((10**6, 1), (10**5, 64)):
        tokens, u = (
            torch.randn(n, 64, generator=generator, dtype=torch.float64) / 4
            for n in (length, queries)
        )
        mu = lp.Empirical(tokens)
        averages = keops(u, tokens)
        if averages is not None:
            ours, theirs = alternate(lambda mu=mu, u=u: mu.tilted_mean(u), averages, repeats=5)
            name = (
                f"{queries} {'query' if queries == 1 else 'queries'}, L = {length:,}, d = 64, "
                "float64, against KeOps"
            )
            table.append(
                (
                    name,
                    f"{ours / theirs:.2f} x the time",
                    f"{ours * 1e3:.0f} ms against {theirs * 1e3:.0f} ms",
                )
            )
    tokens, queries = 10**7, 200
    base = peak_memory(STREAM.format(tokens=tokens, queries=queries, call=""))
    for name, call in (
        ("tilted mean", "mu.tilted_mean(u)"),
        ("cgf", "mu.cgf(u)"),
        ("tilted covariance, 4 queries", "mu.tilted_covariance(u[:4])"),
    ):
        extra = peak_memory(STREAM.format(tokens=tokens, queries=queries, call=call)) - base
        matrix = tokens * queries * 8
        table.append(
            (
                f"{name}, 10⁷ tokens, {queries} queries",
                f"{extra / matrix:.4f} x the memory of the score matrix",
                f"{extra / 2**20:.0f} MiB above the tokens",
            )
        )
    return table
