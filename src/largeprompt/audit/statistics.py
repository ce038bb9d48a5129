"""All statistics of the heads of a layer, in one pass over its scores; the attention map itself is never kept."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.audit.clusters import checked_sizes, mixture_read_outs, responsibilities
from largeprompt.audit.heads import Heads, Rows, chunk_numbers
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.numerics.pareto import tail_count, tail_indices


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
    t, s = heads.query.shape[2], heads.key.shape[2]
    reach = [s] * t if reach is None else reach
    tail, room = min(tail_count(s) + 1, s), chunk_numbers(heads) // (heads.batch * heads.count)
    parts, stop = list[Measured](), 0
    while stop < t:
        start, keys = stop, 0
        while stop < t and (stop == start or (stop - start + 1) * max(keys, reach[stop]) <= room):
            keys, stop = max(keys, reach[stop]), stop + 1
        part = heads.queries(start, stop, keys) if stop - start < t or keys < s else heads
        parts.append(_row_statistics(part.scored(), {count: member[:, :, :keys] for count, member in tokens.items()}, tail))
    if len(parts) == 1:
        return parts[0]
    found, *others = zip(*parts, strict=True)
    return Measured(
        {name: torch.cat([each[name] for each in found], 2) for name in found[0]}, *(torch.cat(each, 2) for each in others)
    )


def tail_index(number: Tensor, largest: Tensor) -> Tensor:
    """k-hat of the largest weights of queries, fitted to the tail that the number of their keys allows."""
    number = number.to(torch.float64)
    tails = torch.minimum(torch.ceil(number / 5), torch.floor(torch.sqrt(9 * number - 1)) + 1)  # as tail_count
    return tail_indices(largest, torch.where(number > 1, tails, 0.0))


def _row_statistics(rows: Rows, tokens: dict[int, Tensor], tail: int) -> Measured:
    number, shape = rows.number(), rows.scores.shape[:-1]
    mean_score, centred = rows.centred()
    rows = dataclasses.replace(rows, scores=centred)  # from which nothing else differs
    whole = rows.only_allowed(centred if rows.bias is None else centred + rows.bias, -torch.inf)
    weights, largest = torch.softmax(whole, -1), _largest(whole, tail)

    def squared(difference: Tensor) -> Tensor:
        return difference.square().sum(-1)

    def average(weights: Tensor) -> Tensor:
        return rows.read(weights) / number[..., None]

    highest, lowest, top = largest.amax(-1), centred.amin(-1), weights.amax(-1)
    normaliser = highest - torch.log(top)  # log Σ e^{s + b} with the mean of s taken off
    entropy = (weights * rows.only_allowed(normaliser[..., None] - whole)).sum(-1)
    own = number if rows.bias is None else rows.only_allowed(rows.bias, -torch.inf).logsumexp(-1).exp()  # Σ e^b
    excess = normaliser - torch.log(own)
    output, first = rows.read(weights), average(rows.weighted(centred))
    size = torch.maximum((mean_score + highest).abs(), (mean_score + lowest).abs())
    del whole  # as large as the scores
    halves = zip(rows.value.chunk(2), weights.chunk(2), strict=True)  # of the texts or layers, for numbers of double size
    doubled = [_sandwich(dataclasses.replace(rows, value=value), each) for value, each in halves]
    sandwich, collision = (torch.cat(each) for each in zip(*doubled, strict=True))
    del weights, halves
    total = rows.total(torch.cat([rows.value, squared(rows.value)[..., None]], -1)) / number[..., None]
    mean, spread = total[..., :-1], (total[..., -1] - squared(total[..., :-1])).clamp_min(0.0)
    square = centred.square()
    fourth_score = rows.weighted(square.square()).sum(-1) / number
    cube = rows.weighted(square * centred)
    third_score, third = cube.sum(-1) / number, average(cube)
    del cube
    square = rows.weighted(square)
    variance, second = square.sum(-1) / number, average(square)
    del square
    fourth_score = fourth_score - 3 * variance.square()
    second = second - variance[..., None] * mean
    third = third - third_score[..., None] * mean - 3 * variance[..., None] * first
    beyond_mean = output - mean
    beyond_affine = beyond_mean - first
    beyond_third = beyond_affine - second / 2
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
        "output": squared(output),
        "deviation": squared(beyond_mean),
        "value_spread": spread.expand(shape),
        "tilt": squared(first),
        "mean_square": squared(mean).expand(shape),
        "mean_tilt": (mean * first).sum(-1),
        "mean_error": squared(beyond_mean),
        "affine_error": squared(beyond_affine),
        "affine_direction": torch.nn.functional.cosine_similarity(output, mean + first, dim=-1),
        "third_error": squared(beyond_third),
        "fourth_error": squared(beyond_third - third / 6),
        "mass_mean": excess,
        "mass_affine": excess - variance / 2,
        "mass_third": excess - variance / 2 - third_score / 6,
        "mass_fourth": excess - variance / 2 - third_score / 6 - fourth_score / 24,
    }
    for count, (read, mass) in zip(tokens, mixture_read_outs(rows, list(tokens.values())) if tokens else (), strict=True):
        found[f"mixture_{count}_error"] = squared(output - read)
        found[f"mass_mixture_{count}"] = excess - mass
    return Measured(found, largest, output, size)


def _largest(scores: Tensor, count: int) -> Tensor:
    """The so many largest scores of each query, in any order; minus infinity where there are fewer keys."""
    kept = min(count, scores.shape[-1])
    if scores.device.type == "cpu":  # NumPy's selection is several times faster than topk
        cut = scores.shape[-1] - kept
        found = torch.from_numpy(np.partition(scores.numpy(), cut, -1)[..., cut:].copy())
    else:
        found = scores.topk(kept, dim=-1, sorted=False).values
    return torch.nn.functional.pad(found, (0, count - kept), value=-torch.inf) if kept < count else found


def _sandwich(rows: Rows, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Σ w² ‖v - T‖², whose terms cancel where few tokens are read: in double precision where the device has it; and Σ w²."""
    wide = torch.float32 if weights.device.type == "mps" else torch.float64
    value, weights = rows.value.to(wide), weights.to(wide, copy=True)
    output, twice = rows.read(weights, value), weights.square_()
    read, collision = rows.read(twice, torch.cat([value, value.square().sum(-1, keepdim=True)], -1)), twice.sum(-1)
    found = read[..., -1] - 2 * (read[..., :-1] * output).sum(-1) + collision * output.square().sum(-1)
    return found.clamp_min(0.0), collision
