"""Exact expectations over prompts of scalar tokens with any tails, and what they tend to."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from largeprompt.attention import SoftmaxAttention
from largeprompt.law import finite_prompt
from largeprompt.law.density import inner_grid, outer_grid, survival
from largeprompt.law.quadrature import falling_factorial_weight, log_survival
from largeprompt.measures import LaplaceLaw, Product, ScalarLaw, StudentTLaw
from largeprompt.measures.scalar.density import HasDensity

Array = NDArray[np.float64]
ONE = torch.ones(1, 1, dtype=torch.float64)
ATTENTION = SoftmaxAttention(ONE, ONE)


def squared_weights(law: ScalarLaw, tilt: float, lengths: Sequence[int]) -> Array:
    """E Σ w² of prompts read with a tilt, one for each length."""
    found = finite_prompt(ATTENTION, Product([law]), tilt * ONE[0], list(lengths))
    return 1 / found.effective_tokens.numpy()


def spread_of_squared_weights(law: HasDensity, tilt: float, lengths: Sequence[int]) -> Array:
    """Variance of Σ w² between prompts, for a tilt > 0: docs/mathematics/quadrature.md.

    Of G_a = E e^{as - e^s} the fourth moments are 6 E(Σ w²)² = L∫G_4 φ^{L-1} + L(L-1)∫G_2² φ^{L-2}.
    """
    tokens, known = np.array(lengths, dtype=np.float64), law.density()
    x, measure = outer_grid(known, tilt, float(tokens.max()))
    rows = max(1, 2**21 // inner_grid(x[:1], known, tilt)[0].size)
    mean, fourth = np.zeros((2, len(tokens)))
    for start in range(0, len(x), rows):
        part = slice(start, start + rows)
        score, s, weights = inner_grid(x[part], known, tilt)
        mass, grown = weights * known.density(score / tilt) / tilt, np.exp(s)
        log_phi = log_survival(*survival(x[part], known, tilt, mass, s))[:, None]
        two, four = ((mass * np.exp(-grown) * grown**a).sum((-2, -1)) for a in (2, 4))
        once, twice = (falling_factorial_weight(tokens, k, log_phi) for k in (1, 2))
        two, four, squared = (measure[part] * each for each in (two, four, two**2))
        mean += two @ once
        fourth += four @ once + squared @ twice
    return np.maximum(fourth / 6 - mean**2, 0.0)


def argmax_rate(df: float, scale: float, tilt: float, lengths: Array) -> Array:
    """νΓ(2+1/ν)/(u (cL)^{1/ν}), to which 1 - E Σ w² tends for tails P(z > x) ~ c x^{-ν}.

    Here of Student-t with ν = df: formula (tail.1) of docs/mathematics/heavy_tails.md.
    """
    log_c = math.lgamma((df + 1) / 2) - math.lgamma(df / 2)
    log_c = log_c - math.log(df * math.pi) / 2 + (df - 1) / 2 * math.log(df)
    spread = scale * np.exp((log_c + np.log(lengths)) / df)  # (cL)^{1/ν}
    return np.asarray(math.exp(math.log(df) + math.lgamma(2 + 1 / df)) / (tilt * spread))


def asymptote(law: ScalarLaw, tilt: float, lengths: Array) -> Array:
    """What E Σ w² tends to as L grows.

    Student-t: 1 - rate. Laplace with α = √2/u: e^{Λ(2u) - 2Λ(u)}/L for α > 2 (the Gaussian law
    too); ½αΓ(2-α)Γ(α) e^{-αΛ(u)} L^{1-α} for 1 < α < 2; 1 - α beyond the edge.
    """
    if isinstance(law, StudentTLaw) and not math.isinf(law.df):
        return 1 - argmax_rate(law.df, law.scale, tilt, lengths)
    alpha = math.sqrt(2) / tilt if isinstance(law, LaplaceLaw) else math.inf
    if alpha < 1:
        return np.full_like(lengths, 1 - alpha)
    once, twice = law.cgf(torch.tensor([tilt, 2 * tilt], dtype=torch.float64)).tolist()
    if alpha > 2:
        return math.exp(twice - 2 * once) / lengths
    level = alpha / 2 * math.gamma(2 - alpha) * math.gamma(alpha) * math.exp(-alpha * once)
    return level * lengths ** (1 - alpha)
