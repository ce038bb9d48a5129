"""All statistics of the heads of a layer, in one pass over its scores; the attention map itself is
never kept.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from largeprompt import validation
from largeprompt.audit.clusters import checked_sizes, mixture_read_outs, responsibilities
from largeprompt.audit.heads import Heads, Rows, chunk_numbers
from largeprompt.audit.prefix import FirstOrder, Prefix, first_order
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.numerics.pareto import tail_count, tail_indices


class Around(NamedTuple):
    """A point amid the values of each group, (batch, groups, 1, o), and their squared distances
    from it, (batch, groups, S, 1).
    """

    centre: Tensor
    lengths: Tensor


class Measured(NamedTuple):
    """What is measured of queries (batch, heads, t) on their device."""

    statistics: dict[str, Tensor]
    output: Tensor  # T, shape (batch, heads, t, o)
    size: Tensor  # largest absolute score


def head_statistics(
    heads: Heads, positions: Tensor, components: Sequence[int] = (), sinks: int = 0
) -> dict[str, Tensor]:
    """Statistics of every head at the given query positions, each of shape (batch, heads,
    positions), float64 on the CPU.

    With s the scores of the keys that a query may read, v their values, w = softmax(s), T = Σ w v
    the head's output and cumulants κ over these keys (all weighing the same; with position biases b
    as e^b, and s then the scores without them),

        mean T̂₁ = κ(v) nothing but the mean value affine T̂₂ = T̂₁ + κ(v, s) the infinite Gaussian
        prompt with the same moments third T̂₃ = T̂₂ + κ(v, s, s)/2 the cumulant ladder along the
        tilt fourth T̂₄ = T̂₃ + κ(v, s, s, s)/6 mixture_K a Gaussian mixture of K components (see
        clusters)

    and the same for the log-normaliser log mean e^s = κ(s) + κ(s,s)/2 + κ(s,s,s)/6 + ... Errors
    ``*_error`` are ‖T - T̂‖², squared, to be divided by ``output`` = ‖T‖² or ``deviation`` = ‖T -
    T̂₁‖²; ``mass_*`` are differences of the log-normalisers.

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
            "positions",
            f"shape {validation.shape_text(positions.shape)}",
            "one or more, shape (positions,)",
        )
    ahead = heads.key.shape[2] - heads.query.shape[2] + 1
    reach = (positions + ahead).tolist() if heads.causal and heads.mask is None else None
    found = measured(
        heads.at(positions.to(heads.query.device)), components, sinks, reach, heads.present
    )
    return {name: each.cpu().to(torch.float64) for name, each in found.statistics.items()}


