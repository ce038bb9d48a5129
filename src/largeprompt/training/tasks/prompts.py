"""Gradients of the loss over drawn prompts, which stream by in chunks.

Where tokens are Gaussian given the context, as in linear regression, two scalars for each token are
drawn instead of D: with x = Rξ, the scores u·x and the read-outs v·x depend on ξ through its
components along a = R^T u and b = R^T v alone. Given those, the two sums Σ α_l ξ_l and Σ β_l ξ_l
that a gradient needs are Gaussian in the other directions, with covariances Σ α², Σ αβ, Σ β²; that
pair of vectors is drawn once for each prompt. Nothing is approximated: formula (dyn.18) of
docs/mathematics/dynamics.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from largeprompt.attention import Attention, SoftmaxAttention
from largeprompt.measures import RunningTilt

CHUNK_NUMBERS = {"cpu": 2**22, "cuda": 2**27}  # drawn at a time while a long prompt streams by
CHUNK_SCALARS = {"cpu": 2**16, "cuda": 2**24}  # tokens of which two scalars are drawn at a time
Gradients = tuple[Tensor, Tensor, Tensor]  # mean loss, and its gradients in U and V


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Standard normal numbers in float64, on the device of the generator."""
    return torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)


def _at_once(chunks: dict[str, int], device: torch.device) -> int:
    return chunks.get(device.type, chunks["cuda"])


def mean_gradients(query: Tensor, pull: Tensor, error: Tensor, mean: Tensor) -> Gradients:
    """Mean loss and gradients from what :func:`prompt_factors` gives for n prompts."""
    loss = error.square().sum(-1).mean(-1) / 2
    count = query.shape[-2]
    return loss, pull.mT @ query / count, error.mT @ mean / count


@torch.no_grad()
def drawn_gradients(
    attention: Attention,
    contexts: Tensor,
    query: Tensor,
    answer: Tensor,
    length: int,
    draw_parts: Callable[[Tensor, int], Iterator[Tensor]],
) -> Gradients:
    """Mean loss ½‖read-out - answer‖² over prompts that ``draw_parts`` (contexts, chunk) draws, and
    its gradients.

    Formula (dyn.13) of docs/mathematics/dynamics.md; for linear attention C = (1/L) Σ x_l x_l^T and
    m = Cu.
    """
    U, V = attention.U.detach().to(torch.float64), attention.V.detach().to(torch.float64)
    softmax = isinstance(attention, SoftmaxAttention)
    most = _at_once(CHUNK_NUMBERS, U.device) // (len(query) * U.shape[-1] ** 2)
    parts = draw_parts(contexts, max(1, most))
    if length <= most:
        (tokens,) = parts
        factors = prompt_factors(type(attention), U, V, tokens, query, answer)
        return mean_gradients(query, *factors)
    u = query @ U.mT
    if softmax:
        states = (RunningTilt.of(u.unsqueeze(-2), tokens, covariance=True) for tokens in parts)
        state = functools.reduce(RunningTilt.merge, states)
        assert state.covariance is not None  # asked for above
        mean, covariance = state.mean.squeeze(-2), state.covariance.squeeze(-3)
    else:
        covariance = functools.reduce(torch.add, (part.mT @ part for part in parts)) / length
        mean = (covariance @ u.unsqueeze(-1)).squeeze(-1)
    error = mean @ V.mT - answer  # (batch, o)
    pull = ((error @ V).unsqueeze(-2) @ covariance).squeeze(-2)
    return mean_gradients(query, pull, error, mean)


