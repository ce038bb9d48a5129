"""The accuracy contract of ``finite_prompt``, against tests/reference/make_finite_prompt.py."""

import functools
import itertools
import json
import math
from pathlib import Path

import pytest
import torch

import largeprompt as lp

F = torch.float64
TABLE = json.loads((Path(__file__).parents[1] / "reference" / "finite_prompt.json").read_text())
LISTED = [case | {"law": "listed"} for case in TABLE["cases"] if case["law"] == "rademacher"]
CASES = TABLE["cases"] + LISTED  # signs are a product, and are atoms
VALUES = torch.tensor([[1.0, -0.5, 0.25], [0.5, 2.0, -1.0], [-0.25, 1.0, 1.5]], dtype=F)
OUTPUTS = {1: 2, 2: 3, 3: 2}  # rows of V, which is not square

# What may be refused, none at present: {law and tilt: {attribute: what the error says}}.
REFUSED: dict[str, dict[str, str]] = {}


class LogCosh(lp.Measure):
    """Signs, as a law of one's own."""

    dim = 1

    def cgf(self, u):
        return torch.log(torch.cosh(u[..., 0]))

    def sample(self, n, generator):
        raise NotImplementedError


class Bernoulli(LogCosh):
    """Zero and one, as a law of one's own."""

    def cgf(self, u):
        return torch.log(0.7 + 0.3 * torch.exp(u[..., 0]))


def listed(dim):
    signs = list(itertools.product([-1.0, 1.0], repeat=dim))
    return lp.Discrete(signs, [0.5**dim] * len(signs))


def mixture(dim):
    means = [[-1.0] * dim, [0.5] + [1.0] * (dim - 1)]
    variances = [[first] + [0.5] * (dim - 1) for first in (0.25, 1.0)]
    return lp.GaussianMixture([0.4, 0.6], means, torch.tensor(variances, dtype=F).diag_embed())


def gaussian(dim, mean, root):
    root = torch.tensor(root, dtype=F)
    return lp.Gaussian(mean, root @ root.mT)


LAWS = {
    "rademacher": lp.Rademacher,
    "listed": listed,
    "log cosh": lambda dim: LogCosh(),
    "bernoulli": lambda dim: Bernoulli(),
    "discrete": lambda dim, atoms, weights: lp.Discrete(atoms, weights),
    "image": lambda dim, matrix, offset: lp.Rademacher(3).map(matrix, offset),
    "sign and uniform": lambda dim: lp.Product([lp.scalar.RademacherLaw(), lp.scalar.UniformLaw()]),
    "uniform": lp.Uniform,
    "laplace": lp.Laplace,
    "quartic": lambda dim: lp.scalar.GeneralizedNormal(dim, shape=4.0),
    "log-normal": lambda dim: lp.scalar.LogNormal(dim, scale=0.5),
    "student": lambda dim: lp.StudentT(dim, df=5.0),
    "sphere": lp.Sphere,
    "mixture": mixture,
    "gaussian": gaussian,
}


def named(case):
    weights = "/".join(f"{w:g}" for w in case["parameters"].get("weights", ()))
    tilt = "u=" + ",".join(f"{x:g}" for x in case["u"])
    return " ".join(filter(None, (case["law"], weights, tilt)))


@functools.cache
def solved(number, square):
    """V, and the law of one case at every length; V is 1, or not square."""
    case, dim = CASES[number], len(CASES[number]["u"])
    V = torch.eye(dim, dtype=F) if square else VALUES[: OUTPUTS[dim], :dim]
    mu, u = LAWS[case["law"]](dim, **case["parameters"]), torch.tensor(case["u"], dtype=F)
    attention = lp.SoftmaxAttention(torch.eye(dim, dtype=F), V)
    return V, lp.finite_prompt(attention, mu, u, [row[0] for row in case["rows"]])


def vector(texts):
    return torch.tensor([float(text) for text in texts], dtype=F)


def symmetric(texts, dim):
    found = torch.zeros(dim, dim, dtype=F)
    i, j = torch.triu_indices(dim, dim)
    found[i, j] = found[j, i] = vector(texts)
    return found


