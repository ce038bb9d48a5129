"""Triton kernel of ``fused``: imported only where Triton is.

Scores are kept in units of ln 2, so that weights are powers of two.
"""
# mypy: ignore-errors
# ruff: noqa: D103

import triton
import triton.language as tl
from triton import knobs
from triton.language.extra import libdevice

LN2 = tl.constexpr(0.6931471805599453)
TAU = tl.constexpr(6.283185307179586)
FAST = tl.constexpr(not knobs.runtime.interpret)  # the interpreter, for tests without a GPU, has no fast sine


@triton.jit
def uniform32(word):
    return word.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10


@triton.jit
def uniform64(high, low):
    bits = (high >> 5).to(tl.uint64) * 67108864 + (low >> 6).to(tl.uint64)
    return (bits.to(tl.float64) + 0.5) * 1.1102230246251565e-16


@triton.jit
def pair(u, v):
    radius = tl.sqrt(-2.0 * tl.log(u))
    angle = TAU * (v - 0.5)
    if v.dtype == tl.float32 and FAST:  # right to 2⁻²¹ between -π and π
        cosine, sine = libdevice.fast_cosf(angle), libdevice.fast_sinf(angle)
    else:
        cosine, sine = tl.cos(angle), tl.sin(angle)
    return radius * cosine, radius * sine


@triton.jit
def words(place, seed, replica, stream):
    low = (place & 0xFFFFFFFF).to(tl.uint32)
    high = (place >> 32).to(tl.uint32)
    zero = low * 0
    return tl.philox(seed, low, high, zero + replica.to(tl.uint32), zero + stream.to(tl.uint32))


@triton.jit
def chosen(table, label, LABELS: tl.constexpr):
    """Entry of a small table for each label."""
    value = tl.load(table) + label * 0.0
    for k in tl.static_range(1, LABELS):
        value = tl.where(label == k, tl.load(table + k), value)
    return value


@triton.jit
def label_of(uniform, cumulative, LABELS: tl.constexpr):
    label = (uniform * 0).to(tl.int32)
    for k in tl.static_range(0, LABELS - 1):
        label += (uniform >= tl.load(cumulative + k)).to(tl.int32)
    return label


@triton.jit
def add(xi, uniform, token, ends, sums, law, LABELS: tl.constexpr, PADDED: tl.constexpr, MASKED: tl.constexpr):
    """Take one token a lane into its running sums."""
    peak, mass, first, power = sums
    location, scale, cumulative = law
    if LABELS == 1:
        score = xi * tl.load(scale)
    else:
        label = label_of(uniform, cumulative, LABELS)
        score = chosen(location, label, LABELS) + chosen(scale, label, LABELS) * xi
    if MASKED:
        score = tl.where((token >= ends[0]) & (token < ends[1]), score, -float("inf"))
    new = tl.maximum(peak, score)
    shrink, weight = tl.exp2(peak - new), tl.exp2(score - new)
    if LABELS > 1:
        weight = tl.where(label[:, None] == tl.arange(0, PADDED)[None, :], weight[:, None], 0.0)
        shrink, xi = shrink[:, None], xi[:, None]
    return new, mass * shrink + weight, first * shrink + weight * xi, power * (shrink * shrink) + weight * weight


@triton.jit
def read(place, key, ends, sums, law, LABELS: tl.constexpr, PADDED: tl.constexpr, DOUBLE: tl.constexpr, MASKED: tl.constexpr):
    """Take the tokens of one counter a lane into its running sums."""
    seed, replica, stream = key
    a, b, c, d = words(place, seed, replica, stream)
    p, q, r, s = a, b, c, d
    if LABELS > 1:
        p, q, r, s = words(place, seed, replica, stream + 1)
    if DOUBLE:
        x0, x1 = pair(uniform64(a, b), uniform64(c, d))
        token = place * 2
        sums = add(x0, uniform64(p, q), token, ends, sums, law, LABELS, PADDED, MASKED)
        sums = add(x1, uniform64(r, s), token + 1, ends, sums, law, LABELS, PADDED, MASKED)
    else:
        x0, x1 = pair(uniform32(a), uniform32(b))
        x2, x3 = pair(uniform32(c), uniform32(d))
        token = place * 4
        sums = add(x0, uniform32(p), token, ends, sums, law, LABELS, PADDED, MASKED)
        sums = add(x1, uniform32(q), token + 1, ends, sums, law, LABELS, PADDED, MASKED)
        sums = add(x2, uniform32(r), token + 2, ends, sums, law, LABELS, PADDED, MASKED)
        sums = add(x3, uniform32(s), token + 3, ends, sums, law, LABELS, PADDED, MASKED)
    return sums


@triton.jit
def item_sums(
    out, starts, stops, location, scale, cumulative, seed, replica, stream,
    LABELS: tl.constexpr, PADDED: tl.constexpr, DOUBLE: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Sums of item program_id(0) of replica program_id(1)."""
    item, row = tl.program_id(0), tl.program_id(1)
    number = tl.float64 if DOUBLE else tl.float32
    PER: tl.constexpr = 2 if DOUBLE else 4
    start, stop = tl.load(starts + item), tl.load(stops + item)
    lane = tl.arange(0, LANES).to(tl.int64)
    zero = tl.zeros((LANES,), number) if LABELS == 1 else tl.zeros((LANES, PADDED), number)
    sums = (tl.full((LANES,), -1e30, number), zero, zero, zero)
    key, ends, law = (seed, replica + row, stream), (start, stop), (location, scale, cumulative)
    begin, end = start // PER, (stop + PER - 1) // PER
    inner = begin + (stop - start) // (PER * LANES) * LANES  # whole tiles when the item begins where a counter does
    if begin * PER != start:
        inner = begin
    for place in range(begin, inner, LANES):
        sums = read(place + lane, key, ends, sums, law, LABELS, PADDED, DOUBLE, False)
    for place in range(inner, end, LANES):
        sums = read(place + lane, key, ends, sums, law, LABELS, PADDED, DOUBLE, True)
    peak, mass, first, power = sums
    top = tl.max(peak, 0)
    shrink = tl.exp2(peak - top)
    here = out + (row.to(tl.int64) * tl.num_programs(0) + item) * (1 + 3 * LABELS)
    tl.store(here, top * LN2)
    if LABELS == 1:
        tl.store(here + 1, tl.sum(mass * shrink, 0))
        tl.store(here + 2, tl.sum(first * shrink, 0))
        tl.store(here + 3, tl.sum(power * (shrink * shrink), 0))
    else:
        k = tl.arange(0, PADDED)
        shrink = shrink[:, None]
        tl.store(here + 1 + k, tl.sum(mass * shrink, 0), mask=k < LABELS)
        tl.store(here + 1 + LABELS + k, tl.sum(first * shrink, 0), mask=k < LABELS)
        tl.store(here + 1 + 2 * LABELS + k, tl.sum(power * (shrink * shrink), 0), mask=k < LABELS)
