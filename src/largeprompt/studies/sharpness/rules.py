"""A bound is never below the exact error, and is sharp from some multiple of ρ on."""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Answer, judged, rule, span
from largeprompt.studies.shortcontext.formulas import long_enough

SHARP = 1.1  # bound over exact error that counts as sharp


def laws(data: xr.Dataset) -> list[str]:
    """The families of laws, in order."""
    return list(dict.fromkeys(str(law) for law in data.law.values))


@rule("C3", "Is the certificate never below the exact error?")
def never_below(data: xr.Dataset) -> Answer:
    """Holds to rounding."""
    low = min(float(data.ratio.min()), float(data.sign_bound_ratio.min()))
    cases, high = data.ratio.size + data.sign_bound_ratio.size, float(data.ratio.max())
    worst = [
        f"at most {data.ratio[(data.law == law).values].max():.3g} ({law})" for law in laws(data)
    ]
    return (
        judged(low >= 1 - 1e-10, rests_on=[data.ratio, data.sign_bound_ratio]),
        f"Bound over exact error exceeds 1 by {low - 1:.1e} or more in {cases} cases, and is "
        f"{', '.join(worst)}.",
        f"Over {cases} laws and lengths the certificate is at most {high:.3g} times the exact "
        "error.",
    )


@rule("C3", f"Is it sharp, within {SHARP - 1:.0%} of the exact error?")
def sharp(data: xr.Dataset) -> Answer:
    """In part, for prompts that are long in units of ρ."""
    found, ranges = long_enough(data.ratio, "multiple", SHARP), []  # in units of ρ
    for law in laws(data):
        # least tilted first
        cases = [case for case in np.argsort(data.rho.values) if data.law.values[case] == law]
        ends = [
            f"{found[case]:.2g} ρ on for ρ = {data.rho[case]:.3g}" for case in (cases[0], cases[-1])
        ]
        ranges.append(f"{' and '.join(ends)} ({law})")
    return (
        judged(False, in_part=bool(np.isfinite(found).all()), rests_on=[data.ratio]),
        f"From L = {'; '.join(ranges)}. Not for shorter prompts.",
    )


@rule("C3", "Would the leading term alone be a bound for every law?", control=True)
def leading_term(data: xr.Dataset) -> Answer:
    """Fails where it is below the exact error of signs."""
    leading, bound = data.sign_leading_ratio, data.sign_bound_ratio
    return (
        judged(not bool((leading < 1).any()), rests_on=[leading]),
        f"For signs at L = 1 it is {span(leading)} of the exact error; the certificate is at "
        f"most {float(bound.max()) - 1:.0e} above it, relatively.",
    )


RULES = (never_below, sharp, leading_term)
