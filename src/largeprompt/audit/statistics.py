"""All statistics of the heads of a layer, in one pass over its scores; the attention map itself is never kept."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt import validation
from largeprompt.audit.clusters import checked_sizes, mixture_read_outs, responsibilities
from largeprompt.audit.heads import Heads, Rows, chunk_numbers
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.numerics.pareto import tail_count, tail_indices

QUERIES = 512  # whose tails are fitted at a time on the CPU


class Measured(NamedTuple):
    """What is measured of queries (batch, heads, t) on their device."""

    statistics: dict[str, Tensor]  # all but the tail index
    largest: Tensor  # largest scores, from which tail_index is made, for many layers at once
    output: Tensor  # T, shape (batch, heads, t, o)
    size: Tensor  # largest absolute score


def head_statistics(heads: Heads, positions: Tensor, components: Sequence[int] = (), sinks: int = 0) -> dict[str, Tensor]:
    """Statistics of every head at the given query positions, each of shape (batch, heads, positions), float64 on the CPU.

    With s the scores of the keys that a query may read, v their values, w = softmax(s), T = Σ w v the head's output and cumulants κ
    over these keys (all weighing the same; with position biases b as e^b, and s then the scores without them),

        mean      T̂₁ = κ(v)                                          nothing but the mean value
        affine    T̂₂ = T̂₁ + κ(v, s)                                  the infinite Gaussian prompt with the same moments
        third     T̂₃ = T̂₂ + κ(v, s, s)/2                              the cumulant ladder along the tilt
        fourth    T̂₄ = T̂₃ + κ(v, s, s, s)/6
        mixture_K                                                    a Gaussian mixture of K components (see clusters)

    and the same for the log-normaliser log mean e^s = κ(s) + κ(s,s)/2 + κ(s,s,s)/6 + ... Errors ``*_error`` are ‖T - T̂‖², squared,
    to be divided by ``output`` = ‖T‖² or ``deviation`` = ‖T - T̂₁‖²; ``mass_*`` are differences of the log-normalisers.

    Parameters
    ----------
    heads
        Inputs of one attention layer.
    positions
        Which queries to look at, shape (positions,).
    components
        Sizes K of the Gaussian mixtures that are tried.
    sinks
        First tokens that mixtures read exactly.

    Returns
    -------
    dict of str to Tensor
        Each statistic by its name.
    """
    validation.instance("heads", heads, Heads, "Heads(query, key, value, mask, scale)")
    components, sinks = checked_sizes(components), validation.integer("sinks", sinks, minimum=0)
    positions = validation.indices("positions", positions, heads.query.shape[2])
    if positions.dim() != 1 or not len(positions):
        raise InvalidArgumentError(
            "positions", f"shape {validation.shape_text(positions.shape)}", "one or more, shape (positions,)"
        )
    ahead = heads.key.shape[2] - heads.query.shape[2] + 1
    reach = (positions + ahead).tolist() if heads.causal and heads.mask is None else None
    found = measured(heads.at(positions.to(heads.query.device)), components, sinks, reach, heads.present)
    everything = found.statistics | {"tail_index": tail_index(found.statistics["tokens"], found.largest)}
    return {name: each.cpu().to(torch.float64) for name, each in everything.items()}


def measured(
    heads: Heads, components: tuple[int, ...], sinks: int, reach: Sequence[int] | None = None, present: Tensor | None = None
) -> Measured:
    """Statistics of all the queries, without waiting for the device.

    ``reach`` says for each query how many first keys hold all that it may read, None for all keys; ``present`` which tokens
    mixtures are fitted to.
    """
    heads = dataclasses.replace(heads, key=heads.key.to(heads.wide), value=heads.value.to(heads.wide))
    tokens = responsibilities(heads, components, sinks, present=present) if components else {}
    doubled, groups = _doubled(heads.value), heads.groups
    t, s = heads.query.shape[2], heads.key.shape[2]
    together = max(1, chunk_numbers(heads) // (heads.batch * heads.count // groups * t * s))  # groups whose queries fit in a chunk
    parts = []
    for start in range(0, groups, together):
        some = slice(start, start + together)
        part = heads if together >= groups else heads.some_groups(start, min(start + together, groups))
        parts.append(_some_statistics(part, doubled[:, some], {count: each[:, some] for count, each in tokens.items()}, reach))
    return _joined(parts, 1)


def _some_statistics(heads: Heads, doubled: Tensor, tokens: dict[int, Tensor], reach: Sequence[int] | None) -> Measured:
    """:func:`measured` in pieces of a few queries, each before those keys that they may read."""
    t, s = heads.query.shape[2], heads.key.shape[2]
    ends = [s] * t if reach is None else reach
    width, room = _kept(s), chunk_numbers(heads) // (heads.batch * heads.count)
    parts, stop = list[Measured](), 0
    while stop < t:
        start, keys = stop, 0
        while stop < t and (stop == start or (stop - start + 1) * max(keys, ends[stop]) <= room):
            keys, stop = max(keys, ends[stop]), stop + 1
        part = heads.queries(start, stop, keys) if stop - start < t or keys < s else heads
        rows = part.scored(0 if reach is None else min(ends[start:stop]))
        members = {count: member[:, :, :keys] for count, member in tokens.items()}
        parts.append(_row_statistics(rows, doubled[:, :, :keys], members, width))
    return _joined(parts, 2)


def _joined(parts: list[Measured], dim: int) -> Measured:
    if len(parts) == 1:
        return parts[0]
    found, *others = zip(*parts, strict=True)
    return Measured(
        {name: torch.cat([each[name] for each in found], dim) for name in found[0]}, *(torch.cat(each, dim) for each in others)
    )


def _kept(keys: int) -> int:
    """Largest scores that the tail of so many keys takes."""
    return min(tail_count(keys) + 1, keys)


def tail_index(number: Tensor, largest: Tensor) -> Tensor:
    """k-hat of the largest weights of queries, fitted to the tail that the number of their keys allows."""
    number = number.to(torch.float64)
    tails = torch.minimum(torch.ceil(number / 5), torch.floor(torch.sqrt(9 * number - 1)) + 1)  # as tail_count
    tails = torch.where(number > 1, tails, 0.0)
    if largest.device.type != "cpu" or largest.shape[2] <= QUERIES:
        return tail_indices(largest, tails)
    pieces = zip(largest.split(QUERIES, 2), tails.split(QUERIES, 2), strict=True)  # early ones have shorter tails
    return torch.cat([tail_indices(each[..., each.amax((0, 1, 2)) != -torch.inf], tail) for each, tail in pieces], 2)


def _row_statistics(rows: Rows, doubled: Tensor, tokens: dict[int, Tensor], width: int) -> Measured:
    number, shape = rows.number(), rows.scores.shape[:-1]
    mean_score, centred = rows.centred()
    rows = dataclasses.replace(rows, scores=centred)  # from which nothing else differs

    def squared(difference: Tensor) -> Tensor:
        return difference.square().sum(-1)

    def average(weights: Tensor) -> Tensor:
        return rows.read(weights) / number[..., None]

    lowest, first = centred.amin(-1), average(rows.weighted(centred))
    whole = rows.forbid(centred if rows.bias is None else centred + rows.bias, -torch.inf)  # the scores themselves for a while
    weights, largest = torch.softmax(whole, -1), _largest(whole, width)
    highest, top = largest.amax(-1), weights.amax(-1)
    normaliser = highest - torch.log(top)  # log Σ e^{s + b} with the mean of s taken off
    entropy = (weights * (normaliser[..., None] - rows.forbid(whole))).sum(-1)
    own = number if rows.bias is None else rows.only_allowed(rows.bias, -torch.inf).logsumexp(-1).exp()  # Σ e^b
    excess = normaliser - torch.log(own)
    output = rows.read(weights)
    size = torch.maximum((mean_score + highest).abs(), (mean_score + lowest).abs())
    del whole
    sandwich, collision = _sandwich(rows, weights.square_(), output, doubled)
    del weights
    total = rows.total(doubled) / number[..., None]
    mean, spread = total[..., :-1].to(centred.dtype), (total[..., -1] - squared(total[..., :-1])).clamp_min(0.0)
    square = centred.square()
    fourth_score = rows.weighted(square.square()).sum(-1) / number
    square = rows.weighted(square)
    variance, second = square.sum(-1) / number, average(square)
    cube = square.mul_(centred)
    third_score, third = cube.sum(-1) / number, average(cube)
    del square, cube
    fourth_score = fourth_score - 3 * variance.square()
    second = second - variance[..., None] * mean
    third = third - third_score[..., None] * mean - 3 * variance[..., None] * first
    beyond_mean = output - mean
    beyond_affine = beyond_mean - first
    beyond_third = beyond_affine - second / 2
    vectors = [output, beyond_mean, first, beyond_affine, beyond_third, beyond_third - third / 6]
    length, deviation, tilt, affine_error, third_error, fourth_error = squared(torch.stack(vectors))
    found = {
        "tokens": number.expand(shape),
        "weighed_tokens": (number if rows.bias is None else number**2 / rows.everyone().square().sum(-1)).expand(shape),
        "score_mean": mean_score,
        "score_variance": variance,
        "score_skewness": third_score / variance.clamp_min(1e-30).pow(1.5),
        "score_kurtosis": fourth_score / variance.clamp_min(1e-30).square(),
        "collision": collision,
        "entropy": entropy,
        "largest_weight": top,
        "sandwich": sandwich,
        "output": length,
        "deviation": deviation,
        "value_spread": spread.expand(shape),
        "tilt": tilt,
        "mean_square": squared(mean).expand(shape),
        "mean_tilt": (mean * first).sum(-1),
        "mean_error": deviation,
        "affine_error": affine_error,
        "affine_direction": torch.nn.functional.cosine_similarity(output, mean + first, dim=-1),
        "third_error": third_error,
        "fourth_error": fourth_error,
        "mass_mean": excess,
        "mass_affine": excess - variance / 2,
        "mass_third": excess - variance / 2 - third_score / 6,
        "mass_fourth": excess - variance / 2 - third_score / 6 - fourth_score / 24,
    }
    for count, (read, mass) in zip(tokens, mixture_read_outs(rows, list(tokens.values())) if tokens else (), strict=True):
        found[f"mixture_{count}_error"] = squared(output - read)
        found[f"mass_mixture_{count}"] = excess - mass
    return Measured(found, largest, output, size)


def _largest(scores: Tensor, width: int) -> Tensor:
    """The largest scores of each query that their tail takes, in any order, then minus infinity: (batch, heads, t, width)."""
    kept = _kept(scores.shape[-1])
    if scores.device.type == "cpu":  # NumPy's selection is several times faster than topk
        found = torch.from_numpy(_selected(scores.flatten(0, 2).numpy(), kept)).unflatten(0, scores.shape[:3])
    else:
        found = scores.topk(kept, dim=-1, sorted=False).values
    return torch.nn.functional.pad(found, (0, width - kept), value=-torch.inf) if kept < width else found


def _selected(rows: NDArray[Any], kept: int) -> NDArray[Any]:
    """The so many largest of each row, in any order.

    As many of twice as many groups have a largest entry that is not below some bound, so that nothing below it is asked for: what
    is left to select from is little more than what is kept.
    """
    size = rows.shape[1] // (2 * kept)
    if size > 4:  # else most of them are left
        highest = rows[:, : 2 * kept * size].reshape(len(rows), size, 2 * kept).max(1)
        wanted = rows >= np.partition(highest, kept, -1)[:, kept, None]
        number = wanted.sum(1)
        candidates = np.full((len(rows), max(kept, number.max())), -np.inf, rows.dtype)
        candidates[np.arange(candidates.shape[1]) < number[:, None]] = rows[wanted]
        rows = candidates
    cut = rows.shape[1] - kept
    return np.partition(rows, cut, -1)[:, cut:].copy()


def _doubled(value: Tensor) -> Tensor:
    """Values and their squared lengths side by side, (batch, groups, S, o + 1), in double precision where the device has it."""
    wide = torch.float32 if value.device.type == "mps" else torch.float64
    found = value.new_empty((*value.shape[:-1], value.shape[-1] + 1), dtype=wide)
    found[..., :-1] = value
    found[..., -1] = torch.linalg.vecdot(found[..., :-1], found[..., :-1])
    return found


def _sandwich(rows: Rows, twice: Tensor, output: Tensor, doubled: Tensor) -> tuple[Tensor, Tensor]:
    """Σ w² ‖v - T‖², whose terms cancel where few tokens are read: in the precision of ``doubled``; and Σ w²."""
    halves = zip(twice.chunk(2), doubled.chunk(2), strict=True)  # of the texts or layers, for numbers of double size
    read = torch.cat([rows.read(each.to(doubled.dtype), values) for each, values in halves])
    collision, output = twice.sum(-1, dtype=doubled.dtype), output.to(doubled.dtype)
    found = read[..., -1] - 2 * (read[..., :-1] * output).sum(-1) + collision * output.square().sum(-1)
    return found.clamp_min(0.0), collision
