"""Error curves by prompt length, draws judged by them, first lengths, exponents, their panel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from largeprompt.attention import SoftmaxAttention
from largeprompt.certificates import certificate
from largeprompt.law import finite_prompt
from largeprompt.law.weights import weight_moments
from largeprompt.measures import Gaussian, Measure
from largeprompt.runs.judging import FALSE_ALARM, Finding, Rule, judged, rule
from largeprompt.runs.style import COLORS, Axes, describe, marks
from largeprompt.sampling import sample_prompts

# replicas from which their own spread may judge their mean: squared errors are skewed by up to 5.5,
# and with 1000 replicas a mean and its standard error are then both too small in 1 % of cases
ENOUGH = 20_000


def error_curves(
    attention: SoftmaxAttention,
    mu: Measure,
    z: Tensor,
    lengths: Sequence[int],
    *batch: str,
    certified: bool = False,
    drawn: Sequence[int] = (),
    replicas: int = ENOUGH,
    generator: torch.Generator | None = None,
) -> xr.Dataset:
    """Return mean squared errors of attention over L tokens, ``exact`` and ``first_order``.

    ``certified`` adds certificates, ``drawn`` (lengths) what :func:`drawn_curve` says; ``batch``
    names the dimensions of the queries.
    """
    exact = finite_prompt(attention, mu, z, list(lengths))
    first = finite_prompt(attention, mu, z, list(lengths), expansion=True)
    found = {"exact": exact.mse, "first_order": first.mse}
    if certified:
        found["certified"] = certificate(attention, mu, z, list(lengths)).bound
    curves = xr.Dataset(
        {name: (("length", *batch), value.numpy()) for name, value in found.items()},
        coords={"length": np.asarray(lengths, dtype=np.float64)},
    )
    if not drawn:
        return curves
    assert generator is not None  # drawn prompts need one
    outputs = sample_prompts(attention, mu, z, list(drawn), replicas, generator).outputs
    return curves.merge(drawn_curve(attention, mu, z, drawn, outputs, *batch))


def drawn_curve(
    attention: SoftmaxAttention,
    mu: Measure,
    z: Tensor,
    lengths: Sequence[int],
    outputs: Tensor,
    *batch: str,
) -> xr.Dataset:
    """Return squared errors of drawn outputs (length, replica, *queries, o) beside exact ones.

    ``drawn`` is their mean over replicas, ``exact_at_drawn`` what it should be, and ``drawn_error``
    its standard error: exact for Gaussian tokens, else from at least ``ENOUGH`` replicas.
    """
    law = finite_prompt(attention, mu, z, list(lengths))
    squared, replicas = (outputs - law.limit).square().sum(-1), outputs.shape[1]
    if isinstance(mu, Gaussian):
        spread = squared_error_spread(attention, mu, z, lengths)
    elif replicas >= ENOUGH:
        spread = squared.std(1)
    else:
        spread = torch.full_like(law.mse, math.nan)  # too few to judge by
    found = {
        "drawn": squared.mean(1),
        "drawn_error": spread / math.sqrt(replicas),
        "exact_at_drawn": law.mse,
    }
    return xr.Dataset(
        {name: (("drawn_length", *batch), value.numpy()) for name, value in found.items()},
        coords={"drawn_length": list(lengths)},
    )


def squared_error_spread(
    attention: SoftmaxAttention, mu: Gaussian, z: Tensor, lengths: Sequence[int]
) -> Tensor:
    """Exact standard deviation of ‖T_L - T‖² for Gaussian tokens, shape (length, *queries).

    T_L - T = e (S - σ) + √Y R η with e = Γu/σ, S = Σ w ξ, Y = Σ w², RR^T = Γ - ee^T and η standard
    normal: law.1 in docs/mathematics/finite_prompt.md.
    """
    z, V, covariance = torch.as_tensor(z, dtype=torch.float64), attention.V, mu.covariance
    u = attention.tilts(z)
    shift = u @ covariance
    sigma = (u * shift).sum(-1).sqrt()
    along = (shift / sigma.unsqueeze(-1)) @ V.mT  # Ve
    across = V @ covariance @ V.mT - along.unsqueeze(-1) * along.unsqueeze(-2)
    size, trace = along.square().sum(-1), across.diagonal(dim1=-2, dim2=-1).sum(-1)
    mixed = (along.unsqueeze(-2) @ across @ along.unsqueeze(-1)).squeeze(-1).squeeze(-1)
    square, s, y = across.square().sum((-2, -1)), (1, 1), (2, 0)
    rows = []
    for length in lengths:
        found = torch.empty(5, *sigma.shape, dtype=torch.float64)
        for place in np.ndindex(tuple(sigma.shape)):
            scale = sigma[place]
            found[(slice(None), *place)] = weight_moments(
                length, scale, [[s] * 4, [s, s, y], [y, y], [s, s], [y]], center=float(scale)
            )
        s4, s2y, y2, s2, y1 = found
        fourth = size**2 * s4 + (2 * size * trace + 4 * mixed) * s2y
        fourth = fourth + (trace**2 + 2 * square) * y2
        rows.append((fourth - (size * s2 + trace * y1) ** 2).clamp_min(0.0).sqrt())
    return torch.stack(rows)


def least_likely(drawn: Any, exact: Any, error: Any) -> float:
    """Smallest two-sided probability of drawn means of squared errors, given their exact values.

    A mean is compared with the gamma law of that expectation and standard error, which is as skewed
    as squared errors are. NaN is left out.
    """
    from scipy.stats import gamma

    drawn, exact, error = (np.asarray(each, dtype=np.float64) for each in (drawn, exact, error))
    known = ~np.isnan(drawn + exact + error)
    drawn, exact, error = drawn[known], exact[known], error[known]
    varies = error > 1e-10 * exact
    if not known.any() or not np.allclose(drawn[~varies], exact[~varies], rtol=1e-9, atol=0):
        return 0.0 if known.any() else math.nan
    shape = (exact[varies] / error[varies]) ** 2
    scaled = (drawn / exact)[varies] * shape
    each = 2 * np.fmin(gamma.cdf(scaled, shape), gamma.sf(scaled, shape))
    return float(each.min(initial=1.0))


def drawn_agrees(
    claim: str,
    question: str,
    *compared: Sequence[str],
    part: Callable[[xr.Dataset], xr.Dataset] = lambda data: data,
    headline: str = "",
    otherwise: str = "",
) -> Rule:
    """Return the rule that holds where every drawn mean squared error is likely by the exact law.

    ``compared`` has names of (drawn mean, exact value, its standard error), as made by
    :func:`drawn_curve` where it is left out; ``part`` chooses what is judged of a dataset.
    """

    @rule(claim, question)
    def agrees(data: xr.Dataset) -> Finding:
        names = compared or [("drawn", "exact_at_drawn", "drawn_error")]
        parts = [tuple(part(data)[name] for name in three) for three in names]
        chance = min(least_likely(*three) for three in parts)
        count = sum(int(error.notnull().sum()) for _, _, error in parts)
        allowed = FALSE_ALARM / max(1, count)
        return Finding(
            judged(chance >= allowed, rests_on=[chance]),
            headline,
            otherwise,
            {"drawn means": count, "the least likely has probability": chance, "allowed": allowed},
        )

    return agrees


def first_below(
    error: xr.DataArray, level: Any, axis: str = "length", *, between: bool = False
) -> xr.DataArray:
    """Smallest length from which on the error stays at or below a level; infinite if there is none.

    It is one of the lengths of the axis, or ``between`` two of them by interpolation of logarithms.
    """
    above = error > level
    stays = (~above)[{axis: slice(None, None, -1)}].cumprod(axis)[{axis: slice(None, None, -1)}]
    known = error.notnull()
    found = error[axis].where(stays.astype(bool) & known).min(axis).fillna(math.inf)
    found = found.where(known.any(axis))
    if not between:
        return found
    x, y = (xr.ufuncs.log(value) for value in (error[axis], error.clip(1e-300) / level))
    root = x - y * x.diff(axis, label="lower") / y.diff(axis, label="lower")
    last = error[axis].where(above).max(axis)
    crossing = np.exp(root.where(error[axis] == last).max(axis))
    return found.where(last.isnull() | np.isinf(found), crossing)


def sharp_exponent(square: Any) -> Any:
    """Power of L at which the query-averaged squared error falls, by H²: g(H) = 1 for H² < 1/2.

    g(H) = √(1/H² + 1/4) - 1/2 beyond: docs/mathematics/regimes.md.
    """
    return np.sqrt(1 / np.maximum(square, 0.5) + 0.25) - 0.5


def length_panel(
    axes: Axes,
    data: xr.Dataset,
    i: int | None = None,
    *,
    label: str | None = None,
    root: bool = False,
) -> None:
    """Draw the curves of :func:`error_curves` that are there, of one case, against the length.

    With a number ``i`` exact curve and marks have the i-th color and one label; without, each has
    its own. ``root`` draws square roots.
    """
    shown = np.sqrt if root else (lambda value: value)
    looks: dict[str, dict[str, Any]] = {
        "certified": {"color": COLORS[5], "lw": 1.2, "ls": "-.", "label": "certified"},
        "first_order": {"color": "0.55", "lw": 1.0, "ls": "--", "label": "first order"},
        "exact": {"color": COLORS[0], "lw": 1.6, "label": "exact"},
    }
    if i is not None:
        looks = {"exact": {"color": COLORS[i], "lw": 1.1}}
    for name, look in looks.items():
        if name in data:
            axes.plot(data.length, shown(data[name]), **look)
    if "drawn" in data:
        drawn = shown(data.drawn.values)
        error = data.drawn_error.values / (drawn if root else 0.5)
        words = "drawn ± 2 s.e." if i is None else label
        marks(axes, 1 if i is None else i, data.drawn_length, drawn, error, words, ms=3.5)
    elif i is not None and label:
        axes.lines[-1].set_label(label)
    describe(axes, log="xy")
