"""A head's keys and values as a Gaussian mixture: few clusters, each read by its own moments."""

from collections.abc import Sequence

import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.audit.heads import Heads, Rows, summed

MOST_COMPONENTS = 4096
ROUNDS = 16  # of expectation-maximisation at most
SETTLED = 1e-4  # change of the log-likelihood per token and coordinate that ends it
STARTS, TRIAL = 2, 4  # of which the likelier fit is kept, after so many rounds
CHECKED = 3  # rounds after which those that have settled are taken out
FLOOR = 1e-3  # least variance of a component, in units of the whole's


def checked_sizes(components: Sequence[int]) -> tuple[int, ...]:
    """Sizes of mixtures, ascending, each once."""
    given = validation.listed(
        "components", components, "a sequence of numbers of clusters, such as (1, 4, 8)"
    )
    return tuple(
        sorted({validation.integer("components", each, maximum=MOST_COMPONENTS) for each in given})
    )


def responsibilities(
    heads: Heads,
    components: tuple[int, ...],
    sinks: int = 0,
    seed: int = 0,
    present: Tensor | None = None,
) -> dict[int, Tensor]:
    """Which token belongs to which component, for each number of components: shapes (batch, groups,
    S, sinks + K).

    A mixture of Gaussians with diagonal covariances is fitted to keys and values jointly, each
    coordinate scaled to unit variance, by expectation-maximisation from k-means++ starts, all heads
    and texts side by side but none aware of the others. The first ``sinks`` tokens, and a model's
    own atoms before them, are components of their own (attention sinks, read exactly). Fitting
    needs no scores, so that it is done once for a layer; the read-out then takes the full
    covariance of each component along the query's tilt. Tokens that are not ``present``, by default
    those that no query may read, belong to none.
    """
    b, g, s, _ = heads.key.shape
    sinks = min(heads.atoms + sinks, s)
    given = heads.present if present is None else present  # padding must not make clusters
    present = given.expand(b, s).to(heads.wide)[:, None, :, None]
    fitted = {}
    if s > sinks:
        parts = [
            _standardised(each.to(heads.wide), present)[:, :, sinks:]
            for each in (heads.key, heads.value)
        ]
        powers = torch.cat([*(each.square() for each in parts), *parts], -1).flatten(0, 1)
        del parts  # as large as the keys and values
        fitted = _fits(
            powers, present[:, :, sinks:, 0].expand(b, g, -1).flatten(0, 1), components, seed
        )
    found = {}
    for count in components:
        member = present.new_zeros(b, g, s, sinks + count)
        member[:, :, :sinks, :sinks] = torch.eye(sinks, device=member.device)
        if fitted:
            member[:, :, sinks:, sinks:] = fitted[count].reshape(b, g, count, s - sinks).mT
        found[count] = member
    return found


def _standardised(tokens: Tensor, present: Tensor) -> Tensor:
    """Mean 0 and variance 1 over the tokens that are present."""
    total = present.sum(2, keepdim=True).clamp_min(1.0)
    centred = tokens - (tokens * present).sum(2, keepdim=True) / total
    return centred / ((centred.square() * present).sum(2, keepdim=True) / total).sqrt().clamp_min(
        1e-12
    )


def _fits(powers: Tensor, weight: Tensor, counts: tuple[int, ...], seed: int) -> dict[int, Tensor]:
    """Responsibilities (n, K, S) of diagonal Gaussian mixtures fitted to x (n, S, D) with weights
    (n, S), for each size K.

    ``powers`` are x² and x side by side, (n, S, 2D). All sizes and starts climb together, so that
    tokens are read once a round for all of them; after a few rounds the likelier start goes on
    alone.
    """
    sizes = [(count, STARTS if count > 1 else 1) for count in counts]
    nearest = _nearest(powers.chunk(2, -1)[1], weight, max(counts), seed)
    places = torch.arange(max(counts), device=weight.device)[:, None]
    each = [
        (nearest[count][:, :starts, None] == places[:count]).flatten(1, 2)
        for count, starts in sizes
    ]
    member, likelihood = _climb(
        powers, weight, torch.cat(each, 1).to(weight.dtype) * weight[:, None], sizes, TRIAL
    )
    kept, column, fit = list[Tensor](), 0, 0
    for count, starts in sizes:
        tried = member[:, column : column + starts * count].unflatten(1, (starts, count))
        best = likelihood[:, fit : fit + starts].argmax(1)
        kept.append(
            tried.gather(1, best[:, None, None, None].expand(-1, 1, *tried.shape[2:])).squeeze(1)
        )
        column, fit = column + starts * count, fit + starts
    member, _ = _climb(
        powers, weight, torch.cat(kept, 1), [(count, 1) for count in counts], ROUNDS - TRIAL
    )
    return dict(zip(counts, member.split(list(counts), 1), strict=True))


