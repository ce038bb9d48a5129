"""Triton kernels of ``fused``: imported only where Triton is.

``segment_sums`` keeps scores in units of ln 2, so that weights are powers of two.
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
def scored(xi, uniform, law, LABELS: tl.constexpr, UNIT: tl.constexpr):
    """Score of each token, times UNIT, and its label."""
    location, scale, cumulative = law
    if LABELS == 1:
        label = (xi * 0).to(tl.int32)
        score = xi * (tl.load(scale) * UNIT)
    else:
        label = label_of(uniform, cumulative, LABELS)
        score = (chosen(location, label, LABELS) + chosen(scale, label, LABELS) * xi) * UNIT
    return score, label


@triton.jit
def add(xi, uniform, token, ends, sums, law, LABELS: tl.constexpr, PADDED: tl.constexpr, MASKED: tl.constexpr):
    """Take one token a lane into its running sums."""
    peak, mass, first, power = sums
    score, label = scored(xi, uniform, law, LABELS, 1 / LN2)
    if MASKED:
        score = tl.where((token >= ends[0]) & (token < ends[1]), score, -float("inf"))
    new = tl.maximum(peak, score)
    shrink, weight = tl.exp2(peak - new), tl.exp2(score - new)
    if LABELS > 1:
        weight = tl.where(label[None, :] == tl.arange(0, PADDED)[:, None], weight[None, :], 0.0)
        shrink, xi = shrink[None, :], xi[None, :]
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


@triton.jit(do_not_specialize=["seed", "replica", "query"])
def segment_sums(
    out, starts, stops, location, scale, cumulative, seed, replica, query,
    LABELS: tl.constexpr, PADDED: tl.constexpr, DOUBLE: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Sums of segment program_id(0) of replica program_id(1), for query program_id(2)."""
    segment, row, asked = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    number = tl.float64 if DOUBLE else tl.float32
    PER: tl.constexpr = 2 if DOUBLE else 4
    start, stop = tl.load(starts + segment), tl.load(stops + segment)
    lane = tl.arange(0, LANES).to(tl.int64)
    zero = tl.zeros((LANES,), number) if LABELS == 1 else tl.zeros((PADDED, LANES), number)  # labels in a lane
    sums = (tl.full((LANES,), -1e30, number), zero, zero, zero)
    key, ends = (seed, replica + row, 2 * (query + asked)), (start, stop)
    law = location + asked * LABELS, scale + asked * LABELS, cumulative
    begin, end = start // PER, (stop + PER - 1) // PER
    inner = begin + (stop - start) // (PER * LANES) * LANES  # whole tiles when the segment begins where a counter does
    if begin * PER != start:
        inner = begin
    for place in range(begin, inner, LANES):
        sums = read(place + lane, key, ends, sums, law, LABELS, PADDED, DOUBLE, False)
    for place in range(inner, end, LANES):
        sums = read(place + lane, key, ends, sums, law, LABELS, PADDED, DOUBLE, True)
    peak, mass, first, power = sums
    top = tl.max(peak, 0)
    shrink = tl.exp2(peak - top)
    place = (asked * tl.num_programs(1) + row).to(tl.int64) * tl.num_programs(0) + segment
    here = out + place * (1 + 3 * LABELS)
    tl.store(here, top * LN2)
    if LABELS == 1:
        tl.store(here + 1, tl.sum(mass * shrink, 0))
        tl.store(here + 2, tl.sum(first * shrink, 0))
        tl.store(here + 3, tl.sum(power * (shrink * shrink), 0))
    else:
        k = tl.arange(0, PADDED)
        shrink = shrink[None, :]
        tl.store(here + 1 + k, tl.sum(mass * shrink, 1), mask=k < LABELS)
        tl.store(here + 1 + LABELS + k, tl.sum(first * shrink, 1), mask=k < LABELS)
        tl.store(here + 1 + 2 * LABELS + k, tl.sum(power * (shrink * shrink), 1), mask=k < LABELS)


@triton.jit
def in_order(a, b, c, d, DOUBLE: tl.constexpr):
    """The numbers of each counter side by side: (n,) each -> (n, 4), or (n, 2) of doubles, which c and d are not."""
    return tl.join(a, b) if DOUBLE else tl.join(tl.join(a, c), tl.join(b, d)).reshape(a.shape[0], 4)


@triton.jit
def normals(place, seed, replica, stream, DOUBLE: tl.constexpr):
    a, b, c, d = words(place, seed, replica, stream)
    if DOUBLE:
        x, y = pair(uniform64(a, b), uniform64(c, d))
        z, w = x, y
    else:
        x, y = pair(uniform32(a), uniform32(b))
        z, w = pair(uniform32(c), uniform32(d))
    return in_order(x, y, z, w, DOUBLE)


@triton.jit
def uniforms(place, seed, replica, stream, DOUBLE: tl.constexpr):
    a, b, c, d = words(place, seed, replica, stream)
    if DOUBLE:
        x, y = uniform64(a, b), uniform64(c, d)
        z, w = x, y
    else:
        x, y, z, w = uniform32(a), uniform32(b), uniform32(c), uniform32(d)
    return in_order(x, y, z, w, DOUBLE)


@triton.jit
def summed(sums, segment, inside, label, LABELS: tl.constexpr):
    """Peak, mass, first and power of the segments that are inside."""
    at = sums + segment.to(tl.int64) * (1 + 3 * LABELS)
    peak = tl.load(at, mask=inside, other=-1e30)
    mass = tl.load(at + 1 + label, mask=inside, other=0.0)
    first = tl.load(at + 1 + LABELS + label, mask=inside, other=0.0)
    power = tl.load(at + 1 + 2 * LABELS + label, mask=inside, other=0.0)
    return peak, mass, first, power


