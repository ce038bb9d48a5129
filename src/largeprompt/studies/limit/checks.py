"""The operator against quadratures that know nothing of generating functions, and PyTorch."""

import math

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray

from largeprompt.attention import SoftmaxAttention, affine_limit
from largeprompt.measures import Discrete, Empirical, Gaussian, GaussianMixture, Measure
from largeprompt.runs.study import Progress
from largeprompt.studies.limit.config import LimitConfig

F = torch.float64
Array = NDArray[np.float64]
KINDS = ("regular", "singular", "mixture")


def gaussian_by_grid(mean: Array, root: Array, u: Array) -> Array:
    """∫ x e^{u·x} dμ/∫ e^{u·x} dμ for x = m + Rξ, by a sum over a grid of ξ in at most R²."""
    rank = root.shape[1]
    if rank == 0:
        return mean
    reach = 9.0 + float(np.linalg.norm(root.T @ u))
    lines = [np.arange(-reach, reach, 0.1)] * rank
    xi = np.stack([part.ravel() for part in np.meshgrid(*lines)], -1)
    x = mean + xi @ root.T
    log_weight = x @ u - (xi**2).sum(-1) / 2
    return np.asarray(np.average(x, axis=0, weights=np.exp(log_weight - log_weight.max())))


def mixture_by_tilt(shares: Array, means: Array, roots: Array, u: Array) -> Array:
    """Tilted mean of a mixture in any dimension: shares (k,), means (k, d), roots (k, d, r).

    Of each component only the part t of ξ along R^T u is tilted.
    """
    log_mass, moved = [], []
    for mean, root in zip(means, roots, strict=True):
        a = root.T @ u
        size = float(np.linalg.norm(a))
        t = np.arange(-12.0, size + 12.0, 0.05)
        log_weight = size * t - t**2 / 2
        weight = np.exp(log_weight - log_weight.max())
        log_mass.append(float(u @ mean) + log_weight.max() + math.log(weight.sum()))
        along = root @ a * float(np.average(t, weights=weight)) / size if size else 0.0
        moved.append(mean + along)
    weights = shares * np.exp(np.array(log_mass) - max(log_mass))
    return np.asarray(np.average(moved, axis=0, weights=weights))


def relative(found: Array, expected: Array) -> float:
    """Distance over the norm of what is expected."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def layer(
    dim: int, generator: torch.Generator, q: float, covariance: torch.Tensor
) -> tuple[SoftmaxAttention, torch.Tensor]:
    """Random projections, and a query with score variance q (0 where there is no other)."""
    shapes = ((dim, dim), (dim, dim), (3, dim))
    K, Q, V = (torch.randn(s, generator=generator, dtype=F) / math.sqrt(dim) for s in shapes)
    attention = SoftmaxAttention.from_projections(K, Q, V)
    z = torch.randn(dim, generator=generator, dtype=F)
    u = attention.tilts(z)
    variance = float(u @ covariance @ u)
    return attention, z * math.sqrt(q / variance) if variance > 0 else z


def identity(config: LimitConfig, dim: int, progress: Progress) -> xr.Dataset:
    """Largest relative error of the operator against quadrature, over random layers and queries.

    Tokens are m + Rξ with ξ standard normal; R is square, or half as wide (singular covariance).
    """
    generator = torch.Generator().manual_seed(1000 * config.seed + dim)
    error, affine = np.zeros(len(KINDS)), np.zeros(len(KINDS))
    for kind, name in enumerate(KINDS):
        rank, single = dim // 2 if name == "singular" else dim, name != "mixture"
        shares = torch.tensor([1.0] if single else [0.5, 0.3, 0.2], dtype=F)
        missed = []
        for i in range(config.layers):
            means = torch.randn(len(shares), dim, generator=generator, dtype=F)
            roots = torch.randn(len(shares), dim, rank, generator=generator, dtype=F)
            roots = roots / math.sqrt(max(rank, 1))
            covariances = roots @ roots.mT
            q = config.largest_score_variance * (i + 1) / config.layers
            attention, z = layer(dim, generator, q, covariances.mean(0))
            u, m, R = attention.tilts(z).numpy(), means.numpy(), roots.numpy()
            mu: Measure = GaussianMixture(shares, means, covariances)
            if single:
                mu = Gaussian(means[0], covariances[0])
            if single and rank <= 2:
                tilted = gaussian_by_grid(m[0], R[0], u)
            else:
                tilted = mixture_by_tilt(shares.numpy(), m, R, u)
            expected = attention.V.numpy() @ tilted
            error[kind] = max(error[kind], relative(attention(mu, z).numpy(), expected))
            matrix, offset = affine_limit(attention, mu)
            missed.append(relative((matrix @ z + offset).numpy(), expected))
        affine[kind] = np.median(missed)
    return xr.Dataset(
        {"identity_error": ("kind", error), "affine_error": ("kind", affine)},
        coords={"kind": list(KINDS)},
    )


def operator(config: LimitConfig, progress: Progress) -> xr.Dataset:
    """On prompts against PyTorch's softmax attention, on Gauss-Hermite nodes against their law."""
    generator = torch.Generator().manual_seed(1000 * config.seed + 999)
    d, covariance = 2, torch.tensor([[1.0, 0.4], [0.4, 0.7]], dtype=F)
    mu = Gaussian(torch.tensor([0.3, -0.5], dtype=F), covariance)
    attention, z = layer(d, generator, config.score_variance, covariance)
    limit, root = attention(mu, z), torch.linalg.cholesky(covariance)
    nodes_error, prompt_error = [], []
    for n in config.nodes:
        points, weights = np.polynomial.hermite_e.hermegauss(n)
        grid = torch.cartesian_prod(*[torch.from_numpy(points)] * d)
        mass = torch.cartesian_prod(*[torch.from_numpy(weights / weights.sum())] * d).prod(-1)
        law = Discrete(mu.mean + grid @ root.mT, mass / mass.sum())
        nodes_error.append(relative(attention(law, z).numpy(), limit.numpy()))
    for n in config.prompts:
        K, Q, V = (torch.randn(6, 6, generator=generator, dtype=F) for _ in range(3))
        tokens, queries = (torch.randn(rows, 6, generator=generator, dtype=F) for rows in (n, 5))
        of_six = SoftmaxAttention.from_projections(K, Q, V, scale=1 / math.sqrt(6))
        projected = (queries @ Q.mT)[None], (tokens @ K.mT)[None], (tokens @ V.mT)[None]
        theirs = torch.nn.functional.scaled_dot_product_attention(*projected)[0]
        ours = of_six(Empirical(tokens), queries)
        prompt_error.append(relative(ours.numpy(), theirs.numpy()))
    return xr.Dataset(
        {"nodes_error": ("nodes", nodes_error), "prompt_error": ("prompt", prompt_error)},
        coords={"nodes": list(config.nodes), "prompt": list(config.prompts)},
    )
