"""The balanced start ends at the theorem's point to 1e-6, conserves to 1e-8 and reaches the Bayes
risk; other starts beside it.
"""

import json

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Answer, at, judged, rule, span

SAME = 1e-6  # relative error of an end point that counts as agreement


@rule(
    "C6",
    "Does the balanced infinite-prompt flow end at b = tr(Σ⁻²)^¼, A = Σ⁻¹/b, with the Bayes risk?",
)
def balanced(data: xr.Dataset) -> Answer:
    """Every flow must have converged."""
    good = at(data, start="balanced")
    b, A, drift, risk = (
        float(good[name].max()) for name in ("b_error", "A_error", "drift", "risk")
    )
    holds = max(b, A) < SAME and drift < 1e-8 and risk < 1e-10 and bool(good.converged.all())
    return (
        judged(holds, rests_on=[b, A, drift, risk]),
        f"{data.sizes['cell']} covariances and dimensions up to d = "
        f"{max(json.loads(data.attrs['config'])['dims'])}: endpoint to "
        f"{max(b, A):.1e} (relative), b² - ‖A‖² conserved to {drift:.1e} of max(1, b²), risk at "
        f"most {max(risk, 0.0):.1e}.",
        f"The infinite-prompt flow ends within {max(b, A):.2e} of the theorem's point.",
    )


@rule("C6", "Does a start at three times the theorem's bound on alpha end there too?")
def larger(data: xr.Dataset) -> Answer:
    """Holds where the condition is sufficient, not necessary."""
    wrong = float(at(data.A_error, start="balanced, alpha 3 times the bound").max())
    reached = wrong < SAME
    return (
        judged(reached, rests_on=[wrong]),
        f"From three times the bound the flow ends within {wrong:.1e} of the same point"
        + (": the condition is sufficient, not necessary." if reached else "."),
    )


@rule(
    "C6",
    "Do other starts end where the conserved b² - ‖A‖² says, b⁴ - (b(0)² - ‖A(0)‖²) b² = tr Σ⁻²?",
)
def others(data: xr.Dataset) -> Answer:
    """All starts but the balanced one."""
    rest = data.drop_sel(start="balanced", errors="ignore")
    worst, risk = float(np.maximum(rest.b_error, rest.A_error).max()), float(rest.risk.max())
    return (
        judged(worst < SAME, rests_on=[worst, risk]),
        f"Larger, unbalanced and negative starts with a generic A(0): to {worst:.1e}; largest "
        f"risk at the end {max(risk, 0.0):.1e} (Bayes: 0).",
    )


@rule("C6", "Does an unbalanced start end at the theorem's b?", control=True)
def unbalanced(data: xr.Dataset) -> Answer:
    """Fails where every unbalanced start misses it."""
    uneven = data.theorem_error.sel(
        start=[name for name in data.start.values if str(name).startswith("unbalanced")]
    )
    return (
        judged(not float(uneven.min()) > SAME, rests_on=[uneven.min(), uneven.max()]),
        f"It is missed by {span(uneven, '.1e')}: balance is needed for the parameters, not for the "
        "risk.",
    )


RULES = (balanced, larger, others, unbalanced)
