"""Triton kernel that reads tokens once for a few tilts, many parts of them side by side: imported only where Triton is."""
# mypy: ignore-errors
# ruff: noqa: D103

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 64  # tokens that a program holds at a time
PROGRAMS = 4096  # enough to keep every multiprocessor busy


@triton.jit
def part_sums(
    out, tokens, tilts, count, part, next_batch, next_row, n, dim: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr,
    DOUBLE: tl.constexpr,
):  # fmt: skip
    number = tl.float64 if DOUBLE else tl.float32
    place, tilt = tl.program_id(0), tl.program_id(1)
    column = tl.arange(0, PADDED)
    inside = column < dim
    u = tl.load(tilts + tilt * dim + column, mask=inside, other=0.0).to(number)
    start = place.to(tl.int64) * part
    stop = tl.minimum(start + part, count)
    here = tokens + (tilt // n).to(tl.int64) * next_batch
    peak = tl.full((1,), -1e30, number)
    mass = tl.zeros((1,), number)
    total = tl.zeros((PADDED,), number)
    for first in range(start, stop, ROWS):
        row = first + tl.arange(0, ROWS).to(tl.int64)
        x = tl.load(here + row[:, None] * next_row + column[None, :], mask=(row < stop)[:, None] & inside[None, :], other=0.0)
        x = x.to(number)
        score = tl.where(row < stop, tl.sum(x * u[None, :], 1), -1e30)
        new = tl.maximum(peak, tl.max(score, 0))
        weight = tl.where(row < stop, tl.exp(score - new), 0.0)
        shrink = tl.exp(peak - new)
        mass = mass * shrink + tl.sum(weight, 0)
        total = total * shrink + tl.sum(weight[:, None] * x, 0)
        peak = new
    there = out + (tilt.to(tl.int64) * tl.num_programs(0) + place) * (dim + 2)
    one = tl.arange(0, 1)
    tl.store(there + one, peak)
    tl.store(there + 1 + one, mass)
    tl.store(there + 2 + column, total, mask=inside)


def tilted_sums(u: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Log Σ e^{u·x} (b, n) and the softmax average (b, n, d) of tokens (b, c, d) for tilts u (b, n, d)."""
    (b, n, dim), count = u.shape, tokens.shape[1]
    part = ROWS * -(-count // (ROWS * max(1, PROGRAMS // (b * n))))
    number = torch.float64 if tokens.dtype == torch.float64 else torch.float32
    out = torch.empty((b, n, -(-count // part), dim + 2), dtype=number, device=u.device)
    sizes = {"dim": dim, "PADDED": triton.next_power_of_2(dim), "ROWS": ROWS, "DOUBLE": number == torch.float64}
    part_sums[(out.shape[2], b * n)](
        out, tokens, u.contiguous(), count, part, tokens.stride(0), tokens.stride(1), n, **sizes
    )  # fmt: skip
    peak = out[..., 0].amax(-1, keepdim=True)
    total = (torch.exp(out[..., :1] - peak.unsqueeze(-1)) * out[..., 1:]).sum(-2)
    return (peak.squeeze(-1) + torch.log(total[..., 0])).to(u.dtype), (total[..., 1:] / total[..., :1]).to(u.dtype)
