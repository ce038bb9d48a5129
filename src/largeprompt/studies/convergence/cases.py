"""Short prompts, regression, sharpness of certificates, regimes, and length scaling."""

import math

import numpy as np
import torch
import xarray as xr

from largeprompt.attention import SoftmaxAttention
from largeprompt.certificates import certificate
from largeprompt.law import collision_moments, finite_prompt, regime
from largeprompt.measures import GaussianMixture, Measure
from largeprompt.planning import length_scaling, log_n_scaling, yarn_scaling
from largeprompt.runs.study import Progress
from largeprompt.studies.convergence.config import ConvergenceConfig, condition
from largeprompt.studies.convergence.curves import standard
from largeprompt.studies.covariances import KINDS
from largeprompt.studies.lengths import error_curves
from largeprompt.studies.ranges import length_grid
from largeprompt.training import LinearRegression

F = torch.float64
SCALAR = SoftmaxAttention(torch.ones(1, 1, dtype=F), torch.ones(1, 1, dtype=F))  # U = V = 1
GROWTHS = (2, 8, 32, 128)  # how many times longer a prompt is read


def short(config: ConvergenceConfig, dim: int, progress: Progress) -> xr.Dataset:
    """Errors of the limit and of the first order in one dimension, from L = 1 on."""
    eye, lengths = torch.eye(dim, dtype=F), config.short_lengths(config.short_per_decade)
    z = torch.tensor(config.short_variances, dtype=F).sqrt().unsqueeze(-1) * eye[0]
    attention, mu = SoftmaxAttention(eye, eye), standard("gaussian", dim)
    data = error_curves(attention, mu, z, lengths, "short_variance")
    return data.rename(
        {name: f"short_{name}" for name in (*data.data_vars, "length")}
    ).assign_coords(short_variance=list(config.short_variances))


def regression(config: ConvergenceConfig, number: float, progress: Progress) -> xr.Dataset:
    """Risk at the infinite-prompt endpoint of Theorem 5.1, b = tr(Σ⁻²)^¼, A = Σ⁻¹/b, W = I/d."""
    d, s2 = config.regression_dim, config.regression_noise
    sigma = torch.diag(torch.from_numpy(condition(number, d)))
    task = LinearRegression(sigma, torch.eye(d, dtype=F) / d, s2)
    inverse = torch.linalg.inv(sigma)
    b = float(torch.trace(inverse @ inverse)) ** 0.25
    lengths = config.short_lengths(config.regression_per_decade)
    A, read = (inverse / b).expand(len(lengths), d, d), torch.full((len(lengths),), b, dtype=F)
    risk = [task.block_risks(A, read, lengths, kind).numpy() for kind in KINDS.values()]
    return xr.Dataset(
        {
            "risk": (("attention", "regression_length"), risk),
            "limit_risk": s2 / 2,
            "zero_risk": (s2 + float(torch.trace(sigma)) / d) / 2,
        },
        coords={"attention": list(KINDS), "regression_length": np.asarray(lengths, float)},
    )


def family(config: ConvergenceConfig, law: str) -> tuple[Measure, list[float]]:
    """A law of scalar tokens, the least favorable case, and its tilts."""
    if law == "Gaussian":
        return standard("gaussian", 1), [math.sqrt(q) for q in config.sharpness_variances]
    means, spreads = torch.tensor([[-1.0], [1.0]], dtype=F), torch.tensor([0.5, 0.3], dtype=F)
    shares = torch.tensor([0.3, 0.7], dtype=F)
    return GaussianMixture(shares, means, spreads[:, None, None]), list(config.sharpness_tilts)


def sharpness(config: ConvergenceConfig, law: str, progress: Progress) -> xr.Dataset:
    """Certified bound over exact error of one law, from L below ρ = e^{Λ(2u) - 2Λ(u)} to 10⁵ ρ."""
    mu, tilts = family(config, law)
    multiples = np.logspace(-0.5, 5, config.sharpness_points)
    ratio, rho = np.empty((len(tilts), len(multiples))), np.empty(len(tilts))
    for i, tilt in enumerate(tilts):
        z = torch.tensor([tilt], dtype=F)
        rho[i] = math.exp(float(mu.cgf(2 * z) - 2 * mu.cgf(z)))
        lengths = [max(1, round(multiple * rho[i])) for multiple in multiples]
        exact = finite_prompt(SCALAR, mu, z, lengths).mse
        ratio[i] = (certificate(SCALAR, mu, z, lengths).bound / exact).numpy()
    return xr.Dataset(
        {"ratio": (("case", "multiple"), ratio), "rho": ("case", rho)},
        coords={"multiple": multiples, "law": ("case", [law] * len(tilts))},
    )


def regimes(config: ConvergenceConfig, progress: Progress) -> xr.Dataset:
    """Exact effective number of tokens 1/E Y, and the name of the regime, by σ² and L."""
    variance = np.linspace(0.0, 40.0, config.regime_variances)
    lengths, sigma = length_grid(1e12, config.regime_lengths), torch.from_numpy(np.sqrt(variance))
    tokens = [1 / collision_moments(int(length), sigma).collision.numpy() for length in lengths]
    names = [[regime(q, int(length)) for q in variance] for length in lengths]
    axes = ("regime_length", "regime_variance")
    return xr.Dataset(
        {"effective_tokens": (axes, tokens), "regime": (axes, names)},
        coords={"regime_length": lengths.astype(float), "regime_variance": variance},
    )


def scaling(config: ConvergenceConfig, progress: Progress) -> xr.Dataset:
    """Exact factor that keeps the effective tokens as prompts grow, beside two published ones.

    At the variance ln(L)/2, that is α = 1/2, log-n is right to first order; at 2.5, YaRN is.
    """
    length = config.reference_length
    variances, growth = [1.0, 2.5, math.log(length) / 2, 10.0], np.asarray(GROWTHS)
    factors = length_scaling(growth * length, length, torch.tensor(variances, dtype=F)[:, None])
    return xr.Dataset(
        {
            "factor": (("scaled_variance", "growth"), factors.numpy()),
            "log_n_factor": ("growth", log_n_scaling(growth * length, length).numpy()),
            "yarn_factor": ("growth", yarn_scaling(growth * length, length).numpy()),
        },
        coords={"scaled_variance": variances, "growth": growth},
    )
