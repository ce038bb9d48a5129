"""A head's keys and values as a Gaussian mixture: few clusters, each read by its own moments."""

from collections.abc import Sequence

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.audit.heads import Heads, Rows

MOST_COMPONENTS = 4096  # more are as large as the prompt
ROUNDS, TRIAL = 16, 4  # of expectation-maximization at most, and before the likelier start is kept
STARTS = 2  # fits that are tried, of which the likelier is kept
SETTLED = 1e-4  # change of the log-likelihood per token and coordinate that ends a fit
FLOOR = 1e-3  # least variance of a component, in units of the whole's


def checked_sizes(components: Sequence[int]) -> tuple[int, ...]:
    """Return sizes of mixtures, ascending, each once."""
    allowed = "a sequence of numbers of clusters, such as (1, 4, 8)"
    given = validation.listed("components", components, allowed)
    sizes = {validation.integer("components", each, maximum=MOST_COMPONENTS) for each in given}
    return tuple(sorted(sizes))


def responsibilities(
    heads: Heads, components: tuple[int, ...], sinks: int = 0, seed: int = 0
) -> dict[int, Tensor]:
    """Return each token's shares in K components, (batch, groups, S, sinks + K), by K.

    A mixture of Gaussians with diagonal covariances is fitted to keys and values jointly, each
    coordinate scaled to unit variance, by expectation-maximization from k-means++ starts. The first
    ``sinks`` tokens, and a model's own atoms before them, are components of their own (attention
    sinks, read exactly). Tokens that no query may read belong to none.
    """
    b, g, s, _ = heads.key.shape
    sinks = min(heads.atoms + sinks, s)
    present = heads.present.expand(b, s).to(heads.wide)[:, None, :, None]  # padding is no cluster
    both = (heads.key.to(heads.wide), heads.value.to(heads.wide))
    x = torch.cat([_standardized(each, present)[:, :, sinks:] for each in both], -1).flatten(0, 1)
    powers = torch.cat([x.square(), x], -1)
    weight = present[:, :, sinks:, 0].expand(b, g, -1).flatten(0, 1)
    labels = _nearest(x, weight, max(components), seed) if s > sinks else []
    found = {}
    for count in components:
        member = present.new_zeros(b, g, s, sinks + count)
        member[:, :, :sinks, :sinks] = torch.eye(sinks, device=member.device)
        if labels:
            fitted = _fit(powers, weight, labels[count], count)
            member[:, :, sinks:, sinks:] = fitted.reshape(b, g, count, s - sinks).mT
        found[count] = member
    return found


def _standardized(tokens: Tensor, present: Tensor) -> Tensor:
    """Mean 0 and variance 1 over the tokens that are present."""
    total = present.sum(2, keepdim=True).clamp_min(1.0)
    centered = tokens - (tokens * present).sum(2, keepdim=True) / total
    variance = (centered.square() * present).sum(2, keepdim=True) / total
    return centered / variance.sqrt().clamp_min(1e-12)


def _fit(powers: Tensor, weight: Tensor, label: Tensor, count: int) -> Tensor:
    """Responsibilities (n, K, S) from ``powers``, x² and x side by side, (n, S, 2D)."""
    starts = STARTS if count > 1 else 1
    places = torch.arange(count, device=weight.device)[:, None]
    member = (label[:, :starts, None] == places).to(weight.dtype) * weight[:, None, None]
    member, likelihood = _climb(powers, weight, member, TRIAL)
    best = likelihood.argmax(1)[:, None, None, None].expand(-1, 1, *member.shape[2:])
    return _climb(powers, weight, member.gather(1, best), ROUNDS - TRIAL)[0].squeeze(1)


