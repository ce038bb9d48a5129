"""The error of a finite prompt averaged over a random query: exact, a bound, or an estimate."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from largeprompt import validation
from largeprompt.attention import SoftmaxAttention
from largeprompt.attention.operators import one_head, one_law
from largeprompt.certificates import certificate
from largeprompt.certificates.ingredients import binary_exponent, rescaled
from largeprompt.certificates.output import gaussian_collision_bound
from largeprompt.certificates.random_query import gaussian_parts, query_atoms, score_forms
from largeprompt.devices import sheltered
from largeprompt.display.by_length import ByLength
from largeprompt.display.tables import plain
from largeprompt.errors import InvalidArgumentError
from largeprompt.law import collision_moments, finite_prompt
from largeprompt.measures import AtomicMeasure, Gaussian, GaussianMixture, Measure, sobol_points
from largeprompt.measures.numerics.quadratic_form import gaussian_form_rule

Method = Literal["exact", "certified", "estimate"]
METHODS: tuple[str, ...] = get_args(Method)
Errors = Callable[[Sequence[float]], Tensor]  # mean squared errors (length,) of the lengths given
GROUPS = 8
TAIL = 1e-30  # probability beyond the nodes: nothing, also beside an error of 1e-15
# score variances up to SMALL are read through a polynomial of DEGREE coefficients
SMALL, DEGREE = 0.1, 12
NEGLIGIBLE = 1e-17  # share of the sum of bounds below which a node is left out


@dataclasses.dataclass(frozen=True, repr=False)
class QueryAverage(ByLength):
    """Mean over random queries; lengths lead.

    Attributes
    ----------
    mse
        E‖T_L - T‖² over tokens and query, or a bound of it, or an estimate.
    standard_error
        Of the estimate; 0 for the other two.
    length
        L, a number or several.
    method
        'exact', 'certified' or 'estimate'.
    """

    mse: Tensor
    standard_error: Tensor
    length: validation.Lengths
    method: Method

    _size: ClassVar[str] = "mse"
    _numbers: ClassVar[dict[str, str]] = {
        "mse": "mean squared error over tokens and query",
        "rmse": "root mean squared error over tokens and query",
        "standard_error": "standard error of the mean squared error",
    }

    @property
    def rmse(self) -> Tensor:
        """Square root of ``mse``."""
        return self.mse.clamp_min(0.0).sqrt()

    def _words(self, *more: str) -> str:
        return super()._words(self.method, *more)

    def _columns(self) -> dict[str, Any]:
        error = {"standard_error": self.standard_error} if self.method == "estimate" else {}
        return {"mse": self.mse, "rmse": self.rmse} | error

    def _curve(self) -> dict[str, Any]:
        return {"label": f"{self.method}, random query"}

    def __repr__(self) -> str:
        if self.mse.dim():
            return self._summary()
        error = f" ± {float(self.standard_error):.2g}" if self.method == "estimate" else ""
        numbers = f"mse={float(self.mse):.4g}{error}, rmse={float(self.rmse):.4g}"
        return f"QueryAverage({self.method}, length={plain(self.length)}, {numbers})"


@sheltered
def query_average(
    attention: SoftmaxAttention,
    mu: Measure,
    queries: Measure,
    length: validation.Lengths,
    *,
    method: Method = "exact",
    points: int = 4096,
    generator: validation.Randomness | None = None,
) -> QueryAverage:
    """E‖T_L - T‖², or a bound of it, averaged over a random query (Proposition 3.1, claim C3).

    For Gaussian tokens and a Gaussian query an integral over the score variance q = z^TU^TΓUz:
    E[E Y(q)] tr VΓV^T + E[‖VΓUz‖² E[Y - 6 W3 + 6 Y²](q)], docs/mathematics/queries.md. Relative
    error 1e-11; without a gradient.

    Parameters
    ----------
    attention, mu, length
        As for :func:`finite_prompt`; one head.
    queries
        Law of the queries.
    method
        'exact': Gaussian tokens with a Gaussian query or a mixture, and any tokens with finitely
        many queries (``Discrete``, ``Empirical``). 'certified': the same laws, a proved bound.
        'estimate': any laws, from drawn queries; it may miss rare large ones.
    points
        Of an estimate: drawn queries, a power of two of at least 64, in eight groups whose scatter
        is the standard error. Scrambled Sobol points for a Gaussian query or a mixture.
    generator
        Of an estimate: its randomness.

    Examples
    --------
    >>> attention, mu = lp.SoftmaxAttention([[0.5]], [[1.0]]), lp.Gaussian([0.0], [[1.0]])
    >>> from largeprompt.planning import query_average
    >>> exact = query_average(attention, mu, mu, 100)
    >>> proved = query_average(attention, mu, mu, 100, method="certified")
    >>> print(f"{float(exact.mse):.8f} <= {float(proved.mse):.8f}")
    0.01792020 <= 0.02100096
    """
    one_head(attention)
    one_law(mu)
    if not isinstance(queries, Measure):
        allowed = "a law of queries, such as Gaussian(mean, covariance)"
        raise InvalidArgumentError("queries", type(queries).__name__, allowed)
    lengths, several = validation.lengths("length", length)
    if validation.choice("method", method, METHODS) == "estimate":
        groups = [
            finite_prompt(attention, mu, z, lengths).mse.mean(-1)
            for z in drawn(queries, points, generator)
        ]
        stacked = torch.stack(groups)
        mse, spread = stacked.mean(0), stacked.std(0) / math.sqrt(GROUPS)
    else:
        mse = average_errors(attention, mu, queries, method)(lengths)
        spread = torch.zeros_like(mse)
    return QueryAverage(
        *((mse, spread) if several else (mse[0], spread[0])),
        tuple(lengths) if several else lengths[0],
        method,
    )


def drawn(queries: Measure, points: int, generator: validation.Randomness | None) -> list[Tensor]:
    """Eight independent groups of queries, each of shape (points/8, d)."""
    points = validation.integer("points", points)
    if points < 8 * GROUPS or points & (points - 1):
        raise InvalidArgumentError(
            "points", str(points), f"a power of two of at least {8 * GROUPS}"
        )
    validation.affordable(
        "points", points, needed=24.0 * points * (queries.dim + 1), device=queries.device
    )
    generator = validation.generator(generator, queries.device)
    each = points // GROUPS
    if isinstance(queries, Gaussian | GaussianMixture):
        seeds = torch.randint(2**31, (GROUPS,), generator=generator, device=queries.device)
        return [sobol_points(queries, each, int(seed)) for seed in seeds]
    return list(queries.sample(points, generator).reshape(GROUPS, each, queries.dim))


def average_errors(
    attention: SoftmaxAttention, mu: Measure, queries: Measure, method: str
) -> Errors:
    """Function of lengths that gives the exact averages, or bounds of them."""
    if method == "certified":
        return lambda lengths: certificate(attention, mu, queries, list(lengths)).bound
    if isinstance(queries, AtomicMeasure):
        weights, atoms = query_atoms(queries)

        def over_atoms(lengths: Sequence[float]) -> Tensor:
            found = finite_prompt(attention, mu, atoms, list(lengths)).mse
            return (found.to(weights) @ weights).to(mu.dtype)

        return over_atoms
    if isinstance(mu, Gaussian) and isinstance(queries, Gaussian | GaussianMixture):
        return _GaussianAverage(attention, mu, queries)
    given, allowed = (
        f"'exact' for {mu!r} and {queries!r}",
        "Gaussian tokens with a Gaussian query or a mixture, or finitely many queries",
    )
    raise InvalidArgumentError(
        "method", given, allowed, "Use method='estimate' with a generator, which has an error bar."
    )


def _gathered(columns: Any) -> Any:
    """Nodes (first row) and weights, shape (3, n), the many at small q moved to a few.

    The moments are nearly polynomials for small q: weights of an interpolation at Chebyshev points.
    """
    small = columns[0] < SMALL
    if small.sum() <= DEGREE:
        return columns
    places = np.polynomial.chebyshev.chebpts1(DEGREE)
    at = np.polynomial.chebyshev.chebvander(2 * columns[0, small] / SMALL - 1, DEGREE - 1)
    moved = np.linalg.solve(
        np.polynomial.chebyshev.chebvander(places, DEGREE - 1).T, at.T @ columns[1:, small].T
    )
    return np.concatenate([np.stack([SMALL * (places + 1) / 2, *moved.T]), columns[:, ~small]], -1)


class _GaussianAverage:
    """Exact errors of Gaussian tokens and Gaussian queries: nodes of q serve all lengths."""

    def __init__(
        self, attention: SoftmaxAttention, mu: Gaussian, queries: Gaussian | GaussianMixture
    ) -> None:
        one_law(mu)
        attention._values(mu, queries.mean)
        double, self.like = torch.float64, mu.mean
        U, covariance, V = (
            matrix.detach().to(double) for matrix in (attention.U, mu.covariance, attention.V)
        )
        self.exponent = binary_exponent(V, (-2, -1))
        M, B, spread = score_forms(U, covariance, V * torch.exp2(-self.exponent))
        if not (np.isfinite(M).all() and np.isfinite(B).all()):
            given = "scores whose variance is beyond floating-point numbers"
            allowed = "scores of a standard deviation up to 500"
            raise InvalidArgumentError("attention.U", given, allowed)
        columns: list[Any] = []
        for weight, part in gaussian_parts(queries):
            rule = gaussian_form_rule(
                M, part.covariance.cpu().numpy(), part.mean.cpu().numpy(), tail=TAIL
            )
            along = weight * rule.form_weights(B)
            columns.append(np.stack([rule.nodes, weight * spread * rule.weights, along]))
        self.nodes, self.across, self.along = torch.from_numpy(
            _gathered(np.concatenate(columns, -1))
        )

    def __call__(self, lengths: Sequence[float]) -> Tensor:
        total = self.across + self.along
        found = []
        for length in lengths:
            most = gaussian_collision_bound(self.nodes, length) * total  # what each node can add
            kept = most.abs() > NEGLIGIBLE * most.sum()
            moments = collision_moments(length, self.nodes[kept].sqrt())
            found.append(
                (moments.collision * self.across[kept] + moments.along * self.along[kept]).sum()
            )
        return rescaled(torch.stack(found), self.exponent.cpu()).to(self.like)
