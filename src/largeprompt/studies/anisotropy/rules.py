"""The law with two traces holds; score variance alone does not, nor one pair of constants;
exponents follow H.
"""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Answer, judged, listed, rule, span
from largeprompt.studies.anisotropy.formulas import TOLERANCE
from largeprompt.studies.convergence.formulas import FITS, z_scores


def collapse_error(data: xr.Dataset) -> float:
    """Largest relative residual of exact = f tr(Γ) + g ‖Γu‖², with f and g free at each score
    variance and length.

    Two numbers for all spectra and directions together: what is left is what the score variance and
    the two traces do not explain.
    """
    stacked = data[["exact", "size", "trace"]].stack(case=("spectrum", "direction"))
    residuals = []
    for q in data.score_variance.values:
        part = stacked.sel(score_variance=q)
        design = np.stack([part.trace.values, part["size"].values], -1)
        # relative least squares, one length at a time
        for row in part.exact.transpose("length", "case").values:
            fit = np.linalg.lstsq(design / row[:, None], np.ones(len(row)), rcond=None)[0]
            residuals.append(np.abs(design @ fit / row - 1).max())
    return float(max(residuals))


def spread(values: xr.DataArray) -> xr.DataArray:
    """Largest over smallest, over spectra and directions."""
    return values.max(("spectrum", "direction")) / values.min(("spectrum", "direction"))


@rule(
    "E3",
    "At given σ² and L, do two traces, tr Γ and ‖Γu‖², explain the error for every spectrum and "
    "direction?",
)
def two_traces(data: xr.Dataset) -> Answer:
    """Holds to 1e-10, and where drawn prompts agree with the exact law."""
    residual, (score, allowed) = collapse_error(data), z_scores(data)
    return (
        judged(
            residual < 1e-10 and score <= allowed,
            rests_on=[data.exact, data.sampled, data.sampled_standard_error],
        ),
        f"f tr(Γ) + g ‖Γu‖² fits {data.sizes['spectrum'] * data.sizes['direction']} spectra and "
        f"directions to {residual:.1e}; condition numbers up to {data.condition.max():.0e}. Drawn "
        f"prompts agree within {score:.1f} standard errors ({allowed:.1f} allowed).",
    )


@rule("E3", "Does the score variance alone explain the error, tr Γ being fixed?", control=True)
def score_variance_alone(data: xr.Dataset) -> Answer:
    """Fails where errors of one score variance differ by more than FITS."""
    ratio = spread(data.exact).max("length")
    return (
        judged(float(ratio.max()) <= FITS, rests_on=[ratio]),
        "Between spectra and directions the error differs by up to "
        f"{listed(ratio, '.2f', 'σ² = {:g}')} times: the direction's "
        "share ‖Γu‖² is σ² times an eigenvalue.",
    )


@rule(
    "E3",
    "Does one pair (c1, c2) hold for all spectra and score variances?",
    fails="The paper's form, as a description: its constants change with the score variance and "
    "the spectrum.",
)
def one_pair(data: xr.Dataset) -> Answer:
    """Fails where c2, or c1 at one score variance, changes by more than FITS."""
    c1, c2 = float(spread(data.c1).max()), float(spread(data.c2).max())
    return (
        judged(
            float(data.c2.max() / data.c2.min()) <= FITS and c1 <= FITS, rests_on=[data.c1, data.c2]
        ),
        f"c2 changes by at most {c2 - 1:.0%} between spectra and directions at one σ², but from "
        f"{span(data.c2, '.2f')} between σ² "
        f"= {data.score_variance[0]:g} and {data.score_variance[-1]:g}; c1 changes by up to "
        f"{c1:.2f} times between spectra.",
    )


@rule(
    "E3",
    f"Does the score variance set the length needed for a relative error of {TOLERANCE:.0%}?",
    fails="Our conjecture: the direction of the query counts as well, by the share of the output "
    "that it leaves.",
)
def needed_length(data: xr.Dataset) -> Answer:
    """Fails where the lengths needed differ by more than FITS; undecided where some are longer than
    the longest of the run.
    """
    needed = data.needed_length.sel(
        score_variance=data.score_variance[len(data.score_variance) // 2]
    )
    unmet = bool(needed.isnull().any())
    shortest, longest = float(needed.min()), float(data.length.max() if unmet else needed.max())
    differ, more = longest / shortest > FITS, "more than " if unmet else ""
    return (
        judged(not differ, rests_on=[shortest]) if differ or not unmet else "undecided",
        f"At σ² = {needed.score_variance:g} it is {shortest:.2g} to {more}{longest:.2g} tokens, "
        "like e^(σ²) (1 + tr Γ/‖Γu‖²): along weak directions the output is small and the noise "
        "of all others is not.",
        f"At one score variance {TOLERANCE:.0%} error takes {shortest:.2e} to {more}{longest:.2e} "
        "tokens.",
    )


@rule(
    "E3",
    "For random queries of one mean score variance, does the exponent follow g(H), H² set by the "
    "largest eigenvalue?",
)
def random_query_exponent(data: xr.Dataset) -> Answer:
    """Holds within 0.06 at the longest prompts."""
    exponents = data.random_exponent.isel(decade_end=-1)
    gap = float(abs(exponents - data.random_sharp).max())
    return (
        judged(gap < 0.06, rests_on=[exponents]),
        f"At mean σ² = {data.mean_score_variance:g} the exponent falls from {exponents.max():.2f} "
        f"to {exponents.min():.2f} as the largest eigenvalue takes {data.spike[0]:.0%} to "
        f"{data.spike[-1]:.0%} of the trace; within {gap:.3f} of g(H) at L = "
        f"10^{int(data.decade[-1])}.",
    )


RULES = (two_traces, score_variance_alone, one_pair, needed_length, random_query_exponent)
