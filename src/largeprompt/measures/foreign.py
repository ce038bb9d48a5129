"""Laws of torch.distributions, scipy.stats and scikit-learn as measures."""

from typing import Any

import numpy as np
import torch
from torch import distributions

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.measures.base import Measure
from largeprompt.measures.finite.laws import Discrete
from largeprompt.measures.gaussian import Gaussian
from largeprompt.measures.mixture import GaussianMixture
from largeprompt.measures.scalar.generalized_normal import GeneralizedNormalLaw
from largeprompt.measures.scalar.laplace import LaplaceLaw
from largeprompt.measures.scalar.lognormal import LogNormalLaw
from largeprompt.measures.scalar.product import Product, ScalarLaw
from largeprompt.measures.scalar.skew_normal import SkewNormalLaw
from largeprompt.measures.scalar.student import StudentTLaw
from largeprompt.measures.scalar.uniform import UniformLaw

TAKEN = (
    "torch.distributions (Normal, MultivariateNormal, mixtures of these, Laplace, StudentT, "
    "Uniform, Independent), frozen scipy.stats laws (multivariate_normal, norm, laplace, t, "
    "uniform, gennorm, skewnorm, lognorm, discrete laws of bounded support), a fitted scikit-learn "
    "GaussianMixture, or a Measure"
)


def as_measure(obj: Any) -> Measure:
    """Return a law of another library as a measure.

    Parameters
    ----------
    obj
        A law of ``torch.distributions`` (Normal, MultivariateNormal, mixtures of these, Laplace,
        StudentT, Uniform, Independent), a frozen law of ``scipy.stats`` (multivariate_normal, norm,
        laplace, t, uniform, gennorm, skewnorm, lognorm, discrete), a fitted scikit-learn
        GaussianMixture, or a Measure.

    Returns
    -------
    Measure
        A law of numbers is a measure on R¹, a batch of Gaussian laws a batch of measures;
        ``Independent(law, 1)`` makes one law on R^d of a batch of numbers.

    Examples
    --------
    >>> from scipy import stats
    >>> lp.as_measure(torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2)))
    Gaussian(dim=2, dtype=torch.float32)
    >>> lp.as_measure(stats.laplace(loc=1.0, scale=0.5)).mean
    tensor([1.], dtype=torch.float64)
    """
    if isinstance(obj, Measure):
        return obj
    if isinstance(obj, distributions.Distribution):
        return _from_torch(obj)
    if all(hasattr(obj, name) for name in ("weights_", "means_", "covariances_")):
        return GaussianMixture(obj.weights_, obj.means_, _sklearn_covariances(obj))
    if hasattr(obj, "logpdf") and hasattr(obj, "cov") and hasattr(obj, "mean"):
        return Gaussian(np.atleast_1d(obj.mean), np.atleast_2d(obj.cov))
    if hasattr(obj, "dist") and hasattr(obj, "support"):
        return _from_scipy(obj)
    if isinstance(obj, torch.Tensor | np.ndarray):
        raise _refused(obj, "Wrap a prompt, tokens (L, d), as lp.Empirical(tokens).")
    raise _refused(obj)


def _refused(obj: Any, remedy: str = "") -> InvalidArgumentError:
    remedy = remedy or "Write the law as a subclass of lp.Measure, from its cgf and a sampler."
    return InvalidArgumentError("obj", validation.text(obj), TAKEN, remedy)


def _from_torch(law: Any) -> Measure:
    if isinstance(law, distributions.MixtureSameFamily):
        part = _from_torch(law.component_distribution)
        if not isinstance(part, Gaussian):
            raise _refused(law)
        weights = law.mixture_distribution.probs
        return GaussianMixture(weights, part.mean, part.covariance)
    if hasattr(law, "covariance_matrix"):
        return Gaussian(law.loc, law.covariance_matrix)
    base, events = law, 0
    while isinstance(base, distributions.Independent):
        base, events = base.base_dist, events + base.reinterpreted_batch_ndims
    if events > 1 or type(base).__name__ not in ("Normal", "Laplace", "StudentT", "Uniform"):
        raise _refused(law)

    def vector(value: torch.Tensor) -> torch.Tensor:
        value = value.expand(base.batch_shape)
        return value if events else value.unsqueeze(-1)

    if isinstance(base, distributions.Normal):
        return Gaussian(vector(base.loc), torch.diag_embed(vector(base.scale).square()))
    if len(base.batch_shape) != events:
        raise _refused(law, "Convert its members one by one, or use Independent(law, 1).")
    if isinstance(base, distributions.Uniform):
        center, scale = (base.low + base.high) / 2, (base.high - base.low) / 12**0.5
        return _product([UniformLaw()] * vector(scale).numel(), vector(scale), vector(center))
    scale = vector(base.scale)
    if isinstance(base, distributions.Laplace):
        return _product([LaplaceLaw()] * scale.numel(), scale * 2**0.5, vector(base.loc))
    known: dict[float, ScalarLaw] = {}
    laws = [known.setdefault(df, StudentTLaw(df, 1.0)) for df in vector(base.df).tolist()]
    return _product(laws, scale, vector(base.loc))


def _product(laws: list[Any], scale: Any, center: Any) -> Measure:
    """Law of center + scale·x for independent coordinates x."""
    scale, center = validation.tensors(scale=scale, center=center)
    mu = Product(laws, dtype=scale.dtype, device=scale.device)
    if bool((scale == 1).all()) and not bool(center.any()):
        return mu
    return mu.map(torch.diag(scale), center)


def _from_scipy(law: Any) -> Measure:
    name = law.dist.name
    low, high = law.support()
    if hasattr(law, "pmf"):
        if not high - low < 1 << 20:  # also unbounded support
            raise _refused(law)
        values = np.arange(low, high + 1)
        mass = law.pmf(values)
        return Discrete(values[:, None].astype(float), mass / mass.sum())
    shapes, _, scale = law.dist._parse_args(*law.args, **law.kwds)
    if name == "norm":
        return Gaussian([law.mean()], [[law.var()]])
    if name == "t":  # whose variance may be infinite
        return _product([StudentTLaw(shapes[0], 1.0)], [scale], [law.median()])
    kinds: dict[str, Any] = {
        "laplace": LaplaceLaw,
        "uniform": UniformLaw,
        "gennorm": GeneralizedNormalLaw,
        "lognorm": LogNormalLaw,
        "skewnorm": lambda _: SkewNormalLaw(float(law.stats("s"))),
    }
    if name not in kinds:
        raise _refused(law)
    return _product([kinds[name](*shapes)], [law.std()], [law.mean()])


def _sklearn_covariances(mixture: Any) -> Any:
    """Covariances (k, d, d) of the four kinds."""
    (count, dim), found = mixture.means_.shape, np.asarray(mixture.covariances_)
    if mixture.covariance_type == "tied":
        return np.broadcast_to(found, (count, dim, dim)).copy()
    if mixture.covariance_type in ("diag", "spherical"):
        return found.reshape(count, 1, -1) * np.eye(dim)
    return found