def measured(
    heads: Heads,
    components: tuple[int, ...],
    sinks: int,
    reach: Sequence[int] | None = None,
    present: Tensor | None = None,
) -> Measured:
    """Statistics of all the queries, without waiting for the device.

    ``reach`` says for each query how many first keys hold all that it may read, None for all keys;
    ``present`` which tokens mixtures are fitted to.
    """
    heads = dataclasses.replace(
        heads, key=heads.key.to(heads.wide), value=heads.value.to(heads.wide)
    )
    tokens = responsibilities(heads, components, sinks, present=present) if components else {}
    doubled, centre, groups = _doubled(heads.value), heads.value.mean(2, keepdim=True), heads.groups
    lengths = (heads.value - centre).square().sum(-1, keepdim=True)
    t, s = heads.query.shape[2], heads.key.shape[2]
    # groups whose queries fit in a chunk
    together = max(1, chunk_numbers(heads) // (heads.batch * heads.count // groups * t * s))
    parts = []
    for start in range(0, groups, together):
        some = slice(start, start + together)
        part = (
            heads if together >= groups else heads.some_groups(start, min(start + together, groups))
        )
        members = {count: each[:, some] for count, each in tokens.items()}
        around = Around(centre[:, some], lengths[:, some])
        parts.append(_some_statistics(part, around, doubled[:, some], members, reach))
    return _joined(parts, 1)


def _some_statistics(
    heads: Heads,
    around: Around,
    doubled: Tensor,
    tokens: dict[int, Tensor],
    reach: Sequence[int] | None,
) -> Measured:
    """:func:`measured` in pieces of a few queries, each before those keys that they may read."""
    t, s = heads.query.shape[2], heads.key.shape[2]
    ends = [s] * t if reach is None else reach
    room = chunk_numbers(heads) // (heads.batch * heads.count)
    parts, stop, prefix = list[Measured](), 0, Prefix(0, doubled.new_zeros(()))
    while stop < t:
        start, keys = stop, 0
        while stop < t and (stop == start or (stop - start + 1) * max(keys, ends[stop]) <= room):
            keys, stop = max(keys, ends[stop]), stop + 1
        part = heads.queries(start, stop, keys) if stop - start < t or keys < s else heads
        rows = part.scored(0 if reach is None else min(ends[start:stop]))
        members = {count: member[:, :, :keys] for count, member in tokens.items()}
        seen = doubled[:, :, :keys]
        # else it takes longer
        if rows.first > max(heads.key.shape[-1], keys // 2) and heads.cap is None:
            prefix = prefix.extended(rows.first, heads.key, doubled)
            first = prefix.first_order(part, rows, seen)
        else:
            first = first_order(rows, seen)
        parts.append(
            _row_statistics(
                rows, first, around._replace(lengths=around.lengths[:, :, :keys]), members
            )
        )
    return _joined(parts, 2)


def _joined(parts: list[Measured], dim: int) -> Measured:
    if len(parts) == 1:
        return parts[0]
    found, *others = zip(*parts, strict=True)
    return Measured(
        {name: torch.cat([each[name] for each in found], dim) for name in found[0]},
        *(torch.cat(each, dim) for each in others),
    )


def _tail_index(number: Tensor, largest: Tensor) -> Tensor:
    """k-hat of the largest weights of queries, fitted to the tail that the number of their keys
    allows.
    """
    number = number.to(torch.float64)
    # as tail_count
    tails = torch.minimum(torch.ceil(number / 5), torch.floor(torch.sqrt(9 * number - 1)) + 1)
    return tail_indices(largest, torch.where(number > 1, tails, 0.0).expand(largest.shape[:-1]))


def _row_statistics(
    rows: Rows, known: FirstOrder, around: Around, tokens: dict[int, Tensor]
) -> Measured:
    number, shape = rows.number(), rows.scores.shape[:-1]
    mean_score, centred, first, total = known
    rows = dataclasses.replace(rows, scores=centred)  # from which nothing else differs

    def squared(difference: Tensor) -> Tensor:
        return difference.square().sum(-1)

    def average(weights: Tensor) -> Tensor:
        return rows.read(weights) / number[..., None]

    mean, spread = (
        total[..., :-1].to(centred.dtype),
        (total[..., -1] - squared(total[..., :-1])).clamp_min(0.0),
    )
    lowest, power = centred.amin(-1), centred.square()
    square = rows.weighted(power)
    variance, second = square.sum(-1) / number, average(square)
    fourth_score = torch.linalg.vecdot(square, power) / number - 3 * variance.square()
    cube = square.mul_(centred)
    third_score, third = cube.sum(-1) / number, average(cube)
    del power, square, cube
    second = second - variance[..., None] * mean
    third = third - third_score[..., None] * mean - 3 * variance[..., None] * first
    # the scores themselves for a while
    whole = rows.forbid(centred if rows.bias is None else centred + rows.bias, -torch.inf)
    weights, largest = torch.softmax(whole, -1), _largest(whole)
    place = _places(weights)
    highest, top = largest.amax(-1), weights.gather(-1, place)
    # log Σ e^{s + b} with the mean of s taken off
    normaliser = highest - torch.log(top.squeeze(-1))
    entropy = (weights * (normaliser[..., None] - rows.forbid(whole))).sum(-1)
    # Σ e^b
    own = (
        number
        if rows.bias is None
        else rows.only_allowed(rows.bias, -torch.inf).logsumexp(-1).exp()
    )
    excess = normaliser - torch.log(own)
    size = torch.maximum((mean_score + highest).abs(), (mean_score + lowest).abs())
    del whole
    output = rows.read(weights)
    sandwich, collision = _sandwich(rows, weights, place, output, around)
    del weights
    beyond_mean = output - mean
    beyond_affine = beyond_mean - first
    beyond_third = beyond_affine - second / 2
    vectors = [output, beyond_mean, first, beyond_affine, beyond_third, beyond_third - third / 6]
    length, deviation, tilt, affine_error, third_error, fourth_error = squared(torch.stack(vectors))
    found = {
        "tokens": number.expand(shape),
        "weighed_tokens": (
            number if rows.bias is None else number**2 / rows.everyone().square().sum(-1)
        ).expand(shape),
        "score_mean": mean_score,
        "score_variance": variance,
        "score_skewness": third_score / variance.clamp_min(1e-30).pow(1.5),
        "score_kurtosis": fourth_score / variance.clamp_min(1e-30).square(),
        "collision": collision,
        "entropy": entropy,
        "largest_weight": top.squeeze(-1),
        "tail_index": _tail_index(number, largest),
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
    for count, (read, mass) in zip(
        tokens, mixture_read_outs(rows, list(tokens.values())) if tokens else (), strict=True
    ):
        found[f"mixture_{count}_error"] = squared(output - read)
        found[f"mass_mixture_{count}"] = excess - mass
    return Measured(found, output, size)


def _largest(scores: Tensor) -> Tensor:
    """The largest scores of each query that the tail of all keys takes, in any order: (batch,
    heads, t, that number).
    """
    kept = min(tail_count(scores.shape[-1]) + 1, scores.shape[-1])
    if scores.device.type == "cpu":  # NumPy's selection is several times faster
        return torch.from_numpy(_selected(scores.numpy(), kept))
    return scores.topk(kept, dim=-1, sorted=False).values


def _selected(rows: NDArray[Any], kept: int) -> NDArray[Any]:
    """The so many largest of each row, in any order."""
    turned = -rows  # NumPy is many times slower where the ties of forbidden keys come first
    turned.partition(kept - 1, -1)
    return -turned[..., :kept]


def _places(weights: Tensor) -> Tensor:
    """Where the largest weight of each query is, shape (batch, heads, t, 1)."""
    if weights.device.type == "cpu":  # NumPy's search is many times faster
        return torch.from_numpy(weights.numpy().argmax(-1, keepdims=True))
    return weights.argmax(-1, keepdim=True)


def _doubled(value: Tensor) -> Tensor:
    """Values and their squared lengths side by side, (batch, groups, S, o + 1), in double precision
    where the device has it.
    """
    wide = torch.float32 if value.device.type == "mps" else torch.float64
    found = value.new_empty((*value.shape[:-1], value.shape[-1] + 1), dtype=wide)
    found[..., :-1] = value
    found[..., -1] = torch.linalg.vecdot(found[..., :-1], found[..., :-1])
    return found


def _sandwich(
    rows: Rows, weights: Tensor, place: Tensor, output: Tensor, around: Around
) -> tuple[Tensor, Tensor]:
    """Σ w² ‖v - T‖² and Σ w²; overwrites the weights.

    The squares are multiplied out around a point c, Σ w² ‖v - c‖² - 2 (T - c) · Σ w² (v - c) + ‖T -
    c‖² Σ w², where this cancels little: for all but the largest weight, whose value is all but T
    where few tokens are read.
    """
    b, g, _, o = rows.value.shape
    index = place.reshape(b, g, -1, 1).expand(-1, -1, -1, o)
    nearest = rows.value.gather(2, index).reshape(output.shape)
    top = weights.gather(-1, place).squeeze(-1).square()
    others, centre = (
        weights.scatter_(-1, place, 0.0).square_(),
        around.centre.repeat_interleave(rows.share, 1),
    )
    collision, away = others.sum(-1, keepdim=True), output - centre
    cross = (away * (collision * away - 2 * (rows.read(others) - collision * centre))).sum(-1)
    found = (rows.read(others, around.lengths).squeeze(-1) + cross).clamp_min(0.0)
    return found + top * (nearest - output).square().sum(-1), collision.squeeze(-1) + top
