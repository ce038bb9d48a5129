"""Statistics of the heads of a layer, from a few rows of scores at a time."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.audit.clusters import checked_sizes, mixture_read_out, responsibilities
from largeprompt.audit.heads import Heads, Rows
from largeprompt.errors import InvalidArgumentError

LEAST_VARIANCE = 1e-30  # of scores: below, skewness and kurtosis are rounding


class Measured(NamedTuple):
    """What is measured of queries (batch, heads, t) on their device."""

    statistics: dict[str, Tensor]
    output: Tensor  # T, shape (batch, heads, t, o)
    size: Tensor  # largest absolute score


def head_statistics(
    heads: Heads, positions: Tensor, components: Sequence[int] = (), sinks: int = 0
) -> dict[str, Tensor]:
    """Return statistics of every head at the given query positions.

    With s the scores of the keys that a query may read, v their values, w = softmax(s), T = Σ w v
    the head's output and cumulants κ over these keys (all weighing the same; with position biases b
    as e^b, and s then the scores without them), the read-outs are

    - mean: T̂₁ = κ(v), the mean value alone;
    - affine: T̂₂ = T̂₁ + κ(v, s), the infinite Gaussian prompt with the same moments;
    - third: T̂₃ = T̂₂ + κ(v, s, s)/2, the cumulant ladder along the tilt;
    - fourth: T̂₄ = T̂₃ + κ(v, s, s, s)/6;
    - mixture_K: a Gaussian mixture of K components.

    Errors ``*_error`` are ‖T - T̂‖², squared, to be divided by ``output`` = ‖T‖².

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
        Each statistic by its name, (batch, heads, positions), float64 on the CPU.
    """
    validation.instance("heads", heads, Heads, "Heads(query, key, value)")
    components, sinks = checked_sizes(components), validation.integer("sinks", sinks, minimum=0)
    positions = validation.indices("positions", positions, heads.query.shape[2])
    if positions.dim() != 1 or not len(positions):
        given = f"shape {validation.shape_text(positions.shape)}"
        raise InvalidArgumentError("positions", given, "one or more, shape (positions,)")
    found = measured(heads, positions, components, sinks)
    return {name: each.cpu().to(torch.float64) for name, each in found.statistics.items()}


def measured(
    heads: Heads, positions: Tensor, components: tuple[int, ...] = (), sinks: int = 0
) -> Measured:
    """:func:`head_statistics` on the heads' device, with the output and the largest scores."""
    tokens = responsibilities(heads, components, sinks) if components else {}
    doubled = _doubled(heads.value)
    ahead = heads.key.shape[2] - heads.query.shape[2] + 1
    causal = heads.causal and heads.mask is None
    parts = list[Measured]()
    for piece, some in heads.pieces(positions):
        keys = int(piece.max()) + ahead if causal else heads.key.shape[2]  # others are not read
        members = {count: member[:, :, :keys] for count, member in tokens.items()}
        parts.append(_of_rows(some.first_keys(keys).scored(), doubled[:, :, :keys], members))
    statistics, output, size = zip(*parts, strict=True)
    joined = {name: torch.cat([each[name] for each in statistics], 2) for name in statistics[0]}
    return Measured(joined, torch.cat(output, 2), torch.cat(size, 2))


def _doubled(value: Tensor) -> Tensor:
    """Values and their squared lengths, (batch, groups, S, o + 1), in double precision if any."""
    wide = value.to(torch.float32 if value.device.type == "mps" else torch.float64)
    return torch.cat([wide, torch.linalg.vecdot(wide, wide)[..., None]], -1)


def _of_rows(rows: Rows, doubled: Tensor, tokens: dict[int, Tensor]) -> Measured:
    number = rows.number()
    mean_score, s = rows.centered()
    rows = Rows(s, rows.value, rows.allowed, rows.share, rows.bias)  # softmax does not see the mean

    def squared(difference: Tensor) -> Tensor:
        return difference.square().sum(-1)

    def average(weights: Tensor) -> Tensor:
        return rows.read(weights) / number[..., None]

    total = rows.total(doubled) / number[..., None]
    mean, spread = total[..., :-1], (total[..., -1] - squared(total[..., :-1])).clamp_min(0.0)
    mean, first, power = mean.to(s.dtype), average(rows.weighted(s)), s.square()
    square = rows.weighted(power)
    variance = square.sum(-1) / number
    second = average(square) - variance[..., None] * mean
    fourth_score = torch.linalg.vecdot(square, power) / number - 3 * variance.square()
    cube = square * s
    third_score = cube.sum(-1) / number
    third = average(cube) - third_score[..., None] * mean - 3 * variance[..., None] * first
    whole = rows.whole()
    weights, normalizer = torch.softmax(whole, -1), whole.logsumexp(-1)
    output = rows.read(weights)
    affine = mean + first
    third_order = affine + second / 2
    shape = s.shape[:-1]
    found = {
        "tokens": number.expand(shape),
        "weighed_tokens": _weighed(rows, number).expand(shape),
        "score_variance": variance,
        "score_skewness": third_score / variance.clamp_min(LEAST_VARIANCE).pow(1.5),
        "score_kurtosis": fourth_score / variance.clamp_min(LEAST_VARIANCE).square(),
        "collision": squared(weights),
        "entropy": normalizer - (weights * rows.masked(whole)).sum(-1),
        "largest_weight": weights.amax(-1),
        "output": squared(output),
        "value_spread": spread.expand(shape),
        "tilt": squared(first),
        "mean_error": squared(output - mean),
        "affine_error": squared(output - affine),
        "third_error": squared(output - third_order),
        "fourth_error": squared(output - third_order - third / 6),
    }
    for count, member in tokens.items():
        found[f"mixture_{count}_error"] = squared(output - mixture_read_out(rows, member))
    size = torch.maximum((mean_score + s.amax(-1)).abs(), (mean_score + s.amin(-1)).abs())
    return Measured(found, output, size)


def _weighed(rows: Rows, number: Tensor) -> Tensor:
    """Effective number of keys by their position biases alone."""
    return number if rows.bias is None else number**2 / rows.everyone().square().sum(-1)
