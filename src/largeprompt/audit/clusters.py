"""A head's keys and values as a Gaussian mixture: few clusters, each read by its own moments."""

from __future__ import annotations

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
    ``sinks`` tokens are components of their own (attention sinks, read exactly). Fitting needs no scores, so that it is
    done once for a layer; the read-out then takes the full covariance of each component along the query's tilt.
    """
    wide = torch.float64 if heads.key.dtype == torch.float64 else torch.float32
    present = _present(heads).to(wide)
    joint = torch.cat([_standardised(each.to(wide), present[:, None, :, None]) for each in (heads.key, heads.value)], -1)
    b, g, s, _ = joint.shape
    sinks = min(sinks, s)
    flat = joint[:, :, sinks:].flatten(0, 1)
    weight = present[:, None, sinks:].expand(b, g, s - sinks).flatten(0, 1)
    found = {}
    for count in components:
        member = torch.zeros(b, g, s, sinks + count, dtype=wide, device=joint.device)
        member[:, :, :sinks, :sinks] = torch.eye(sinks, dtype=wide, device=joint.device)
        if s > sinks:
            member[:, :, sinks:, sinks:] = _fit(flat, weight, count, seed).reshape(b, g, s - sinks, count)
        found[count] = member
    return found


def _standardised(tokens: Tensor, present: Tensor) -> Tensor:
    """Mean 0 and variance 1 over the tokens that are present."""
    total = present.sum(2, keepdim=True).clamp_min(1.0)
    centred = tokens - (tokens * present).sum(2, keepdim=True) / total
    return centred / ((centred.square() * present).sum(2, keepdim=True) / total).sqrt().clamp_min(1e-12)


def _present(heads: Heads) -> Tensor:
    """Tokens that some query may read, shape (batch, S): padding must not make clusters."""
    s = heads.key.shape[2]
    if heads.mask is None:
        return torch.ones(heads.batch, s, dtype=torch.bool, device=heads.key.device)
    allowed = heads.mask if heads.mask.dtype == torch.bool else heads.mask > torch.finfo(heads.mask.dtype).min / 2
    return allowed.flatten(1, 2).any(1).expand(heads.batch, s)


def _fit(x: Tensor, weight: Tensor, count: int, seed: int) -> Tensor:
    """Responsibilities (n, S, K) of diagonal Gaussian mixtures fitted to x (n, S, D) with weights (n, S), the likelier of two."""
    best, likeliest = None, None
    for start in range(STARTS if count > 1 else 1):
        member, likelihood = _climb(x, weight, count, seed + start)
        if best is None or likeliest is None:
            best, likeliest = member, likelihood
        else:
            better = likelihood > likeliest
            best, likeliest = torch.where(better[:, None, None], member, best), torch.where(better, likelihood, likeliest)
    assert best is not None
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
        going_on = going & ((now - likelihood).abs() >= SETTLED)
        likelihood = torch.where(going, now, likelihood)
        going = going_on
        if not bool(going.any()):
            break
    return member, likelihood


def _spread_out(x: Tensor, weight: Tensor, count: int, seed: int) -> Tensor:
    """k-means++ centres: each next one drawn with chances as the squared distance to the nearest so far."""
    uniform = torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)  # for every item, on any device
    chances, picked = weight.clone(), []
    for draw in uniform.tolist():
        usable = torch.where(chances.sum(-1, keepdim=True) > 0, chances, torch.ones_like(chances))
        heap = usable.cumsum(-1)
        index = torch.searchsorted(heap, draw * heap[..., -1:], right=True).clamp_max(x.shape[1] - 1)
        centre = x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))
        picked.append(centre)
        nearest = (x - centre).square().sum(-1) * weight
        chances = nearest if len(picked) == 1 else torch.minimum(chances, nearest)
    return torch.cat(picked, 1)


def mixture_read_out(rows: Rows, member: Tensor) -> tuple[Tensor, Tensor]:
    """Output (batch, heads, t, o) and log-normaliser (batch, heads, t) of the mixture that the responsibilities describe.

    Component c of weight π_c reads as a Gaussian with its own moments over the keys that the query may see,
    v̄_c + Cov_c(v, s), and weighs π_c e^{s̄_c + Var_c(s)/2} in the tilt.
    """
    count = member.shape[-1]
    number = rows.number()[..., None].clamp_min(1)
    offset = rows.only_allowed(rows.scores).sum(-1, keepdim=True) / number  # scores around their mean, however large that is
    scores = rows.only_allowed(rows.scores - offset)
    everyone = torch.ones_like(scores) if rows.allowed is None else rows.allowed.to(scores.dtype).expand(scores.shape)
    mass = rows.read(everyone, member)  # (batch, heads, t, K)
    safe = mass.clamp_min(1e-12)
    mean_score = rows.read(scores, member) / safe
    variance = (rows.read(scores.square(), member) / safe - mean_score.square()).clamp_min(0.0)
    log_weight = torch.where(mass > 1e-9, torch.log(safe) + mean_score + variance / 2, -torch.inf)
    normaliser = log_weight.logsumexp(-1)
    share = torch.exp(log_weight - normaliser[..., None])
    output = torch.zeros((), dtype=scores.dtype, device=scores.device)
    for c in range(count):
        belongs = member[..., c : c + 1] * rows.value  # (batch, groups, S, o)
        mean = rows.read(everyone, belongs) / safe[..., c : c + 1]
        tilt = rows.read(scores, belongs) / safe[..., c : c + 1] - mean_score[..., c : c + 1] * mean
        output = output + share[..., c : c + 1] * (mean + tilt)
    return output, offset.squeeze(-1) + normaliser - torch.log(rows.number())
