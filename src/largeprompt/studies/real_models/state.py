"""A head whose cache does not grow: first and last keys, and moments of the others."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from largeprompt.audit.heads import Heads, Rows

STATES = ("window", "moments")  # what is known of the other keys: nothing, or their moments
SINKS = 1  # first keys that every state keeps: many heads put most of their weight there


def state_read_out(
    heads: Heads, recent: Sequence[int], positions: Tensor | None = None, *, moments: bool
) -> Tensor:
    """Return what causal heads give that keep a state of constant size instead of all keys.

    A query reads the first key and the last m up to its own exactly, Z₁ = Σ e^s and T₁ = Σ e^s
    v/Z₁. With ``moments`` the state also knows the number n and the moments of the other keys, and
    reads them as Gaussian ones, with a tilt no larger than the largest of n scores allows: with
    τ = min(σ, √(2 ln n)),

        Z₂ = n e^{s̄ + τσ - τ²/2},    T₂ = v̄ + Cov(v, s) τ/σ,

    which are n e^{s̄ + σ²/2} and v̄ + Cov(v, s) in the linear regime. The output is
    (Z₁T₁ + Z₂T₂)/(Z₁ + Z₂).

    ``recent`` are numbers m; the result has the shape (numbers m, batch, heads, positions, o).
    """
    place = torch.arange(heads.key.shape[2], device=heads.key.device)
    ahead, parts = heads.key.shape[2] - heads.query.shape[2], []
    for piece, rows in heads.rows(positions):
        every = rows.everyone().bool() if rows.allowed is None else rows.allowed
        first, last = place < heads.atoms + SINKS, piece[:, None] + ahead
        near = [every & (first | (place > last - m)) for m in recent]
        parts.append(torch.stack([_read(rows, each, every & ~each, moments) for each in near]))
    return torch.cat(parts, 3)


def _read(rows: Rows, near: Tensor, far: Tensor, moments: bool) -> Tensor:
    """Output of keys that are ``near``, exactly, and of those that are ``far`` by their moments."""
    exact, rest = (dataclasses.replace(rows, allowed=allowed) for allowed in (near, far))
    whole = exact.whole()
    output = torch.nan_to_num(exact.read(torch.softmax(whole, -1)))  # padding that sees no key
    if not moments:
        return output
    others, mass = _gaussian(rest)
    share = torch.sigmoid(mass - whole.logsumexp(-1))[..., None]
    return torch.where((rest.number() > 0)[..., None], output + share * (others - output), output)


def _gaussian(rows: Rows) -> tuple[Tensor, Tensor]:
    """Output T₂ (batch, heads, t, o) and log Z₂ (batch, heads, t) of keys read by their moments."""
    (mean, scores), number = rows.centered(), rows.number().clamp_min(1)
    spread = (rows.weighted(scores.square()).sum(-1) / number).sqrt()
    # standard deviations that the largest of so many scores is above the mean
    tilt = torch.minimum(spread, (2 * torch.log(number)).sqrt())
    value, covariance = (
        rows.read(each) / number[..., None] for each in (rows.everyone(), rows.weighted(scores))
    )
    output = value + covariance * (tilt / spread.clamp_min(1e-12))[..., None]
    return output, torch.log(number) + mean + tilt * spread - tilt.square() / 2


def state_tokens(recent: int, moments: bool, width: int) -> float:
    """Return the size of a state in tokens of an ordinary cache.

    The moments are a number, both means, and the covariances of keys and of keys and values.
    """
    cluster = 1 + 2 * width + width * (width + 1) // 2 + width**2
    return SINKS + recent + moments * cluster / (2 * width)
