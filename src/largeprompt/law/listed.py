"""The error of the derivative in U for few atoms, prompt by prompt: where a sum over ways to share tokens would cancel.

A prompt of atoms is known by how often each occurs. Two atoms at a distance Δ, the second with weight p of the softmax, p* in the
limit, have C_L - Γ = ΔΔ^T (p - p*)(1 - p - p*), and the number of tokens that are the second is binomial: one sum, at every length.
More atoms are listed where prompts are few.
"""

import itertools
import math
from typing import Any

import numpy as np
from scipy.special import expit, gammaln
from torch import Tensor

from largeprompt.law.tokens import Array
from largeprompt.measures import Measure
from largeprompt.measures.finite.atoms import AtomicMeasure

MOST_PROMPTS, MOST_NUMBERS = 200_000, 2_000_000  # that are listed, and the coordinates of their atoms
WHOLE = 2000  # tokens up to which every binomial count is summed
FARTHEST = 60.0  # scores of two atoms, between which no rare count that matters is left out
SPREAD = 40.0  # standard deviations, and 200 tokens beyond, outside which the binomial law is e^{-800}
COARSE = 8.0  # counts to a standard deviation are enough: the sum over all is the trapezoid rule of an analytic function


def can_list(law: Measure, u: Tensor, length: float) -> bool:
    """Whether prompts of this length of this law are few, or of two atoms."""
    if not isinstance(law, AtomicMeasure):
        return False
    points = law.points
    if len(points) == 1:
        return True
    if len(points) == 2:
        return abs(float((points[1] - points[0]) @ u)) <= FARTHEST
    if max(len(points), length) > MOST_PROMPTS:
        return False
    prompts = _prompts(len(points), int(length))
    return prompts <= MOST_PROMPTS and prompts * points.numel() <= MOST_NUMBERS


def _prompts(atoms: int, length: int) -> int:
    return math.comb(length + atoms - 1, min(atoms - 1, length))


def listed_jacobian(law: AtomicMeasure, u: Tensor, length: float, A: Array, B: Array) -> float:
    """E tr(A D B D), D the error of the softmax-weighted covariance of tokens, for symmetric A and B and 1 < L < ∞."""
    points, scores = law.points.numpy(), (law.points @ u).numpy()
    mass = np.full(len(points), 1 / len(points)) if law.weights is None else law.weights.numpy()
    if len(points) == 1:  # of no covariance, whatever the prompt
        return 0.0
    if len(points) == 2:
        apart = points[1] - points[0]
        return float((apart @ A @ apart) * (apart @ B @ apart)) * _two_atoms(float(mass[1]), float(apart @ u.numpy()), length)
    counts = _counts(len(points), int(length))
    with np.errstate(divide="ignore", invalid="ignore"):  # atoms of no mass, or that a prompt lacks
        log_mass = np.log(mass)
        chance = np.where(counts > 0, counts * log_mass, 0.0).sum(1) + gammaln(length + 1) - gammaln(counts + 1).sum(1)
        errors = _covariances(points, np.log(counts) + scores) - _covariances(points, (log_mass + scores)[None])
    return float(np.exp(chance) @ np.einsum("nij,nji->n", A @ errors, B @ errors))


def _counts(atoms: int, length: int) -> Array:
    """How often each atom occurs, for every prompt, shape (prompt, atom): bars between stars."""
    bars = np.array(list(itertools.combinations(range(length + atoms - 1), atoms - 1))).reshape(-1, atoms - 1)
    edges = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, length + atoms - 1)))
    return np.diff(edges, axis=1) - 1.0


def _covariances(points: Array, logits: Array) -> Array:
    """Covariances of the points under softmax(logits), (prompt, d, d), around the likeliest point, where little cancels."""
    weights = np.exp(logits - logits.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    moved = points - points[weights.argmax(1)][:, None]  # (prompt, atom, d)
    mean = np.einsum("nj,njd->nd", weights, moved)
    return np.asarray(np.einsum("nj,njd,nje->nde", weights, moved, moved) - mean[:, :, None] * mean[:, None, :])


def _two_atoms(share: float, apart: float, length: float) -> float:
    """E (p - p*)²(1 - p - p*)², the second atom of probability ``share`` and ``apart`` in score from the first."""
    if share in (0.0, 1.0):
        return 0.0
    centre, other = length * share, length * (1 - share)
    deviation = math.sqrt(centre * (1 - share))
    step = 1.0 if length <= WHOLE else float(max(1, math.floor(deviation / COARSE)))
    reach = length if length <= WHOLE else SPREAD * deviation + 200
    middle = round(centre)
    steps = np.arange(-math.floor(min(reach, middle) / step), math.floor(min(reach, length - middle) / step) + 1)
    n = middle + step * steps
    inner: Array = n[(n > 0) & (n < length)].astype(np.float64)
    off: Array = inner - centre
    rising, falling = np.log1p(off / centre), np.log1p(-off / other)
    odds = math.log(share / (1 - share)) + apart  # of p*
    limit, rest = float(expit(odds)), float(expit(-odds))
    grown = np.expm1(rising - falling)  # odds of p relative to those of p*, less one
    move = limit * rest * grown / (1 + limit * grown)
    error = move * (-math.tanh(odds / 2) - move)
    rest_of: Array = length - inner
    log_chance: Any = _stirling(np.asarray(length)) - _stirling(inner) - _stirling(rest_of)
    log_chance += 0.5 * np.log(length / (2 * math.pi * inner * rest_of))
    log_chance -= _deviance(off / centre, centre) + _deviance(-off / other, other)
    total = step * float(np.exp(log_chance) @ error**2)
    return total + (limit * rest) ** 2 * (math.exp(length * math.log(share)) + math.exp(length * math.log1p(-share)))


def _deviance(x: Any, scale: float) -> Array:
    """scale·((1 + x) log(1 + x) - x), by its series where that cancels."""
    powers = np.arange(2, 18)
    series = x**2 * np.polynomial.polynomial.polyval(-np.clip(x, -0.1, 0.1), 1.0 / (powers * (powers - 1)))
    return np.asarray(scale * np.where(np.abs(x) < 0.1, series, (1 + x) * np.log1p(x) - x))


def _stirling(n: Any) -> Array:
    """log n! less Stirling's formula."""
    near = gammaln(n + 1) - (n + 0.5) * np.log(n) + n - 0.5 * math.log(2 * math.pi)
    return np.asarray(np.where(n < 30, near, 1 / (12 * n) - 1 / (360 * n**3) + 1 / (1260 * n**5) - 1 / (1680 * n**7)))
