"""A head whose cache does not grow: its first and its last keys are read exactly, all others by the
moments of a few clusters.
"""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from largeprompt.audit.clusters import responsibilities
from largeprompt.audit.heads import Heads, Rows


def state_read_out(
    heads: Heads,
    recent: Sequence[int],
    positions: Tensor | None = None,
    *,
    components: int = 1,
    sinks: int = 1,
) -> Tensor:
    """What causal heads give that keep a state of constant size instead of all keys and values.

    A query reads the first ``sinks`` keys and the last m up to its own exactly, Z₁ = Σ e^s and T₁ =
    Σ e^s v/Z₁. Of the others the state knows the numbers n_c and moments of K clusters, and reads
    them as Gaussian ones, also where the largest of n_c scores decides (σ_c > √(2 ln n_c)): with
    τ_c = min(σ_c, √(2 ln n_c)),

        Z_c = n_c e^{s̄_c + τ_c σ_c - τ_c²/2},    T_c = v̄_c + Cov_c(v, s) τ_c/σ_c,

    which are e^{s̄ + σ²/2} and v̄ + Cov(v, s) in the linear regime. The output is (Z₁T₁ + Σ_c Z_c
    T_c)/(Z₁ + Σ_c Z_c).

    Parameters
    ----------
    heads
        Inputs of one attention layer.
    recent
        Numbers m of last keys that are read exactly.
    positions
        Query positions; all by default.
    components
        Number K of clusters: 1 for mean and covariance alone, 0 where the other keys are left out.
        Clusters are fitted to the whole text once, better than a state that is made token by token
        could have them.
    sinks
        First keys that are read exactly, beside the atoms that a model itself has.

    Returns
    -------
    Tensor
        Shape (numbers m, batch, heads, positions, o).

    Examples
    --------
    >>> import torch
    >>> from largeprompt.audit import Heads
    >>> from largeprompt.studies.languagemodel.state import state_read_out
    >>> draw = torch.Generator().manual_seed(0)
    >>> query, key, value = torch.randn(3, 1, 1, 200, 8, generator=draw)
    >>> heads = Heads(query, key, value, causal=True)
    >>> found = state_read_out(heads, [0, 50, 200], torch.tensor([199]))
    >>> exact = found[-1]  # the last 200 of 200 keys
    >>> [round(float((each - exact).norm() / exact.norm()), 2) for each in found]
    [0.28, 0.28, 0.0]
    """
    atoms = heads.atoms + sinks
    if components > 1:
        member = responsibilities(heads, (components,), sinks)[components][
            ..., min(atoms, heads.key.shape[2]) :
        ]
    else:
        member = torch.ones(*heads.key.shape[:3], 1, dtype=heads.wide, device=heads.key.device)
    place = torch.arange(heads.key.shape[2], device=heads.key.device)
    ahead = heads.key.shape[2] - heads.query.shape[2]
    parts = []
    for piece, rows in heads.rows(positions):
        every = rows.everyone().bool() if rows.allowed is None else rows.allowed
        exact = [(place < atoms) | (place > piece[:, None] + ahead - m) for m in recent]
        parts.append(
            torch.stack(
                [_read(rows, every & near, every & ~near, member, components) for near in exact]
            )
        )
    return torch.cat(parts, 3)


def _read(rows: Rows, near: Tensor, far: Tensor, member: Tensor, components: int) -> Tensor:
    """Keys that are ``near`` exactly, those that are ``far`` by the moments of the components."""
    exact, rest = (dataclasses.replace(rows, allowed=allowed) for allowed in (near, far))
    whole = exact.whole()
    normalizer = whole.logsumexp(-1, keepdim=True)
    output = torch.nan_to_num(exact.read(torch.softmax(whole, -1)))  # padding that sees no key
    if not components or not bool(far.any()):
        return output
    others, mass = _clusters(rest, member)
    share = torch.sigmoid(mass - normalizer.squeeze(-1))[..., None]
    return torch.where((rest.number() > 0)[..., None], output + share * (others - output), output)


def _clusters(rows: Rows, member: Tensor) -> tuple[Tensor, Tensor]:
    """Output T₂ (batch, heads, t, o) and log Z₂ (batch, heads, t) of the clusters that the
    responsibilities describe.
    """
    offset, scores = rows.centered()
    everyone = rows.everyone()
    number = rows.read(everyone, member)  # (batch, heads, t, K)
    safe = number.clamp_min(1e-12)
    mean_score = rows.read(scores, member) / safe
    spread = (rows.read(scores.square(), member) / safe - mean_score.square()).clamp_min(0.0).sqrt()
    # standard deviations that the largest of so many scores is above the mean
    most = (2 * torch.log(number.clamp_min(1.0))).sqrt()
    tilt = torch.minimum(spread, most)
    log_mass = torch.where(
        number > 1e-9, torch.log(safe) + mean_score + tilt * spread - tilt.square() / 2, -torch.inf
    )
    normalizer = log_mass.logsumexp(-1)
    share = torch.exp(log_mass - normalizer[..., None])
    output = scores.new_zeros(())
    for c in range(member.shape[-1]):
        one = slice(c, c + 1)
        belongs = member[..., one] * rows.value  # (batch, groups, S, o)
        mean = rows.read(everyone, belongs) / safe[..., one]
        covariance = rows.read(scores, belongs) / safe[..., one] - mean_score[..., one] * mean
        output = output + share[..., one] * (
            mean + covariance * (tilt / spread.clamp_min(1e-12))[..., one]
        )
    return output, offset + normalizer


def state_tokens(
    recent: int, components: int, sinks: int, key_width: int, value_width: int
) -> float:
    """Size of the state in tokens of an ordinary cache: sinks + m + K(1 + d + o + d(d+1)/2 +
    do)/(d + o).

    Each cluster has its weight, the means of keys and values, the covariance of the keys and that
    of keys and values.
    """
    token = key_width + value_width
    cluster = 1 + token + key_width * (key_width + 1) // 2 + key_width * value_width
    return sinks + recent + components * cluster / token