def contract(case, row, V):
    """Each attribute as it should be, and the largest norm of its error.

    E[Y] = 1/effective_tokens, T is the limit of a token x (its mean where there is no limit),
    mse(V) = E|V(T_L - T)|^2 and floor(V) = 1e-13 E[Y] |V|^2 E|x - T|^2, with the spectral norm |V|.

        effective_tokens 1e-8 of itself mse 1e-8 mse(V) + floor(V) bias 1e-8 |bias| + sqrt(floor(V))
        mean 1e-8 |bias| + sqrt(floor(V)) + 1e-14 |VT| covariance 1e-8 |covariance| + 1e-13 mse(V) +
        floor(V): as a part of the mse it is known no better jacobian_v_mse 100 rows(V) (1e-8
        mse(1) + floor(1)) jacobian_u_mse 100 (1e-8 of itself + |z|^2 E|x - T|^2 floor(V))
    """
    dim, (_, (collision,), *texts, jacobian) = len(case["u"]), row
    first, (bias, spread) = case["rows"][0], (vector(texts[0]), symmetric(texts[1], dim))
    token = symmetric(first[3], dim).trace() + vector(first[2]).square().sum()
    collision, outputs, size = float(collision), len(V), vector(case["u"]).square().sum()
    whole = spread.trace() + bias.square().sum()
    limit, bias, spread = V @ vector(case["center"]), V @ bias, V @ spread @ V.mT
    mse = spread.trace() + bias.square().sum()
    floor = 1e-13 * collision * token
    read = floor * torch.linalg.matrix_norm(V, 2) ** 2
    off = 1e-8 * bias.norm() + read.sqrt()
    found = {
        "effective_tokens": (torch.tensor(1 / collision, dtype=F), 1e-8 / collision),
        "mean": (limit + bias, off + 1e-14 * limit.norm()),
        "covariance": (spread, 1e-8 * spread.norm() + 1e-13 * mse + read),
    }
    if case["limited"]:
        found["mse"] = (mse, 1e-8 * mse + read)
        found["bias"] = (bias, off)
        found["jacobian_v_mse"] = (outputs * whole, 100 * outputs * (1e-8 * whole + floor))
    if jacobian:
        value = size * (V @ symmetric(jacobian, dim) @ V.mT).trace()
        found["jacobian_u_mse"] = (value, 100 * (1e-8 * value + size * token * read))
    return found


def excess(value, expected, allowed, signed):
    """The error in units of what is allowed; infinite for NaN and for negative squares."""
    least = value if value.dim() < 2 else value.diagonal()
    if not bool(torch.isfinite(value).all()) or (not signed and float(least.min()) < 0):
        return math.inf
    return float((value - expected).norm() / allowed)


ROWS = [(number, index) for number, case in enumerate(CASES) for index in range(len(case["rows"]))]
IDS = [f"{named(CASES[number])} L={CASES[number]['rows'][index][0]:g}" for number, index in ROWS]


@pytest.mark.parametrize(("number", "index"), ROWS, ids=IDS)
def test_contract(number, index):
    case, found = CASES[number], {}
    refused = REFUSED.get(named(case), {})
    for square in (False, True)[: len(case["u"])]:  # in one dimension V is but a factor
        V, law = solved(number, square)
        for name, (expected, allowed) in contract(case, case["rows"][index], V).items():
            if name in refused:
                with pytest.raises(lp.InvalidArgumentError, match=refused[name]):
                    getattr(law, name)
                continue
            value, signed = getattr(law, name)[index], name in ("mean", "bias")
            found[name, tuple(V.shape)] = excess(value, expected, allowed, signed)
    assert all(value <= 1 for value in found.values()), found


@pytest.mark.parametrize("number", [i for i, case in enumerate(CASES) if not case["limited"]])
def test_no_limit(number):
    for name in ("limit", "bias", "mse", "jacobian_v_mse", "jacobian_u_mse"):
        with pytest.raises(lp.TiltDomainError):
            getattr(solved(number, False)[1], name)
