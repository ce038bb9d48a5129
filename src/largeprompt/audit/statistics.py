"""All statistics of the heads of a layer, in one pass over its scores; the attention map itself is never kept."""

import torch
from torch import Tensor

from largeprompt.audit.clusters import mixture_read_out, responsibilities
from largeprompt.audit.heads import Heads, Rows
from largeprompt.measures.numerics.pareto import pareto_tail_index, tail_count


def head_statistics(heads: Heads, positions: Tensor, components: tuple[int, ...] = (), sinks: int = 0) -> dict[str, Tensor]:
    """Statistics of every head at the given query positions, each of shape (batch, heads, positions), float64 on the CPU.

    With s the scores of the keys that a query may read, v their values, w = softmax(s), T = Σ w v the head's output and cumulants κ
    over these keys (every key weighing the same),

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
    tokens = responsibilities(heads, components, sinks) if components else {}
    parts = [_row_statistics(rows, tokens) for _, rows in heads.rows(positions)]
    return {name: torch.cat([part[name] for part in parts], -1).cpu().to(torch.float64) for name in parts[0]}


def _row_statistics(rows: Rows, tokens: dict[int, Tensor]) -> dict[str, Tensor]:
    number, shape = rows.number(), rows.scores.shape[:-1]
    mean_score, centred = rows.centred()
    weights, normaliser = rows.weights()
    everyone = rows.everyone()[..., : 1 if rows.allowed is None else None, :]  # one row where all queries see the same

    def average(weights: Tensor, of: Tensor | None = None) -> Tensor:
        return rows.read(weights, of) / number[..., None]

    def squared(difference: Tensor) -> Tensor:
        return difference.square().sum(-1)

    output, mean = rows.read(weights), average(everyone)
    square = centred.square()
    cube = square * centred
    variance, third_score = square.sum(-1) / number, cube.sum(-1) / number
    fourth_score = square.square().sum(-1) / number - 3 * variance.square()
    first = average(centred)
    second = average(square) - variance[..., None] * mean
    third = average(cube) - third_score[..., None] * mean - 3 * variance[..., None] * first
    log_mean = normaliser.squeeze(-1) - torch.log(number)
    spread = average(everyone, rows.value.square().sum(-1, keepdim=True)).squeeze(-1) - squared(mean)
    affine, gaussian_mass = mean + first, mean_score + variance / 2
    found = {
        "tokens": number.expand(shape),
        "score_mean": mean_score,
        "score_variance": variance,
        "score_skewness": third_score / variance.clamp_min(1e-30).pow(1.5),
        "score_kurtosis": fourth_score / variance.clamp_min(1e-30).square(),
        "collision": weights.square().sum(-1),
        "entropy": (weights * rows.only_allowed(normaliser - rows.scores)).sum(-1),
        "largest_weight": weights.amax(-1),
        "tail_index": _tail_index(rows),
        "sandwich": _sandwich(rows, weights),
        "output": squared(output),
        "deviation": squared(output - mean),
        "value_spread": spread.clamp_min(0.0).expand(shape),
        "tilt": squared(first),
        "mean_square": squared(mean).expand(shape),
        "mean_tilt": (mean * first).sum(-1),
        "mean_error": squared(output - mean),
        "affine_error": squared(output - affine),
        "affine_direction": torch.nn.functional.cosine_similarity(output, affine, dim=-1),
        "third_error": squared(output - affine - second / 2),
        "fourth_error": squared(output - affine - second / 2 - third / 6),
        "mass_mean": log_mean - mean_score,
        "mass_affine": log_mean - gaussian_mass,
        "mass_third": log_mean - gaussian_mass - third_score / 6,
        "mass_fourth": log_mean - gaussian_mass - third_score / 6 - fourth_score / 24,
    }
    for count, member in tokens.items():
        read, mass = mixture_read_out(rows, member)
        found[f"mixture_{count}_error"] = squared(output - read)
        found[f"mass_mixture_{count}"] = log_mean - mass
    return found


def _sandwich(rows: Rows, weights: Tensor) -> Tensor:
    """Σ w² ‖v - T‖², whose terms cancel where few tokens are read: in double precision where the device has it."""
    wide = torch.float32 if weights.device.type == "mps" else torch.float64
    value, weights = rows.value.to(wide), weights.to(wide)
    twice, output = weights.square(), rows.read(weights, value)
    read = rows.read(twice, torch.cat([value, value.square().sum(-1, keepdim=True)], -1))
    return (read[..., -1] - 2 * (read[..., :-1] * output).sum(-1) + twice.sum(-1) * output.square().sum(-1)).clamp_min(0.0)


def _tail_index(rows: Rows) -> Tensor:
    """k-hat of the largest weights of each query, fitted to the tail that its own number of keys allows."""
    count = min(tail_count(rows.scores.shape[-1]) + 1, rows.scores.shape[-1])
    largest = rows.only_allowed(rows.scores, -torch.inf).topk(count, dim=-1).values
    number = rows.number().expand(rows.scores.shape[:-1])
    result = torch.full(number.shape, torch.inf, dtype=torch.float64, device=largest.device)
    lengths, which = torch.unique(number, return_inverse=True)
    counts = torch.tensor([tail_count(max(1, int(length))) for length in lengths.tolist()], device=largest.device)
    for count in torch.unique(counts).tolist():  # many lengths share a count
        chosen = (counts[which] == count) & (number > 1)
        result[chosen] = pareto_tail_index(largest[chosen][:, : count + 1])
    return result
