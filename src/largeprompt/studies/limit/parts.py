"""The operator against quadratures and PyTorch's softmax attention; six laws with their gaps, exact
errors and drawn prompts.
"""

import math
from collections.abc import Callable
from typing import Annotated, Self

import numpy as np
import pydantic
import torch
import xarray as xr

from largeprompt.attention import SoftmaxAttention, affine_limit
from largeprompt.law import finite_prompt
from largeprompt.measures import (
    Discrete,
    Empirical,
    Gaussian,
    GaussianMixture,
    Laplace,
    Measure,
    Rademacher,
    Sphere,
    Uniform,
)
from largeprompt.runs.settings import (
    Dimension,
    Distinct,
    Few,
    Increasing,
    Length,
    Positive,
    Replicas,
    Seed,
    SomeFew,
    Two,
    settings,
)
from largeprompt.runs.study import Progress
from largeprompt.sampling import sample_prompts
from largeprompt.studies.limit import quadrature
from largeprompt.studies.ranges import Longest, length_grid

F = torch.float64
KINDS = ("regular", "singular", "mixture")


@settings
class LimitConfig:
    """Dimensions and random layers of the identities; score variance and lengths of the exact
    errors and of the drawn prompts.
    """

    dims: Increasing[Dimension] = (1, 2, 5, 10, 20, 50, 100, 200)
    layers: Few = 12
    largest_score_variance: Positive = 9.0
    gap_dim: Annotated[int, pydantic.Field(ge=2, le=16)] = 4  # the signs are enumerated
    gap_score_variances: Increasing[Positive] = (0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0)
    nodes: Annotated[Increasing[Few], Two] = (1, 2, 3, 5, 8, 12, 20, 32)
    prompts: Distinct[Length] = (1, 10, 100, 10_000)
    score_variance: Positive = 1.5
    longest: Longest = 1e12
    points: SomeFew = 49
    drawn_lengths: Increasing[Length] = (10, 30, 100, 300, 1000, 3000)
    replicas: Replicas = 1000
    seed: Seed = 0

    @pydantic.model_validator(mode="after")
    def _laplace_has_a_limit(self) -> Self:
        if self.gap_score_variances[-1] >= 2 * self.gap_dim:
            raise ValueError(
                "gap_score_variances below 2 gap_dim: beyond it the tilt of Laplace tokens has no "
                "limit"
            )
        return self


def two_clusters(dim: int) -> GaussianMixture:
    """Two Gaussian clusters on either side of the origin along (1, ..., 1), identity covariance in
    all.
    """
    half = torch.full((dim,), 0.9 / math.sqrt(dim), dtype=F)
    within = torch.eye(dim, dtype=F) - half.unsqueeze(-1) * half
    return GaussianMixture(
        torch.tensor([0.5, 0.5], dtype=F), torch.stack([half, -half]), within.expand(2, dim, dim)
    )


LAWS: dict[str, Callable[[int], Measure]] = {
    "Gaussian": lambda dim: Gaussian(torch.zeros(dim, dtype=F), torch.eye(dim, dtype=F)),
    "Rademacher": Rademacher,
    "uniform": Uniform,
    "Laplace": Laplace,
    "sphere": Sphere,
    "two clusters": two_clusters,
}  # unit covariance all
CONTROLS = tuple(law for law in LAWS if law != "Gaussian")


def _layer(
    dim: int, generator: torch.Generator, q: float, covariance: torch.Tensor
) -> tuple[SoftmaxAttention, torch.Tensor]:
    """Random projections K, Q, V, and a query with score variance q (0 where the covariance allows
    no other).
    """
    K, Q, V = (
        torch.randn(rows, dim, generator=generator, dtype=F) / math.sqrt(dim)
        for rows in (dim, dim, 3)
    )
    attention = SoftmaxAttention.from_projections(K, Q, V)
    z = torch.randn(dim, generator=generator, dtype=F)
    u = attention.tilts(z)
    variance = float(u @ covariance @ u)
    return attention, z * math.sqrt(q / variance) if variance > 0 else z


