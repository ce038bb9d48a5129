"""Triton kernel of ``prompts``: two normals for each token made and consumed in registers; imported only where Triton is."""
# mypy: ignore-errors

import torch
import triton
import triton.language as tl
from torch import Tensor

from largeprompt.sampling.kernels import pair, uniform64, words

LANES = 128  # tokens that a program reads at a time
PART = 2**12  # tokens of one program


@triton.jit
def part_sums(out, size, across, rest, seed, length, PART: tl.constexpr, LANES: tl.constexpr):
    """Sums of part program_id(0) of prompt program_id(1)."""
    part, row = tl.program_id(0), tl.program_id(1)
    key, scale = tl.load(seed), tl.load(size + row)
    along, beside = tl.load(across + row), tl.load(rest + row)
    zero = tl.zeros((LANES,), tl.float64)
    peak, mass, a1, a2, b1, b2, aa, ab, bb = zero - 1e30, zero, zero, zero, zero, zero, zero, zero, zero
    start = part.to(tl.int64) * PART
    stop = tl.minimum(start + PART, length)
    for first in range(start, stop, LANES):
        token = first + tl.arange(0, LANES).to(tl.int64)
        w0, w1, w2, w3 = words(token, key, row, row * 0)
        x, y = pair(uniform64(w0, w1), uniform64(w2, w3))
        read = along * x + beside * y
        score = tl.where(token < stop, scale * x, -float("inf"))
        new = tl.maximum(peak, score)
        shrink, weight = tl.exp(peak - new), tl.exp(score - new)
        other = weight * read
        mass = mass * shrink + weight
        a1, a2 = a1 * shrink + weight * x, a2 * shrink + weight * y
        b1, b2 = b1 * shrink + other * x, b2 * shrink + other * y
        square = shrink * shrink
        aa, ab, bb = aa * square + weight * weight, ab * square + weight * other, bb * square + other * other
        peak = new
    top = tl.max(peak, 0)
    once = tl.exp(peak - top)
    twice = once * once
    here = out + (row.to(tl.int64) * tl.num_programs(0) + part) * 9
    tl.store(here, top)
    tl.store(here + 1, tl.sum(a1 * once, 0))
    tl.store(here + 2, tl.sum(a2 * once, 0))
    tl.store(here + 3, tl.sum(b1 * once, 0))
    tl.store(here + 4, tl.sum(b2 * once, 0))
    tl.store(here + 5, tl.sum(aa * twice, 0))
    tl.store(here + 6, tl.sum(ab * twice, 0))
    tl.store(here + 7, tl.sum(bb * twice, 0))
    tl.store(here + 8, tl.sum(mass * once, 0))


def softmax_sums(size: Tensor, across: Tensor, rest: Tensor, length: int, seed: Tensor) -> tuple[Tensor, Tensor]:
    """Sums (n, 2, 2) of α and β by ξ_1 and ξ_2, and of their products, for freshly drawn prompts; arguments (n, 1), seed (1,)."""
    out = size.new_empty((len(size), -(-length // PART), 9))
    part_sums[out.shape[1::-1]](out, size, across, rest, seed, length, PART=PART, LANES=LANES)
    once = torch.exp(out[..., :1] - out[..., :1].amax(1, keepdim=True))
    share = (once * out[..., 8:]).sum(1)
    sums, (aa, ab, bb) = (once * out[..., 1:5]).sum(1) / share, ((once**2 * out[..., 5:8]).sum(1) / share**2).unbind(-1)
    return sums.reshape(-1, 2, 2), torch.stack([aa, ab, ab, bb], -1).reshape(-1, 2, 2)
