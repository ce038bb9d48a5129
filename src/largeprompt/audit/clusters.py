"""A head's keys and values as a Gaussian mixture: few clusters, each read by its own moments."""

import torch
from torch import Tensor

from largeprompt.audit.heads import Heads, Rows

ROUNDS = 25  # of expectation-maximisation at most
SETTLED = 1e-4  # change of the log-likelihood per token and coordinate that ends it
STARTS = 2  # of which the likelier fit is kept
FLOOR = 1e-3  # least variance of a component, in units of the whole's


def responsibilities(heads: Heads, components: tuple[int, ...], sinks: int = 0, seed: int = 0) -> dict[int, Tensor]:
    """Which token belongs to which component, for each number of components: shapes (batch, groups, S, sinks + K).

    A mixture of Gaussians with diagonal covariances is fitted to keys and values jointly, each coordinate scaled to unit variance,
    by expectation-maximisation from k-means++ starts, all heads and texts side by side but none aware of the others. The first
    ``sinks`` tokens, and a model's own atoms before them, are components of their own (attention sinks, read exactly). Fitting
    needs no scores, so that it is done once for a layer; the read-out then takes the full covariance of each component along the
    query's tilt.
    """
    b, g, s, _ = heads.key.shape
    sinks = min(heads.atoms + sinks, s)
    present = torch.ones(b, s, device=heads.key.device)
    if heads.allowed is not None:  # padding, which no query may read, must not make clusters
        present = heads.allowed.flatten(1, 2).any(1).expand(b, s)
    present = present.to(heads.wide)[:, None, :, None]
    joint = torch.cat([_standardised(each.to(heads.wide), present) for each in (heads.key, heads.value)], -1)
    flat, weight = (each[:, :, sinks:].expand(b, g, -1, -1).flatten(0, 1) for each in (joint, present))
    found = {}
    for count in components:
        member = joint.new_zeros(b, g, s, sinks + count)
        member[:, :, :sinks, :sinks] = torch.eye(sinks)
        if s > sinks:
            member[:, :, sinks:, sinks:] = _fit(flat, weight.squeeze(-1), count, seed).reshape(b, g, s - sinks, count)
        found[count] = member
    return found


def _standardised(tokens: Tensor, present: Tensor) -> Tensor:
    """Mean 0 and variance 1 over the tokens that are present."""
    total = present.sum(2, keepdim=True).clamp_min(1.0)
    centred = tokens - (tokens * present).sum(2, keepdim=True) / total
    return centred / ((centred.square() * present).sum(2, keepdim=True) / total).sqrt().clamp_min(1e-12)


def _fit(x: Tensor, weight: Tensor, count: int, seed: int) -> Tensor:
    """Responsibilities (n, S, K) of diagonal Gaussian mixtures fitted to x (n, S, D) with weights (n, S), the likelier of two."""
    best, likeliest = _climb(x, weight, count, seed)
    for start in range(1, STARTS if count > 1 else 1):
        member, likelihood = _climb(x, weight, count, seed + start)
        better = likelihood > likeliest
        best, likeliest = torch.where(better[:, None, None], member, best), torch.where(better, likelihood, likeliest)
    return best


def _climb(x: Tensor, weight: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Expectation-maximisation from one start: responsibilities, and the log-likelihood per token and coordinate, shape (n,)."""
    distance = torch.cdist(x, _spread_out(x, weight, count, seed))
    member = torch.nn.functional.one_hot(distance.argmin(-1), count).to(x.dtype) * weight[..., None]
    total = weight.sum(-1, keepdim=True).clamp_min(1.0)
    likelihood = x.new_full((len(x),), -torch.inf)
    going = torch.ones_like(likelihood, dtype=torch.bool)
    square = x.square()
    for _ in range(ROUNDS):
        mass = member.sum(1).clamp_min(1e-9)  # (n, K)
        mean = member.mT @ x / mass[..., None]
        variance = (member.mT @ square / mass[..., None] - mean.square()).clamp_min(FLOOR)
        precision = 1 / variance
        quadratic = square @ precision.mT - 2 * x @ (precision * mean).mT + (precision * mean.square()).sum(-1)[:, None]
        log_joint = torch.log(mass / total)[:, None] - (quadratic + torch.log(variance).sum(-1)[:, None]) / 2
        evidence = log_joint.logsumexp(-1)
        now = (evidence * weight).sum(-1) / (total.squeeze(-1) * x.shape[-1])
        moved = torch.exp(log_joint - evidence[..., None]) * weight[..., None]
        member = torch.where(going[:, None, None], moved, member)  # one that has settled waits for the others
        likelihood, going = torch.where(going, now, likelihood), going & ((now - likelihood).abs() >= SETTLED)
        if not bool(going.any()):
            break
    return member, likelihood


def _spread_out(x: Tensor, weight: Tensor, count: int, seed: int) -> Tensor:
    """k-means++ centres: each next one drawn with chances as the squared distance to the nearest so far."""
    uniform = torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)  # for every item, on any device
    chances, picked = weight, list[Tensor]()
    for draw in uniform.tolist():
        heap = torch.where(chances.sum(-1, keepdim=True) > 0, chances, 1.0).cumsum(-1)
        index = torch.searchsorted(heap, draw * heap[..., -1:], right=True).clamp_max(x.shape[1] - 1)
        picked.append(x.gather(1, index[..., None].expand(-1, -1, x.shape[-1])))
        distance = (x - picked[-1]).square().sum(-1) * weight
        chances = distance if len(picked) == 1 else torch.minimum(chances, distance)
    return torch.cat(picked, 1)


def mixture_read_out(rows: Rows, member: Tensor) -> tuple[Tensor, Tensor]:
    """Output (batch, heads, t, o) and log-normaliser (batch, heads, t) of the mixture that the responsibilities describe.

    Component c of weight π_c reads as a Gaussian with its own moments over the keys that the query may see,
    v̄_c + Cov_c(v, s), and weighs π_c e^{s̄_c + Var_c(s)/2} in the tilt.
    """
    offset, scores = rows.centred()  # however large their mean is
    everyone = rows.everyone()
    mass = rows.read(everyone, member)  # (batch, heads, t, K)
    safe = mass.clamp_min(1e-12)
    mean_score = rows.read(scores, member) / safe
    variance = (rows.read(scores.square(), member) / safe - mean_score.square()).clamp_min(0.0)
    log_weight = torch.where(mass > 1e-9, torch.log(safe) + mean_score + variance / 2, -torch.inf)
    normaliser = log_weight.logsumexp(-1)
    share = torch.exp(log_weight - normaliser[..., None])
    output = scores.new_zeros(())
    for c in range(member.shape[-1]):
        one = slice(c, c + 1)
        belongs = member[..., one] * rows.value  # (batch, groups, S, o)
        mean = rows.read(everyone, belongs) / safe[..., one]
        tilt = rows.read(scores, belongs) / safe[..., one] - mean_score[..., one] * mean
        output = output + share[..., one] * (mean + tilt)
    return output, offset + normaliser - torch.log(rows.number())
