"""Triton kernels of ``subsets`` and ``clusters``: imported only where Triton is."""
# mypy: ignore-errors

import functools

import torch
import triton
import triton.language as tl

BLOCK = 32  # keys at a time
ENDS = tl.constexpr(2)  # keys that every subset has, as in subsets


@triton.jit
def subset_sums(
    scores, value, order, cells, squares, queries, keys, listed, width, share,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One subset of the keys of one query, for all heads of a group, whose values are read once."""
    group, query, cell = tl.program_id(2), tl.program_id(1), tl.program_id(0)
    size, first = tl.load(cells + 2 * cell), tl.load(cells + 2 * cell + 1)
    row = tl.arange(0, ROWS)  # a row for what is missed by each head, then one for the output of each
    used, head = row < 2 * share, group.to(tl.int64) * share + row % share
    line = scores + (head * queries + query) * keys
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    total, summed = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32)
    start = 0
    while start < size:
        place = start + tl.arange(0, BLOCK)
        real = place < size
        key = tl.load(order + query.to(tl.int64) * listed + tl.where(place < ENDS, place, place + first), mask=real, other=0)
        score = tl.load(line[:, None] + key[None], mask=real[None] & used[:, None], other=0.0)
        before = highest
        highest = tl.maximum(highest, tl.max(tl.where(real[None], score, float("-inf")), 1))
        total = total * tl.exp(before - highest) + tl.sum(tl.where(real[None], tl.exp(score - highest[:, None]), 0.0), 1)
        summed += tl.sum(score, 1)
        start += BLOCK
    mean = summed / size
    column = tl.arange(0, WIDTH)
    read = tl.zeros((ROWS, WIDTH), tl.float32)
    start = 0
    while start < size:
        place = start + tl.arange(0, BLOCK)
        real = place < size
        key = tl.load(order + query.to(tl.int64) * listed + tl.where(place < ENDS, place, place + first), mask=real, other=0)
        score = tl.load(line[:, None] + key[None], mask=real[None] & used[:, None], other=0.0)
        weight = tl.exp(score - highest[:, None]) / total[:, None]
        affine = tl.where(row[:, None] < share, (1 + score - mean[:, None]) / size, 0.0)
        weight = tl.where(real[None] & used[:, None], weight - affine, 0.0)
        at = (group.to(tl.int64) * keys + key)[:, None] * width + column[None]
        tokens = tl.load(value + at, mask=real[:, None] & (column < width)[None], other=0.0)
        read += tl.dot(weight, tokens, input_precision="ieee")
        start += BLOCK
    place = ((row // share * tl.num_programs(2) * share + head) * queries + query) * tl.num_programs(0) + cell
    tl.store(squares + place, tl.sum(read * read, 1), mask=used)


def launch(scores: torch.Tensor, value: torch.Tensor, order: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """‖Σ [w - (1 + s)/n] v‖² and ‖Σ w v‖² over the cells (size, offset in the order) of the keys: (2, batch, heads, t, cells).

    ``scores`` (batch, heads, t, S) and ``value`` (batch, groups, S, o) are in float32, and ``order`` is of shape (t, keys).
    """
    b, h, t, keys = scores.shape
    groups, width = value.shape[1], value.shape[3]
    squares = scores.new_empty(2, b, h, t, len(cells))
    rows, columns = (max(16, triton.next_power_of_2(each)) for each in (2 * h // groups, width))
    given = scores.contiguous(), value.contiguous(), order.contiguous(), cells, squares
    subset_sums[len(cells), t, b * groups](
        *given, t, keys, order.shape[1], width, h // groups, ROWS=rows, BLOCK=BLOCK, WIDTH=columns
    )
    return squares


@triton.jit
def expectation(
    log_joint, member, weight, mixtures, going, levels, components, tokens, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Softmax over the components of one mixture, for some of the tokens of one item."""
    block, fit, item = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    first, count = tl.load(mixtures + 2 * fit), tl.load(mixtures + 2 * fit + 1)
    row, token = tl.arange(0, ROWS), block * BLOCK + tl.arange(0, BLOCK)
    here = token < tokens
    real = (row < count)[:, None] & here[None]
    at = (item * components + first + row)[:, None] * tokens + token[None]
    joint = tl.load(log_joint + at, mask=real, other=float("-inf"))
    highest = tl.where(here, tl.max(joint, 0), 0.0)
    share = tl.exp(joint - highest[None])
    norm = tl.where(here, tl.sum(share, 0), 1.0)
    own = tl.load(weight + item * tokens + token, mask=here, other=0.0)
    place = item * tl.num_programs(1) + fit
    tl.store(levels + place * tl.num_programs(0) + block, tl.sum((highest + tl.log(norm)) * own, 0))
    climbs = (0 * row + tl.load(going + place).to(tl.int32)) != 0  # as an array: the interpreter takes no other mask
    tl.store(member + at, share * (own / norm)[None], mask=real & climbs[:, None])


@functools.lru_cache(maxsize=64)
def _table(counts: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """First component and number of components of each mixture."""
    return torch.tensor([(sum(counts[:place]), count) for place, count in enumerate(counts)], dtype=torch.int32, device=device)


def launch_expectation(
    log_joint: torch.Tensor, member: torch.Tensor, weight: torch.Tensor, counts: list[int], going: torch.Tensor
) -> torch.Tensor:
    """Responsibilities into ``member`` (n, components, S) where mixtures are ``going``; their log-likelihoods, (n, mixtures)."""
    n, components, tokens = log_joint.shape
    rows = max(2, triton.next_power_of_2(max(counts)))
    block = max(32, 4096 // rows)
    grid = triton.cdiv(tokens, block), len(counts), n
    levels = log_joint.new_empty(n, len(counts), grid[0])
    given = log_joint, member, weight.contiguous(), _table(tuple(counts), log_joint.device), going.to(torch.uint8), levels
    expectation[grid](*given, components, tokens, ROWS=rows, BLOCK=block)
    return levels.sum(-1)
