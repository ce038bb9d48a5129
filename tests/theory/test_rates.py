"""The rates that the theory declares, in one table, and one test that fits each of them to exact
numbers.

A row is a quantity as a function of the length, the regime it is declared for, the exponent of L,
how far the fitted slope may be from it (logarithms and the next order; the range of lengths is
chosen so that these are small), and where the rate is derived.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

import largeprompt as lp
from largeprompt.runs.judging import log_slope

F = torch.float64
EYE = torch.eye(3, dtype=F)
LAYER = lp.SoftmaxAttention(EYE, EYE)
GAUSSIAN = lp.Gaussian(torch.zeros(3, dtype=F), torch.diag(torch.tensor([1.0, 0.5, 2.0], dtype=F)))
MIXTURE = lp.GaussianMixture(
    [0.4, 0.6], [[1.0, 0.0, 0.0], [-0.5, 0.5, 0.0]], torch.stack([0.5 * EYE, EYE])
)
SCALAR, STANDARD = lp.SoftmaxAttention([[1.0]], [[1.0]]), lp.Gaussian([0.0], [[1.0]])
QUERY = [0.6, -0.4, 0.3]
REGRESSION = lp.LinearRegression(torch.eye(2, dtype=F), torch.eye(2, dtype=F) / 2, 0.1)


def law(mu, name):
    """A number of the exact law at every length, as a norm."""
    return lambda lengths: [
        float(getattr(lp.finite_prompt(LAYER, mu, QUERY, int(n)), name).norm()) for n in lengths
    ]


def collision(lengths):
    """E Σ w² of Gaussian scores of unit variance."""
    return [float(lp.weight_moment(int(n), 1.0, [(2, 0)])) for n in lengths]


def certified(lengths):
    return [float(lp.certificate(LAYER, lp.Rademacher(3), QUERY, int(n)).bound) for n in lengths]


def averaged(square):
    """Error averaged over a standard normal query in one dimension, H² = square: trapezoid rule,
    beyond all queries that count.
    """
    z = torch.linspace(-14.0, 14.0, 141, dtype=F)[70:]
    attention = lp.SoftmaxAttention([[math.sqrt(square)]], [[1.0]])
    density = torch.exp(-z.square() / 2)
    return lambda lengths: [
        float(
            torch.trapezoid(
                lp.finite_prompt(attention, STANDARD, z[:, None], int(n)).mse * density, z
            )
        )
        for n in lengths
    ]


def heavy_collision(tilt):
    """E Σ w² of Laplace tokens, whose weights have the tail index √2/tilt."""
    return lambda lengths: (
        1
        / lp.finite_prompt(
            SCALAR, lp.Laplace(1), [tilt], [int(n) for n in lengths]
        ).effective_tokens.numpy()
    )


def argmax_gap(df):
    """1 - E Σ w² of Student-t tokens: softmax becomes argmax."""
    return lambda lengths: (
        1
        - 1
        / lp.finite_prompt(
            SCALAR, lp.StudentT(1, df), [1.0], [int(n) for n in lengths]
        ).effective_tokens.numpy()
    )


def excess(kind):
    """Least excess risk over A = aI, b at each length."""
    bayes = 0.05
    return lambda lengths: [
        lp.training.isotropic_optimum(REGRESSION, int(n), kind).risk - bayes for n in lengths
    ]


@dataclasses.dataclass(frozen=True)
class Rate:
    quantity: str
    regime: str
    exponent: float
    tolerance: float
    source: str
    values: Callable
    decades: tuple[float, float]


RATES = [
    Rate(
        "E‖T_L - T‖², Gaussian tokens",
        "linear",
        -1,
        1e-3,
        "first order in 1/L",
        law(GAUSSIAN, "mse"),
        (6, 9),
    ),
    Rate(
        "‖E T_L - T‖, Gaussian tokens",
        "linear",
        -1,
        1e-3,
        "first order in 1/L",
        law(GAUSSIAN, "bias"),
        (6, 9),
    ),
    Rate(
        "error of ∂T/∂U, Gaussian tokens (C4)",
        "linear",
        -1,
        1e-3,
        "five coefficients",
        law(GAUSSIAN, "jacobian_u_mse"),
        (6, 9),
    ),
    Rate(
        "error of ∂T/∂V, Gaussian tokens (C4)",
        "linear",
        -1,
        1e-3,
        "the output error at V = I",
        law(GAUSSIAN, "jacobian_v_mse"),
        (6, 9),
    ),
    Rate(
        "E‖T_L - T‖², Gaussian mixture",
        "linear",
        -1,
        1e-3,
        "first order in 1/L",
        law(MIXTURE, "mse"),
        (6, 9),
    ),
    Rate("E Σ w², Gaussian scores", "linear", -1, 1e-3, "E Y ~ e^{σ²}/L", collision, (6, 9)),
    Rate("certificate, signs", "linear", -1, 1e-2, "split bound, second order", certified, (6, 9)),
    Rate(
        "query-averaged error, H² = 0.25 (C3)",
        "random query, H² < 1/2",
        -1,
        0.03,
        "g(H) = 1",
        averaged(0.25),
        (9, 14),
    ),
    Rate(
        "query-averaged error, H² = 2 (C3)",
        "random query, H² > 1/2",
        -0.366,
        0.02,
        "g(H) = √(1/H² + ¼) - ½",
        averaged(2.0),
        (9, 14),
    ),
    Rate(
        "E Σ w², Laplace tokens, u = 0.5",
        "finite second moment",
        -1,
        1e-2,
        "Λ(2u) finite",
        heavy_collision(0.5),
        (8, 12),
    ),
    Rate(
        "E Σ w², Laplace tokens, u = 1.2",
        "tail index α = √2/u < 2",
        1 - math.sqrt(2) / 1.2,
        0.01,
        "L^{1-α}",
        heavy_collision(1.2),
        (8, 12),
    ),
    Rate(
        "1 - E Σ w², Student t, df = 5 (N3)",
        "no limit",
        -1 / 5,
        0.02,
        "ν Γ(2+1/ν)/(u (cL)^{1/ν})",
        argmax_gap(5.0),
        (11, 15),
    ),
    Rate(
        "least excess risk, softmax (C5)",
        "trained",
        -1,
        0.02,
        "long-prompt constants",
        excess(lp.SoftmaxAttention),
        (4, 6),
    ),
    Rate(
        "least excess risk, linear attention (C7)",
        "trained",
        -1,
        1e-3,
        "c/(1 + c)",
        excess(lp.LinearAttention),
        (4, 7),
    ),
]


@pytest.mark.parametrize("rate", RATES, ids=lambda rate: rate.quantity)
def test_declared_rate_is_the_fitted_slope(rate):
    lengths = np.logspace(*rate.decades, 3).round()
    slope = log_slope(lengths, rate.values(lengths))
    assert slope == pytest.approx(rate.exponent, abs=rate.tolerance), (
        f"{rate.quantity}: {slope:.4f}, declared {rate.exponent:.4f}"
    )
