"""Gradient descent against the flow: the gap, the largest stable step, where larger steps end; and
Adam against its flows.
"""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Answer, at, judged, listed, log_slope, rule, span
from largeprompt.studies.discrete import sgd_rules
from largeprompt.studies.discrete.formulas import COEFFICIENT, SLOPE, at_zero, usual

STABLE = 2e-3  # relative error of a predicted largest stable step that counts as agreement
HOVERS = 0.02  # relative difference of the mean sharpness from 2/η that does
# step size of Adam from which on its distance to the sign flow may be extrapolated
SMALL_ADAM = 5e-6
FAR = 0.1  # relative distance of two end points that are not the same


@rule(
    "N2",
    "Is gradient descent's largest distance to the flow the predicted coefficient times the step "
    "size?",
)
def first_order(data: xr.Dataset) -> Answer:
    """As the step size tends to 0, in coefficient and slope."""
    ratio = data.gap / (data.predicted_gap * data.step_size)
    limit = at_zero(data.step_size, ratio)
    wrong, last = float(abs(limit - 1).max()), float(data.step_size.max())
    smallest = data.gap.sortby("step_size")[..., :4]
    slopes = [
        log_slope(smallest.step_size, smallest.sel(attention=a, length=x))
        for a in data.attention
        for x in data.length
    ]
    return (
        judged(
            wrong < COEFFICIENT and max(abs(slope - 1) for slope in slopes) < SLOPE,
            rests_on=[limit, slopes],
        ),
        "sup‖θ_GD - θ_flow‖/η predicted "
        f"{listed(data.predicted_gap.sel(attention='softmax'), '.4f')} (softmax, L = "
        f"{listed(data.length)}); measured over predicted, both attentions, tends to 1 within "
        f"{wrong:.1e} as η → 0, with "
        f"slope {span(slopes, '.3f')} over the smallest four η; at η = {last:g} the law is low by "
        f"a factor up to {ratio.sel(step_size=last).max():.2f}.",
        f"Descent leaves the flow by the predicted multiple of its step size, to {100 * wrong:.2g} "
        "%.",
    )


@rule("N2", "Does descent follow the flow of R + (η/4)‖∇R‖² to second order?")
def second_order(data: xr.Dataset) -> Answer:
    """The distance to the modified flow has slope 2."""
    gap = data.modified_gap
    slopes = [
        log_slope(gap.modified_step_size, gap.sel(attention=a, length=x))
        for a in data.attention
        for x in data.length
    ]
    constant = (gap / gap.modified_step_size**2).sel(
        modified_step_size=float(gap.modified_step_size.min())
    )
    return (
        judged(max(abs(slope - 2) for slope in slopes) < 2 * SLOPE, rests_on=[slopes]),
        f"The distance to that flow has slope {span(slopes, '.3f')} in η, and is "
        f"{span(constant, '.3f')} times η² at the smallest.",
    )


@rule(
    "N2",
    "Control: with the scores frozen the risk is a bowl; does the library give back its closed "
    "forms?",
)
def bowl(data: xr.Dataset) -> Answer:
    """Flow, descent and the gap between them."""
    flow, gap, run = (float(data[f"bowl_{name}_error"]) for name in ("flow", "gap", "descent"))
    return (
        judged(max(flow, run) < 1e-6 and gap < 1e-4, rests_on=[flow, gap, run]),
        f"Flow to {flow:.0e}, descent to {run:.0e}, first-order gap to {gap:.0e} of its largest "
        "value.",
    )


@rule("N2", "Control: do softmax and linear attention descend alike at L = ∞?")
def same_at_infinity(data: xr.Dataset) -> Answer:
    """Undecided where the infinite prompt is not among the lengths."""
    gap = at(data.gap, length=np.inf)
    apart = float(abs(gap.sel(attention="softmax") - gap.sel(attention="linear")).max())
    return judged(apart < 1e-8, rests_on=[apart]), f"Their gaps differ by at most {apart:.0e}."


@rule(
    "N2",
    "Is the largest step at which descent returns to its end point 2 over the largest Hessian "
    "eigenvalue there?",
)
def stable(data: xr.Dataset) -> Answer:
    """Measured by bisection around the prediction, which is not itself tried."""
    worst = float(abs(data.measured_stable_step / data.stable_step - 1).max(skipna=False))
    steps = zip(data.measured_stable_step, data.stable_step, strict=True)
    pairs = ", ".join(f"{measured:.4f} against {predicted:.4f}" for measured, predicted in steps)
    return (
        judged(worst < STABLE, rests_on=[worst]),
        f"Measured against predicted at L = {listed(data.length)}: {pairs}; largest relative "
        f"difference {worst:.0e}, resolution "
        f"{(data.stable_step_error / data.stable_step).max():.0e}.",
    )


@rule(
    "N2", "Does descent with a step one per cent above that return to its end point?", control=True
)
def beyond_stable(data: xr.Dataset) -> Answer:
    """Fails where a small deviation grows tenfold."""
    least = float(data.growth_beyond.min())
    return judged(
        not least > 10, rests_on=[least]
    ), f"A deviation of 1e-6 grows {least:.3g} times or more in 200 steps."