@triton.jit
def split(peak, power, y):
    """Normals of the parts of a segment, from y (parts, dimensions); see ``reflected``."""
    share = power * tl.exp(2 * (peak - tl.max(peak, 0)))
    total = tl.sum(share, 0)
    v = tl.sqrt(share / tl.where(total > 0, total, 1.0))[:, None]
    first = (tl.arange(0, y.shape[0]) == 0)[:, None]
    v1 = tl.sum(tl.where(first, v, 0.0), 0)
    mixed = ((tl.sum(tl.where(first, y, 0.0), 0) + tl.sum(v * y, 0)) / (1 + v1))[None]
    return v * mixed - y + tl.where(first, mixed, 0.0)


@triton.jit
def taken(state, segments, x, inside):
    """State with the segments that are inside."""
    peak, mass, first, residual = state
    heights, masses, firsts, powers = segments
    heights = tl.where(inside, heights, -1e30)
    new = tl.maximum(peak, tl.max(heights, 0))
    shrink, relative = tl.exp(peak - new), tl.where(inside, tl.exp(heights - new), 0.0)
    root = relative * tl.sqrt(powers)
    return (
        new,
        mass * shrink + tl.sum(relative * masses, 0),
        first * shrink + tl.sum(relative * firsts, 0),
        residual * shrink + tl.sum(root[:, None] * x, 0),
    )


@triton.jit(do_not_specialize=["seed", "residual_seed", "rows", "replica", "query", "count"])
def prefix_sums(
    out_peak, out_mass, out_first, out_residual, sums, starts, lengths, whole, parts, location, scale, cumulative,
    seed, residual_seed, rows, replica, query, count, dim,
    LABELS: tl.constexpr, DOUBLE: tl.constexpr, ITEM: tl.constexpr, PART: tl.constexpr, TILE: tl.constexpr,
    GROUPS: tl.constexpr,
):  # fmt: skip
    """Sums of one replica for one query up to length program_id(1), of one label, with up to GROUPS groups of the residual."""
    pair_of, index, column = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    number = tl.float64 if DOUBLE else tl.float32
    PER: tl.constexpr = 2 if DOUBLE else 4
    INSIDE: tl.constexpr = ITEM // PART
    groups = (dim + PER - 1) // PER
    label, begin_group = column % LABELS, column // LABELS * GROUPS
    asked, here = pair_of // rows, replica + pair_of % rows
    law = location + asked * LABELS, scale + asked * LABELS, cumulative
    length, items, at = tl.load(lengths + index), tl.load(whole + index), tl.load(parts + index)
    sums += pair_of * count * (1 + 3 * LABELS)
    first_item, longest = tl.load(starts) // ITEM, tl.load(lengths + tl.num_programs(1) - 1)
    item = first_item + items
    reached = ((length - item * ITEM) // PART).to(tl.int32)
    start = (item * INSIDE + reached) * PART
    part, token = tl.arange(0, INSIDE), start + tl.arange(0, PART)
    xi, score, own = tl.zeros((PART,), number), tl.zeros((PART,), number), tl.zeros((PART,), number)
    if (at >= 0) & (start < length):  # tokens of the part that the length ends in
        stream = 2 * (query + asked)
        place = start // PER + tl.arange(0, PART // PER)
        xi = normals(place, seed, here, stream, DOUBLE).reshape(PART)
        uniform = xi
        if LABELS > 1:
            uniform = uniforms(place, seed, here, stream + 1, DOUBLE).reshape(PART)
        score, labels = scored(xi, uniform, law, LABELS, 1.0)
        own = tl.where((labels == label) & (token < longest), 1.0, 0.0).to(number)
        score = tl.where(token < longest, score, -1e30)
    for group in range(begin_group, tl.minimum(begin_group + GROUPS, groups)):
        stream = ((query + asked) * LABELS + label) * groups + group
        zero = tl.full((), 0.0, number)
        state = (zero - 1e30, zero, zero, tl.zeros((PER,), number))
        for begin in range(0, items, TILE):
            segment = begin + tl.arange(0, TILE)
            inside = segment < items
            x = normals((first_item + segment) * 4, residual_seed, here, stream, DOUBLE)
            state = taken(state, summed(sums, segment, inside, label, LABELS), x, inside)
        if at >= 0:
            places = tl.where(part == 0, item * 4, (item * INSIDE + part) * 4 + 1)  # the first is given what the item has
            known = summed(sums, at + part, part >= 0, label, LABELS)
            x = split(known[0], known[3], normals(places, residual_seed, here, stream, DOUBLE))
            state = taken(state, known, x, part < reached)
            if start < length:
                given = tl.sum(tl.where((part == reached)[:, None], x, 0.0), 0)
                y = normals(token * 4 + 2, residual_seed, here, stream, DOUBLE)
                y = tl.where((token == start)[:, None], given[None], y)
                state = taken(state, (score, own, own * xi, own), split(score, own, y), token < length)
        peak, mass, first, residual = state
        place_out = pair_of * tl.num_programs(1) + index
        if group == 0:
            tl.store(out_mass + place_out * LABELS + label, mass)
            tl.store(out_first + place_out * LABELS + label, first)
            if label == 0:
                tl.store(out_peak + place_out, peak)
        dimension = group * PER + tl.arange(0, PER)
        tl.store(out_residual + (place_out * LABELS + label) * dim + dimension, residual, mask=dimension < dim)
