"""Triton kernel that reads tokens once for a few tilts, many parts of them side by side: imported only where Triton is."""
# mypy: ignore-errors
# ruff: noqa: D103

import torch
import triton
import triton.language as tl
from torch import Tensor

HELD = 4096  # numbers that a program holds at a time
PROGRAMS = 1024  # enough to keep every multiprocessor busy, few enough to be joined by one


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


@triton.jit
def joined_sums(logs, means, parts, count, dim: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, DOUBLE: tl.constexpr):
    number = tl.float64 if DOUBLE else tl.float32
    tilt = tl.program_id(0)
    column = tl.arange(0, PADDED)
    here = parts + tilt.to(tl.int64) * count * (dim + 2)
    peak = tl.full((1,), -1e30, number)
    mass = tl.zeros((1,), number)
    total = tl.zeros((PADDED,), number)
    for first in range(0, count, ROWS):
        row = first + tl.arange(0, ROWS)
        own = tl.load(here + row * (dim + 2), mask=row < count, other=-1e30)
        new = tl.maximum(peak, tl.max(own, 0))
        share, shrink = tl.where(row < count, tl.exp(own - new), 0.0), tl.exp(peak - new)
        mass = mass * shrink + tl.sum(share * tl.load(here + row * (dim + 2) + 1, mask=row < count, other=0.0), 0)
        inside = (row < count)[:, None] & (column < dim)[None, :]
        x = tl.load(here + row[:, None] * (dim + 2) + 2 + column[None, :], mask=inside, other=0.0)
        total = total * shrink + tl.sum(share[:, None] * x, 0)
        peak = new
    one = tl.arange(0, 1)
    tl.store(logs + tilt + one, peak + tl.log(mass))
    tl.store(means + tilt * dim + column, total / mass, mask=column < dim)


def tilted_sums(u: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Log Σ e^{u·x} (b, n) and the softmax average (b, n, d) of tokens (b, c, d) for tilts u (b, n, d)."""
    (b, n, dim), count = u.shape, tokens.shape[1]
    padded = triton.next_power_of_2(dim)
    rows = max(16, HELD // padded)
    part = rows * -(-count // (rows * max(1, PROGRAMS // (b * n))))
    number = torch.float64 if tokens.dtype == torch.float64 else torch.float32
    out = torch.empty((b, n, -(-count // part), dim + 2), dtype=number, device=u.device)
    sizes = {"dim": dim, "PADDED": padded, "ROWS": rows, "DOUBLE": number == torch.float64}
    part_sums[(out.shape[2], b * n)](
        out, tokens, u.contiguous(), count, part, tokens.stride(0), tokens.stride(1), n, **sizes
    )  # fmt: skip
    logs, means = u.new_empty((b, n)), u.new_empty((b, n, dim))
    joined_sums[(b * n,)](logs, means, out, out.shape[2], **sizes)
    return logs, means
