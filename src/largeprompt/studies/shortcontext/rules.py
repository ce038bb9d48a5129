"""The theory of large prompts fails below the lengths found; each rule asks whether L = 10 would
already do.
"""

import math

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Answer, Rule, at, judged, rule
from largeprompt.studies.shortcontext.formulas import (
    ATTENTIONS,
    SHORT,
    TOLERANCES,
    ill_conditioned,
    isotropic,
)

ASKED = 10  # tokens that a rule asks about
SHORT_PROMPTS = (
    "A method: the limit does not stand for a short prompt. The paper claims nothing "
    "here; the lengths needed are ours."
)


def _length(value: xr.DataArray, data: xr.Dataset, axis: str = "length") -> str:
    return f"{value:.3g}" if math.isfinite(float(value)) else f"more than {data[axis][-1]:.0e}"


@rule(
    "F1",
    "At L = 1, where T_1 = V z_1, is the error tr VΓVᵀ + ‖VΓu‖² and the regression risk that of "
    "answering b y_1?",
)
def one_token(data: xr.Dataset) -> Answer:
    """Holds to 1e-10 and 1e-6."""
    error = float(abs(at(data.exact, length=1.0) / data.at_one - 1).max())
    risk = at(data.risk.sel(attention="softmax"), regression_length=1.0)
    risk_error = float(abs(risk / data.risk_at_one - 1).max())
    return (
        judged(error < 1e-10 and risk_error < 1e-6, rests_on=[error, risk_error]),
        f"Output to {error:.1e} in {data.sizes['case']} cases, risk to {risk_error:.1e}.",
    )


def output(tokens: str) -> Rule:
    """Fails where some case of these tokens needs more than ASKED for an answer within 50 %."""

    @rule(
        "F1",
        f"Is the limit within 50 % of a short prompt's output, {tokens} tokens?",
        fails=SHORT_PROMPTS,
    )
    def near(data: xr.Dataset) -> Answer:
        part = isotropic(data) if tokens == "isotropic" else ill_conditioned(data)
        half, tenth = (part.limit_from.sel(within=level) for level in TOLERANCES)
        best, worst = (
            _case(part.isel(case=int(pick(half.values)))) for pick in (np.argmin, np.argmax)
        )
        return (
            judged(float(half.max()) <= ASKED, rests_on=[half]),
            f"It fails below L = {_length(half.min(), part)} ({best}) at best and below "
            f"{_length(half.max(), part)} ({worst}) at worst; for 10 % below "
            f"{_length(tenth.min(), part)} and {_length(tenth.max(), part)}. "
            f"{int((half <= SHORT).sum())} of {half.size} cases are within 50 % at L = {SHORT}.",
            f"The limit misses over half of the output below {_length(half.min(), part)} tokens "
            f"at best, below {_length(half.max(), part)} at worst."
            if tokens == "isotropic"
            else "",
        )

    return near


def _case(case: xr.Dataset) -> str:
    """A case in words."""
    direction = str(case.direction.values)
    where = (
        f"d = {int(case.dim)}"
        if direction == "any"
        else f"condition {case.condition:g}, {direction}"
    )
    return f"{where}, σ² = {case.score_variance:g}"


@rule(
    "F1",
    "Is the first order in 1/L within 50 % and 10 % of the exact error for short prompts?",
    fails="A method: the first order is no estimate for short prompts. Use the exact law.",
)
def first_order(data: xr.Dataset) -> Answer:
    """Fails where some score variance needs more than ASKED in the largest dimension."""
    part = isotropic(data)
    rows = part.first_order_from.where(part.dim == part.dim.max(), drop=True)
    text = ", ".join(
        f"{_length(row[0], part)} and {_length(row[1], part)} (σ² = {row.score_variance:g})"
        for row in rows.transpose("case", "within")
    )
    return judged(
        float(rows.max()) <= ASKED, rests_on=[rows]
    ), f"It fails below L = {text}, d = {int(part.dim.max())}."


def regression(kind: str) -> Rule:
    """Fails where some condition number needs more than ASKED for a risk within 50 %
    of its limit.
    """
    question = (
        f"Is the risk of {kind} attention at the infinite-prompt optimum near its limit for short "
        "prompts?"
    )

    @rule("F1", question, fails=SHORT_PROMPTS)
    def near(data: xr.Dataset) -> Answer:
        part = data.sel(attention=kind)
        half, tenth = (part.regression_from.sel(within=level) for level in TOLERANCES)
        text = "; ".join(
            "{}, {} and {}".format(*(_length(each, data, "regression_length") for each in row))
            + f" (condition {c:g})"
            for *row, c in zip(
                half, tenth, part.useful_from, data.regression_condition, strict=True
            )
        )
        return (
            judged(float(half.max()) <= ASKED, rests_on=[half]),
            "It is not within 50 %, not within 10 %, and not better than that of always answering "
            f"0, below L = {text}.",
        )

    return near


@rule("F1", "Does one token suffice for an answer within 50 %?", control=True)
def one_token_suffices(data: xr.Dataset) -> Answer:
    """Fails where it does in no case."""
    ratio = np.sqrt(at(data.exact, length=1.0) / data["size"])
    return (
        judged(float(ratio.min()) <= 0.5, rests_on=[ratio]),
        f"The relative error at L = 1 is {ratio.min():.2f} to {ratio.max():.3g}.",
    )


OUTPUTS = (output("isotropic"), output("ill-conditioned"))
RULES = (one_token, *OUTPUTS, first_order, *map(regression, ATTENTIONS), one_token_suffices)