def identity(config: LimitConfig, dim: int, progress: Progress) -> xr.Dataset:
    """Largest relative error of our operator against quadrature, over random layers and queries.

    Tokens are m + Rξ with ξ standard normal; R is square, or has half as many columns as rows
    (singular covariance).
    """
    generator = torch.Generator().manual_seed(1000 * config.seed + dim)
    error, affine = np.zeros(len(KINDS)), np.zeros(len(KINDS))
    for kind, name in enumerate(KINDS):
        rank = dim // 2 if name == "singular" else dim
        shares = torch.tensor([0.5, 0.3, 0.2] if name == "mixture" else [1.0], dtype=F)
        missed = []
        for i in range(config.layers):
            means = torch.randn(len(shares), dim, generator=generator, dtype=F)
            roots = torch.randn(len(shares), dim, rank, generator=generator, dtype=F) / math.sqrt(
                max(rank, 1)
            )
            covariances = roots @ roots.mT
            q = config.largest_score_variance * (i + 1) / config.layers
            attention, z = _layer(dim, generator, q, covariances.mean(0))
            u, m, R = attention.tilts(z).numpy(), means.numpy(), roots.numpy()
            single = name != "mixture"
            mu: Measure = (
                Gaussian(means[0], covariances[0])
                if single
                else GaussianMixture(shares, means, covariances)
            )
            by_grid = single and rank <= 2
            tilted = (
                quadrature.gaussian_by_grid(m[0], R[0], u)
                if by_grid
                else quadrature.mixture_by_tilt(shares.numpy(), m, R, u)
            )
            expected = attention.V.numpy() @ tilted
            error[kind] = max(error[kind], _relative(attention(mu, z).numpy(), expected))
            matrix, offset = affine_limit(attention, mu)
            missed.append(_relative((matrix @ z + offset).numpy(), expected))
        affine[kind] = np.median(missed)
    return xr.Dataset(
        {"identity_error": ("kind", error), "affine_error": ("kind", affine)},
        coords={"kind": list(KINDS)},
    )


def _relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def gap(config: LimitConfig, progress: Progress) -> xr.Dataset:
    """Distance between limit and affine read-out for laws that are not Gaussian, by our operator
    and by other quadratures.
    """
    d, clusters = config.gap_dim, two_clusters(config.gap_dim)
    attention = SoftmaxAttention(torch.eye(d, dtype=F), torch.eye(d, dtype=F))
    parts = (
        clusters.weights.numpy(),
        clusters.means.numpy(),
        torch.linalg.cholesky(clusters.covariances).numpy(),
    )
    routes: dict[str, Callable[[quadrature.Array], quadrature.Array]] = {
        "Rademacher": quadrature.enumerated_signs,
        "uniform": lambda u: quadrature.product_by_quadrature("uniform", u),
        "Laplace": lambda u: quadrature.product_by_quadrature("Laplace", u),
        "sphere": lambda u: quadrature.sphere_by_quadrature(math.sqrt(d), u),
        "two clusters": lambda u: quadrature.mixture_by_tilt(*parts, u),
    }
    predicted, independent = (
        np.empty((len(CONTROLS), len(config.gap_score_variances))) for _ in range(2)
    )
    for i, law in enumerate(CONTROLS):
        mu = LAWS[law](d)
        matrix, offset = affine_limit(attention, mu)
        for j, q in enumerate(config.gap_score_variances):
            u = np.full(d, math.sqrt(q / d))
            z = torch.from_numpy(u)
            predicted[i, j] = float((attention(mu, z) - matrix @ z - offset).norm())
            # mean 0 and covariance I: the affine read-out is u
            independent[i, j] = np.linalg.norm(routes[law](u) - u)
    grid = ("control", "gap_score_variance")
    return xr.Dataset(
        {"control_gap": (grid, predicted), "control_gap_quadrature": (grid, independent)},
        coords={"control": list(CONTROLS), "gap_score_variance": list(config.gap_score_variances)},
    )