def _climb(powers: Tensor, weight: Tensor, member: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """Responsibilities (n, starts, K, S) and log-likelihoods (n, starts) after some rounds."""
    (n, starts, count, s), dim = member.shape, powers.shape[-1] // 2
    total = weight.sum(-1).clamp_min(1.0)[:, None, None, None]
    likelihood = powers.new_full((n, starts), -torch.inf)
    going = torch.ones_like(likelihood, dtype=torch.bool)
    for _ in range(rounds):
        mass = member.sum(-1, keepdim=True).clamp_min(1e-9)  # (n, starts, K, 1)
        sums = (member.reshape(n, -1, s) @ powers).reshape(n, starts, count, -1)
        square, mean = (sums / mass).split(dim, -1)
        variance = (square - mean.square()).clamp_min(FLOOR)
        slope = torch.cat([-0.5 / variance, mean / variance], -1).reshape(n, -1, 2 * dim)
        spread = (mean.square() / variance + torch.log(variance)).sum(-1, keepdim=True)
        constant = torch.log(mass / total) - spread / 2
        log_joint = constant + (slope @ powers.mT).reshape(n, starts, count, s)
        norm = log_joint.logsumexp(2)  # (n, starts, S)
        share = (log_joint - norm[:, :, None]).exp_() * weight[:, None, None]
        level = (norm * weight[:, None]).sum(-1) / (total[..., 0, 0] * dim)
        member = torch.where(going[..., None, None], share, member)
        moved = (level - likelihood).abs() >= SETTLED
        likelihood, going = torch.where(going, level, likelihood), going & moved
        if not bool(going.any()):
            break
    return member, likelihood


def _nearest(x: Tensor, weight: Tensor, most: int, seed: int) -> list[Tensor]:
    """Place of the nearest of K k-means++ centers, (n, starts, S), for K = 0, 1, ..., ``most``."""
    draws = [
        torch.rand(most, generator=torch.Generator().manual_seed(seed + start), dtype=torch.float64)
        for start in range(STARTS)
    ]
    uniform = torch.stack(draws).to(x)  # the same for every item, on any device
    chances = weight[:, None].expand(-1, STARTS, -1)
    best, label = torch.full_like(chances, torch.inf), torch.zeros_like(chances, dtype=torch.int64)
    found, length = [label], x.square().sum(-1, keepdim=True)
    for place in range(most):
        heap = torch.where(chances.sum(-1, keepdim=True) > 0, chances, 1.0).cumsum(-1)
        drawn = uniform[:, place, None] * heap[..., -1:]
        index = torch.searchsorted(heap, drawn, right=True).clamp_max(x.shape[1] - 1)
        center = x.gather(1, index.expand(-1, -1, x.shape[-1]))  # (n, starts, D)
        distance = torch.baddbmm(length.mT, center, x.mT, alpha=-2)
        distance = (distance + center.square().sum(-1, keepdim=True)).clamp_min(0.0)
        label = torch.where(distance < best, place, label)
        best = torch.minimum(best, distance)
        chances = best * weight[:, None]
        found.append(label)
    return found


def mixture_read_out(rows: Rows, member: Tensor) -> Tensor:
    """Return the outputs (batch, heads, t, o) of the mixture that responsibilities describe.

    Component c of weight π_c reads as a Gaussian with its own moments over the keys that the query
    may see, v̄_c + Cov_c(v, s), and weighs π_c e^{s̄_c + Var_c(s)/2} in the tilt. With p_c its
    share of the tilt and M_c = Σ_l m_lc its mass, that is Σ_l v_l Σ_c (p_c/M_c)(1 + s_l - s̄_c)
    m_lc: one sum over the values, however many components there are.
    """
    scores = rows.centered()[1]
    mass = rows.total(member).expand(*scores.shape[:3], -1)  # (batch, heads, t, K)
    safe = mass.clamp_min(1e-12)
    mean = rows.read(rows.weighted(scores), member) / safe
    square = rows.read(rows.weighted(scores.square()), member) / safe
    variance = (square - mean.square()).clamp_min(0.0)
    level = torch.where(mass > 1e-9, torch.log(safe) + mean + variance / 2, -torch.inf)
    share = torch.softmax(level, -1) / safe
    constant, slope = (_spread(rows, each, member) for each in (share * (1 - mean), share))
    return rows.read(rows.masked(rows.weighted(constant + slope * scores)))


def _spread(rows: Rows, shares: Tensor, member: Tensor) -> Tensor:
    """Σ_c shares_c m_lc: (batch, heads, t, S) of (batch, heads, t, K), (batch, groups, S, K)."""
    b, h, t, k = shares.shape
    return (shares.reshape(b, h // rows.share, rows.share * t, k) @ member.mT).reshape(b, h, t, -1)