def _climb(
    powers: Tensor, weight: Tensor, member: Tensor, sizes: list[tuple[int, int]], rounds: int
) -> tuple[Tensor, Tensor]:
    """At most so many rounds of expectation-maximisation of several mixtures at once, ``sizes`` of
    pairs (components, starts).

    ``powers`` are x² and x side by side, (n, S, 2D), and ``member`` has the shape (n, components of
    all, S). Gives the last responsibilities, and the log-likelihood per token and coordinate of
    each mixture, shape (n, mixtures).
    """
    n, dim = len(powers), powers.shape[-1] // 2
    total = weight.sum(-1, keepdim=True).clamp_min(1.0)
    final, reached = member, powers.new_full((n, sum(starts for _, starts in sizes)), -torch.inf)
    likelihood, going = reached, torch.ones_like(reached, dtype=torch.bool)
    at = torch.arange(n, device=powers.device)
    for turn in range(1, rounds + 1):
        mass = member.sum(-1, keepdim=True).clamp_min(1e-9)  # (n, components, 1)
        square, mean = (summed(member, powers) / mass).split(dim, -1)
        variance = (square - mean.square()).clamp_min(FLOOR)
        slope = torch.cat([-0.5 / variance, mean / variance], -1)
        constant = (
            torch.log(mass / total[..., None])
            - (mean.square() / variance + torch.log(variance)).sum(-1, keepdim=True) / 2
        )
        log_joint = torch.baddbmm(constant, slope, powers.mT)
        member, level = expectation(log_joint, member, weight, sizes, going)
        level = level / (total * dim)
        likelihood, going = (
            torch.where(going, level, likelihood),
            going & ((level - likelihood).abs() >= SETTLED),
        )
        if turn % CHECKED == 0 or turn == rounds:
            left = going.any(-1).nonzero().squeeze(-1)
            if len(left) == len(at) and turn < rounds:
                continue
            final, reached = final.index_copy(0, at, member), reached.index_copy(0, at, likelihood)
            if not len(left) or turn == rounds:
                break
            at, powers, weight, total, member, likelihood, going = (
                each[left] for each in (at, powers, weight, total, member, likelihood, going)
            )
    return final, reached


def expectation(
    log_joint: Tensor, member: Tensor, weight: Tensor, sizes: list[tuple[int, int]], going: Tensor
) -> tuple[Tensor, Tensor]:
    """Responsibilities of all mixtures, (n, components, S), and their log-likelihoods, (n,
    mixtures); ``member`` where settled.
    """
    moved, level = [], []
    for block, (count, starts) in zip(
        log_joint.split([count * starts for count, starts in sizes], 1), sizes, strict=True
    ):
        block = block.unflatten(1, (starts, count))
        highest = block.amax(2, keepdim=True)
        share = (block - highest).exp_()
        norm = share.sum(2, keepdim=True)
        moved.append(share.mul_(weight[:, None, None] / norm).flatten(1, 2))
        level.append(((highest + torch.log(norm)).squeeze(2) * weight[:, None]).sum(-1))
    widths = torch.tensor(
        [count for count, starts in sizes for _ in range(starts)], device=member.device
    )
    climbs = going.repeat_interleave(widths, 1, output_size=member.shape[1])[..., None]
    # one that has settled waits for the others
    return torch.where(climbs, torch.cat(moved, 1), member), torch.cat(level, -1)


def _nearest(x: Tensor, weight: Tensor, most: int, seed: int) -> list[Tensor]:
    """Place of the nearest of the first K k-means++ centres, shape (n, starts, S), for K = 0, 1,
    ..., ``most``.

    Each next centre is drawn with chances as the squared distance to the nearest so far.
    """
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
        # (n, starts, 1)
        index = torch.searchsorted(heap, drawn, right=True).clamp_max(x.shape[1] - 1)
        centre = x.gather(1, index.expand(-1, -1, x.shape[-1]))
        # (n, starts, S)
        distance = torch.baddbmm(length.mT, centre, x.mT, alpha=-2) + centre.square().sum(
            -1, keepdim=True
        )
        distance = distance.clamp_min_(0.0)
        label = torch.where(distance < best, place, label)
        best = torch.minimum(best, distance)
        chances = best * weight[:, None]
        found.append(label)
    return found


def mixture_read_outs(rows: Rows, members: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Outputs (batch, heads, t, o) and log-normalisers (batch, heads, t) of mixtures that
    responsibilities describe.

    Component c of weight π_c reads as a Gaussian with its own moments over the keys that the query
    may see, v̄_c + Cov_c(v, s), and weighs π_c e^{s̄_c + Var_c(s)/2} in the tilt. With p_c its
    share of the tilt and M_c = Σ_l m_lc its mass, that is Σ_l v_l Σ_c (p_c/M_c)(1 + s_l - s̄_c)
    m_lc: one sum over the values, however many components there are.
    """
    offset, scores = rows.centred()  # however large their mean is
    every = torch.cat(list(members), -1)
    mass = rows.total(every).expand(*scores.shape[:3], -1)  # (batch, heads, t, K)
    safe = mass.clamp_min(1e-12)
    mean_score = rows.read(rows.weighted(scores), every) / safe
    variance = (
        rows.read(rows.weighted(scores.square()), every) / safe - mean_score.square()
    ).clamp_min(0.0)
    log_weight = torch.where(mass > 1e-9, torch.log(safe) + mean_score + variance / 2, -torch.inf)
    sizes = [member.shape[-1] for member in members]
    found = []
    for member, level, centre, total in zip(
        members, *(each.split(sizes, -1) for each in (log_weight, mean_score, safe)), strict=True
    ):
        normaliser = level.logsumexp(-1)
        share = torch.exp(level - normaliser[..., None]) / total
        one, other = (_spread(rows, each, member) for each in (share, share * centre))
        # each as large as the scores
        weights = rows.forbid(rows.weighted(other.neg_().add_(one).addcmul_(one, scores)))
        del one, other
        found.append((rows.read(weights), offset + normaliser - torch.log(rows.number())))
    return found


def _spread(rows: Rows, shares: Tensor, member: Tensor) -> Tensor:
    """Σ_c shares_c m_lc: shape (batch, heads, t, S) from (batch, heads, t, K) and responsibilities
    (batch, groups, S, K).
    """
    b, h, t, k = shares.shape
    return (shares.reshape(b, h // rows.share, rows.share * t, k) @ member.mT).reshape(b, h, t, -1)