def operator(config: LimitConfig, progress: Progress) -> xr.Dataset:
    """The operator on prompts against PyTorch's softmax attention, and on Gauss-Hermite nodes
    against the law they stand for.
    """
    generator = torch.Generator().manual_seed(1000 * config.seed + 999)
    d = 2
    mu = Gaussian(
        torch.tensor([0.3, -0.5], dtype=F), torch.tensor([[1.0, 0.4], [0.4, 0.7]], dtype=F)
    )
    attention, z = _layer(d, generator, config.score_variance, mu.covariance)
    limit = attention(mu, z)
    root, nodes_error, prompt_error = torch.linalg.cholesky(mu.covariance), [], []
    for n in config.nodes:
        points, weights = np.polynomial.hermite_e.hermegauss(n)
        grid = torch.cartesian_prod(*[torch.from_numpy(points)] * d)
        mass = torch.cartesian_prod(*[torch.from_numpy(weights / weights.sum())] * d).prod(-1)
        law = Discrete(mu.mean + grid @ root.mT, mass / mass.sum())
        nodes_error.append(_relative(attention(law, z).numpy(), limit.numpy()))
    for n in config.prompts:
        K, Q, V = (torch.randn(6, 6, generator=generator, dtype=F) for _ in range(3))
        tokens, queries = (torch.randn(rows, 6, generator=generator, dtype=F) for rows in (n, 5))
        ours = SoftmaxAttention.from_projections(K, Q, V, scale=1 / math.sqrt(6))(
            Empirical(tokens), queries
        )
        projected = (queries @ Q.mT)[None], (tokens @ K.mT)[None], (tokens @ V.mT)[None]
        theirs = torch.nn.functional.scaled_dot_product_attention(*projected)
        prompt_error.append(_relative(ours.numpy(), theirs[0].numpy()))
    return xr.Dataset(
        {"nodes_error": ("nodes", nodes_error), "prompt_error": ("prompt", prompt_error)},
        coords={"nodes": list(config.nodes), "prompt": list(config.prompts)},
    )


def errors(config: LimitConfig, name: str, progress: Progress) -> xr.Dataset:
    """Mean squared distances of attention over L tokens to the limit of their law and to the affine
    read-out: exact, then drawn.

    One query z = (s, ..., s) with U = V = I, so that the score variance is ‖z‖² for every law (all
    have unit covariance).
    """
    eye = torch.eye(config.gap_dim, dtype=F)
    z = math.sqrt(config.score_variance / config.gap_dim) * eye.sum(0)
    attention, mu = SoftmaxAttention(eye, eye), LAWS[name](config.gap_dim)
    every = length_grid(config.longest, config.points).tolist()
    progress(f"{name}: exact law")
    whole, at = (
        finite_prompt(attention, mu, z, lengths) for lengths in (every, config.drawn_lengths)
    )
    first_order = finite_prompt(attention, mu, z, every, expansion=True).mse
    matrix, offset = affine_limit(attention, mu)
    affine = matrix @ z + offset
    gap = whole.limit - affine
    progress(f"{name}: drawing prompts")
    generator = torch.Generator().manual_seed(1000 * config.seed + list(LAWS).index(name))
    # (length, replica, d)
    outputs = sample_prompts(
        attention, mu, z, config.drawn_lengths, config.replicas, generator
    ).outputs
    # (target, length, replica)
    squared = torch.stack([(outputs - target).square().sum(-1) for target in (whole.limit, affine)])
    exact, exact_at_drawn = (
        torch.stack([law.mse, law.mse + 2 * law.bias @ gap + gap @ gap]).numpy()
        for law in (whole, at)
    )
    grid, points = ("quantity", "length"), ("quantity", "drawn_length")
    return xr.Dataset(
        {
            "exact": (grid, exact),
            "first_order": ("length", first_order.numpy()),
            "exact_at_drawn": (points, exact_at_drawn),
            "drawn": (points, squared.mean(-1).numpy()),
            "drawn_standard_error": (points, squared.std(-1).numpy() / math.sqrt(config.replicas)),
            "has_standard_error": mu.tilt_range(z)[1] > 4,
            "gap": float(gap.norm()),
        },
        coords={
            "quantity": ["limit", "affine"],
            "length": np.asarray(every, float),
            "drawn_length": list(config.drawn_lengths),
        },
    )
