"""Which of three exponents the exact law has, from the last decade; d = 1 has the weakest
logarithms.
"""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Answer, Rule, judged, rule
from largeprompt.studies.exponent.formulas import without_logarithm


def decided(data: xr.Dataset) -> xr.DataArray:
    """1 where the last exponent is for g(H), -1 where it is for 1/(1+H²), 0 where it does not
    decide; (dim, square).

    It decides where it is nearer to one of them than half their distance: the logarithms that are
    left are then smaller than the difference in question.
    """
    last, apart = without_logarithm(data), abs(data.sharp - data.bohbot) / 2
    votes: xr.DataArray = (abs(last - data.sharp) < apart).astype(int) - (
        abs(last - data.bohbot) < apart
    ).astype(int)
    return votes


def _listed(chosen: xr.DataArray) -> str:
    """The chosen H², dimension by dimension where there are several."""
    rows = {
        int(row.dim): ", ".join(f"{value:g}" for value in row.square[row.values]) for row in chosen
    }
    return (
        "; ".join(
            words + (f" (d = {dim})" if len(rows) > 1 else "")
            for dim, words in rows.items()
            if words
        )
        or "none"
    )


def whose(several: bool) -> Rule:
    """Whose exponent it is in one dimension, or in all the others, where the logarithm of the
    query's radius is taken off.
    """

    def chosen(data: xr.Dataset) -> xr.Dataset:
        return data.isel(dim=(data.dim.values > 1) == several)

    def question(data: xr.Dataset) -> str:
        dims = ", ".join(map(str, chosen(data).dim.values))
        return (
            "Averaged over Gaussian queries, is the exponent g(H) rather than the 1/(1+H²) of "
            f"2512.10656? (d = {dims})"
        )

    @rule("C3", question)
    def answer(data: xr.Dataset) -> Answer | None:
        data = chosen(data)
        if not data.sizes["dim"]:
            return None
        votes, last = decided(data), without_logarithm(data)
        ours, theirs, neither = (votes == 1, votes == -1, votes == 0)
        to_sharp, to_other = (float(abs(last - data[name]).max()) for name in ("sharp", "bohbot"))
        for_us, one_sided = bool(ours.any()), bool(ours.any()) != bool(theirs.any())
        return (
            judged(for_us and not bool(neither.any()), in_part=for_us, rests_on=[last])
            if one_sided
            else "undecided",
            f"From L = 10^{int(data.decade[-2])} to 10^{int(data.decade[-1])} the exact exponents"
            + (" (less the logarithm of the query's radius)" if several else "")
            + f" are within {to_sharp:.3f} of g(H) and {to_other:.3f} of 1/(1+H²). "
            f"For g: H² = {_listed(ours)}; for 1/(1+H²): {_listed(theirs)}; not decided: "
            f"{_listed(neither)}.",
            ""
            if several
            else f"Averaged over queries, the decay exponent is within {to_sharp:.3g} of our g(H), "
            f"and {to_other:.3g} of the 1/(1+H²) of earlier work.",
        )

    return answer


@rule(
    "C3",
    "Is the exponent of the paper's form, c2/H² with one c2?",
    fails="The paper's form, as a description: the true exponent is bounded by 1 and has another "
    "shape in H.",
)
def one_constant(data: xr.Dataset) -> Answer:
    """Fails where the c2 that each H² needs differ by more than a quarter."""
    needed = data.exponent.isel(dim=0, decade_end=-1) * data.square
    least, most = (needed[int(pick(needed.values))] for pick in (np.argmin, np.argmax))
    spread = float(most / least)
    return (
        judged(spread <= 1.25, rests_on=[spread]),
        f"c2 would have to grow from {least:.2f} (H² = {least.square:g}) to {most:.2f} (H² = "
        f"{most.square:g}). g(H)H² tends to 1 for large H: there the form is right with c2 = 1. "
        "For small H no c2 > 0 is: no exponent exceeds 1.",
    )


@rule("C3", "Does any query-averaged error fall faster than 1/L?", control=True)
def faster(data: xr.Dataset) -> Answer:
    """Fails where no local exponent exceeds 1."""
    largest = float(data.exponent.max())
    return judged(
        largest >= 1.001, rests_on=[largest]
    ), f"The largest local exponent is {largest:.4f}."


RULES = (whose(several=False), whose(several=True), one_constant, faster)