@rule(
    "N2",
    "From the start, do steps above 2/λ_max of the end point stop where the sharpness is 2/η?",
    fails="Our conjecture, at some of the lengths: large steps end near that sharpness, not at it.",
)
def edge(data: xr.Dataset) -> Answer:
    """Holds at every length, in part at the longest finite one alone."""
    end, limit = 2 / data.stable_step, 2 / data.large_step
    stayed = data.large_sharpness.notnull()
    below, above = stayed & (limit > 1.01 * end), stayed & (limit < 0.99 * end)
    reached = float(abs(data.large_sharpness / end - 1).where(below).max())
    off = (
        abs(data.large_sharpness / limit - 1)
        .where(above & (data.large_step < 1.5 * data.stable_step))
        .max("multiple")
    )
    finite = int(np.flatnonzero(np.isfinite(data.length.values))[-1])
    longest = data.isel(length=finite)
    path = data.stable_step / data.path_stable_step
    worst = int(np.argmax(path.values))
    held = (longest.large_sharpness * longest.large_step / 2 - 1).where(
        longest.large_step > 1.05 * longest.stable_step
    )
    held = abs(held.where(longest.large_step < 2.5 * longest.stable_step)).max()
    return (
        judged(
            float(off.max()) < HOVERS,
            in_part=float(off[finite]) < HOVERS,
            rests_on=[off, reached, held],
        ),
        f"Steps below it end within {reached:.1%} of the flow's own sharpness; steps up to 1.5 "
        "times it end with a mean sharpness "
        f"within {listed(off, '.1%')} of 2/η (L = {listed(data.length)}), on flatter and, at "
        f"finite L, worse layers. At L = {longest.length:g} it stays within {held:.1%} of 2/η for "
        "steps from 1.05 to 2.5 times it. Along the flow the sharpness exceeds its end value by "
        f"up to a factor {path[worst]:.2f} (L = {listed(data.length[worst : worst + 1])}).",
    )


@rule(
    "N2",
    "As its step tends to 0, does Adam follow the sign flow, at a distance of 990 η |log of the "
    "gradient's change|?",
)
def sign_flow(data: xr.Dataset) -> Answer:
    """Undecided where the steps are too large to extrapolate."""
    ratio = data.early_sign_gap / data.predicted_sign_gap
    limit, smallest = float(at_zero(data.sign_step_size, ratio)), float(data.sign_step_size.min())
    outcome = judged(abs(limit - 1) < 5 * COEFFICIENT, rests_on=[limit])
    return (
        outcome if smallest <= SMALL_ADAM else "undecided",
        "Before the first change of sign, measured over predicted is "
        f"{ratio.sel(sign_step_size=smallest):.3f} at η = {smallest:g} and {limit:.3f} "
        f"extrapolated to 0; slope {log_slope(data.sign_step_size, data.early_sign_gap):.2f}. The "
        "memory of √v, 1000 steps, sets the scale.",
    )


@rule("N2", "At usual step sizes, does Adam follow its own flow with memory?")
def adam_memory(data: xr.Dataset) -> Answer:
    """Fifty times as near as to the sign flow, and nearer in proportion to the step size."""
    slopes = [
        log_slope(data.adam_step_size, data.memory_gap.sel(adam_length=x)) for x in data.adam_length
    ]
    common = usual(data)
    near, far = (
        float(data[name].sel(adam_step_size=common).max()) for name in ("memory_gap", "sign_gap")
    )
    return (
        judged(near < 0.02 * far and min(slopes) > 1 - SLOPE, rests_on=[near, far, slopes]),
        f"Up to t = {data.adam_time[-1]:g} at η = {common:g} it stays within {near:.1e} of it "
        f"(sign flow: {far:.2g}); the "
        f"distance has slope {span(slopes, '.2f')} in η (L = {listed(data.adam_length)}).",
    )


@rule("N2", "Does Adam end where the flow ends on the line of solutions at L = ∞?", control=True)
def adam_end(data: xr.Dataset) -> Answer:
    """Fails where b² - ‖A‖², which the flow conserves, is another at the end of Adam."""
    one, common = at(data, adam_length=np.inf), usual(data)
    adam, memory = (
        float(one[f"{name}_gauge"].sel(adam_step_size=common)) for name in ("adam", "memory")
    )
    b, flow = float(one.adam_b.sel(adam_step_size=common).isel(adam_time=-1)), float(one.flow_gauge)
    return (
        judged(not abs(adam - flow) > FAR, rests_on=[adam, flow]),
        f"b = {b:.4f} and b² - ‖A‖² = {adam:.3f} at η = {common:g} (predicted {memory:.3f}; sign "
        f"flow {one.sign_gauge:.3f}) "
        f"against {one.flow_b:.4f} and {flow:.1e}, which the flow conserves.",
    )


@rule(
    "N2",
    "After how many steps has Adam crossed the slow drift to the optimum of its length, and does "
    "its flow say so?",
)
def adam_arrival(data: xr.Dataset) -> Answer:
    """Undecided where it has not arrived."""
    wrong = float(abs(data.arrival_steps / data.predicted_arrival - 1).max(skipna=False))
    text = "; ".join(
        f"{s:.0f} (predicted {p:.0f}; flow: time {f:.3g}) at L = {x:g}"
        for s, p, f, x in zip(
            data.arrival_steps,
            data.predicted_arrival,
            data.flow_arrival,
            data.arrival_length,
            strict=True,
        )
    )
    return judged(
        wrong < COEFFICIENT, rests_on=[wrong]
    ), f"Steps until b is within 1 % for good: {text}."


DESCENT = (first_order, second_order, bowl, same_at_infinity, stable, beyond_stable, edge)
ADAM = (sign_flow, adam_memory, adam_end, adam_arrival)
RULES = (*DESCENT, *sgd_rules.RULES, *ADAM, sgd_rules.authors)