def prompt_factors(
    kind: type[Attention], U: Tensor, V: Tensor, tokens: Tensor, query: Tensor, answer: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """pull (..., n, D), error (..., n, o), mean (..., n, D) of every prompt: its gradients are pull
    z^T in U, error mean^T in V.

    With m and C the tilted mean and covariance, error = Vm - y and pull = C V^T error, a weighted
    sum over tokens that needs no C; U (..., D, D), V (..., o, D), tokens (..., n, L, D), queries z
    (..., n, D), answers y (..., n, o). Linear attention has (1/L) Σ x x^T in the place of C.
    """
    softmax = issubclass(kind, SoftmaxAttention)
    tilt = query @ U.mT
    scores = (tokens @ tilt.unsqueeze(-1)).squeeze(-1)
    weights = torch.softmax(scores, -1) if softmax else scores / tokens.shape[-2]
    mean = (weights.unsqueeze(-2) @ tokens).squeeze(-2)
    error = mean @ V.mT - answer
    back = (tokens @ (error @ V).unsqueeze(-1)).squeeze(-1)
    back = (
        weights * (back - (weights * back).sum(-1, keepdim=True))
        if softmax
        else back / tokens.shape[-2]
    )
    return (back.unsqueeze(-2) @ tokens).squeeze(-2), error, mean


def regression_factors(
    root: Tensor,
    kind: type[Attention],
    U: Tensor,
    V: Tensor,
    query: Tensor,
    answer: Tensor,
    length: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor]:
    """What :func:`prompt_factors` gives for freshly drawn tokens Rξ, without drawing all of them; R
    (n, D, D), one output.
    """
    softmax = issubclass(kind, SoftmaxAttention)
    u, v = query @ U.mT, V.expand(len(query), -1, -1)[:, 0]
    a, b = ((vector.unsqueeze(-2) @ root).squeeze(-2) for vector in (u, v))
    first, second = weighted_sums(a, b, length, generator, softmax=softmax).unbind(1)
    along = (b * first).sum(-1, keepdim=True)  # v·m
    error = along - answer
    pull = error * (second - along * first if softmax else second)
    mean, pull = ((root @ vector.unsqueeze(-1)).squeeze(-1) for vector in (first, pull))
    return pull, error, mean


def weighted_sums(
    a: Tensor, b: Tensor, length: int, generator: torch.Generator, *, softmax: bool
) -> Tensor:
    """Σ α_l ξ_l and Σ β_l ξ_l over L standard normal ξ_l in R^D, drawn anew for each row of a and b
    (n, D): shape (n, 2, D).

    With s = a·ξ and p = b·ξ: α = softmax(s), β = αp; or, for linear attention, α = s/L, β = p/L.
    """
    first, size = _unit(a)
    across = (b * first).sum(-1, keepdim=True)
    second, rest = _unit(b - across * first)
    sums, gram = _drawn_sums(size, across, rest, length, generator, softmax=softmax)
    factor = gram[:, 0, 0].sqrt()
    slope = gram[:, 0, 1] / torch.where(factor > 0, factor, 1.0)
    left = (gram[:, 1, 1] - slope**2).clamp_min(0.0).sqrt()
    other = normal(generator, 2, *a.shape)  # in the other directions
    for axis in (first, second):
        other = other - (other * axis).sum(-1, keepdim=True) * axis
    rest_of = torch.stack(
        [factor[:, None] * other[0], slope[:, None] * other[0] + left[:, None] * other[1]], 1
    )
    return sums[..., :1] * first.unsqueeze(1) + sums[..., 1:] * second.unsqueeze(1) + rest_of


def _drawn_sums(
    size: Tensor,
    across: Tensor,
    rest: Tensor,
    length: int,
    generator: torch.Generator,
    *,
    softmax: bool,
) -> tuple[Tensor, Tensor]:
    """Σ over (α, β) by (ξ_1, ξ_2), and by (α, β), each (n, 2, 2): with s = size ξ_1 and p = across
    ξ_1 + rest ξ_2, (n, 1) all.
    """
    chunk = max(1, _at_once(CHUNK_SCALARS, size.device) // len(size))
    total: Tensor | None = None  # Σ over (α, β) by (ξ_1, ξ_2, α, β, 1), relative to e^{peak}
    peak = size.new_full((len(size), 1), -torch.inf)
    for done in range(0, length, chunk):
        xi = normal(generator, 2, len(size), min(chunk, length - done))
        scores, read = size * xi[0], across * xi[0] + rest * xi[1]
        if softmax:
            new = torch.maximum(peak, scores.amax(-1, keepdim=True))
            weights, shrink, peak = (
                torch.exp(scores - new),
                torch.exp(peak - new).unsqueeze(-1),
                new,
            )
            pair = torch.stack([weights, weights * read], 1)
        else:
            pair, shrink = torch.stack([scores, read], 1) / length, peak.new_ones(1)
        here = torch.cat(
            [pair @ xi.permute(1, 2, 0), pair @ pair.mT, pair.sum(-1, keepdim=True)], -1
        )
        scale = torch.cat([shrink, shrink, shrink**2, shrink**2, shrink], -1)
        total = here if total is None else scale * total + here
    assert total is not None  # at least one token
    mass = total[:, :1, 4:] if softmax else total.new_ones(())
    return total[..., :2] / mass, total[..., 2:4] / mass**2


def _unit(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Directions and lengths (n, 1) of vectors (n, D); 0 has the direction 0, so that it takes none
    from the others.
    """
    size = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / torch.where(size > 0, size, 1.0), size
