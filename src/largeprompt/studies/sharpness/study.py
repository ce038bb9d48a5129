"""How far above the truth the certificates are: bound over exact error, against L/ρ."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import torch
import xarray as xr

from largeprompt.attention import SoftmaxAttention
from largeprompt.certificates import certificate
from largeprompt.law import finite_prompt
from largeprompt.measures import Gaussian, GaussianMixture, Measure, Rademacher
from largeprompt.runs.study import Progress, Study, Verdict

F = torch.float64
SHARP = 1.1  # bound over exact error that counts as sharp


@dataclasses.dataclass(frozen=True)
class SharpnessConfig:
    """Scalar tokens, the least favourable case; ρ = e^{Λ(2u) - 2Λ(u)} sets the unit of length."""

    variances: tuple[float, ...] = (0.2, 0.8, 2.0, 4.0)
    tilts: tuple[float, ...] = (0.3, 1.0, 1.7, 2.5)
    sign_tilts: tuple[float, ...] = (0.5, 1.0, 2.0)
    largest_multiple: float = 1e5
    points: int = 41


def cells(config: SharpnessConfig) -> list[str]:
    """The two families of laws, and the control."""
    return ["Gaussian", "two clusters", "signs"]


def compute(config: SharpnessConfig, cell: str, progress: Progress) -> xr.Dataset:
    """Bound over exact mean squared error, for Gaussian tokens (closed form) and for two clusters (split bound)."""
    attention = SoftmaxAttention(torch.ones(1, 1, dtype=F), torch.ones(1, 1, dtype=F))
    if cell == "signs":
        return _signs(config, attention)
    mu: Measure = Gaussian(torch.zeros(1, dtype=F), torch.ones(1, 1, dtype=F))
    tilts = [math.sqrt(q) for q in config.variances]
    if cell == "two clusters":
        mu, tilts = _clusters(), list(config.tilts)
    multiples = np.logspace(-0.5, math.log10(config.largest_multiple), config.points)
    ratios, rhos = np.empty((len(tilts), config.points)), np.empty(len(tilts))
    for i, tilt in enumerate(tilts):
        progress(f"{cell}, u = {tilt:.3g}")
        z = torch.tensor([tilt], dtype=F)
        rhos[i] = math.exp(float(mu.cgf(2 * z) - 2 * mu.cgf(z)))
        lengths = [max(1, round(multiple * rhos[i])) for multiple in multiples]
        ratios[i] = (certificate(attention, mu, z, lengths).bound / finite_prompt(attention, mu, z, lengths).mse).numpy()
    return xr.Dataset(
        {"ratio": (("case", "multiple"), ratios, {"long_name": "bound / exact mean squared error"}), "rho": ("case", rhos)},
        coords={"multiple": multiples, "law": ("case", [cell] * len(tilts)), "tilt": ("case", tilts)},
    )


def _clusters() -> GaussianMixture:
    means, covariances = torch.tensor([[-1.0], [1.0]], dtype=F), torch.tensor([[[0.5]], [[0.3]]], dtype=F)
    return GaussianMixture(torch.tensor([0.3, 0.7], dtype=F), means, covariances)


def _signs(config: SharpnessConfig, attention: SoftmaxAttention) -> xr.Dataset:
    """Signs at L = 1, where T_1 = ±1 and E(T_1 - T)² = 1 + tanh² u: the leading term alone, and the certificate."""
    z = torch.tensor(config.sign_tilts, dtype=F).unsqueeze(-1)
    proved = certificate(attention, Rademacher(1), z, 1)
    exact = 1 + torch.tanh(z[:, 0]).square()
    return xr.Dataset(
        {
            "sign_leading_ratio": ("sign_tilt", (proved.leading / exact).numpy(), {"long_name": "leading term / exact error"}),
            "sign_bound_ratio": ("sign_tilt", (proved.bound / exact).numpy(), {"long_name": "certificate / exact error"}),
        },
        coords={"sign_tilt": list(config.sign_tilts)},
    )


def combine(config: SharpnessConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Cases of both families one after the other, the control beside them."""
    cases = xr.concat(
        [parts["Gaussian"], parts["two clusters"]], "case", combine_attrs="drop", join="outer", coords="different", compat="equals"
    )
    return cases.merge(parts["signs"])


def sharp_from(data: xr.Dataset) -> xr.DataArray:
    """Multiple of ρ from which on the bound is within SHARP of the exact error, for each case; infinite if never."""
    found = []
    for ratio in data.ratio.values:
        loose = np.flatnonzero(ratio > SHARP)
        first = loose[-1] + 1 if len(loose) else 0
        found.append(float(data.multiple[first]) if first < len(ratio) else math.inf)
    return xr.DataArray(found, dims="case")


def verdicts(data: xr.Dataset) -> list[Verdict]:
    """A bound is never below the exact error, and is sharp from some multiple of ρ on."""
    low = min(float(data.ratio.min()), float(data.sign_bound_ratio.min()))
    laws = list(dict.fromkeys(str(law) for law in data.law.values))
    sharp = sharp_from(data)
    worst = {law: float(data.ratio[(data.law == law).values].max()) for law in laws}
    leading = data.sign_leading_ratio
    return [
        Verdict(
            "C3",
            "Is the certificate never below the exact error?",
            "holds" if low >= 1 - 1e-10 else "fails",
            f"Bound over exact error is at least 1{low - 1:+.1e} in {data.ratio.size + data.sign_bound_ratio.size} cases, "
            + ", ".join(f"at most {worst[law]:.3g} ({law})" for law in laws)
            + ".",
        ),
        Verdict(
            "C3",
            f"Is it sharp, within {SHARP - 1:.0%} of the exact error?",
            "holds in part" if bool(np.isfinite(sharp).all()) else "fails",
            "From L = " + "; ".join(_range(data, sharp, law) for law in laws) + ". Not for shorter prompts.",
        ),
        Verdict(
            "C3",
            "Would the leading term alone be a bound for every law?",
            "fails" if bool((leading < 1).any()) else "holds",
            f"For signs at L = 1 it is {float(leading.min()):.2g} to {float(leading.max()):.2g} of the exact error; "
            f"the certificate is {float(data.sign_bound_ratio.min()):.3g} to {float(data.sign_bound_ratio.max()):.3g} times it.",
            control=True,
        ),
    ]


def _range(data: xr.Dataset, sharp: xr.DataArray, law: str) -> str:
    """Sharpness of the least and the most tilted case of a law, in words."""
    cases = [case for case in np.argsort(data.rho.values) if data.law.values[case] == law]
    ends = [f"{float(sharp[case]):.2g} ρ on for ρ = {float(data.rho[case]):.3g}" for case in (cases[0], cases[-1])]
    return f"{' and '.join(ends)} ({law})"


STUDY = Study(
    "sharpness",
    "How sharp the certificates are",
    "How far above the exact error is the proved bound, and from which length on does that not matter?",
    "The certificate is divided by the exact mean squared error for scalar Gaussian tokens and for two clusters, from L below ρ to "
    "10⁵ ρ, where ρ = e^(Λ(2u) - 2Λ(u)). Signs at L = 1, whose error is known, are the control.",
    SharpnessConfig,
    SharpnessConfig(points=21),
    cells,
    compute,
    combine,
    verdicts,
)
