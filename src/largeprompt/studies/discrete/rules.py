"""How far gradient descent, SGD and Adam are from the gradient flow (N2)."""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Finding, allowed_score, judged, log_slope, rule


def at_zero(x: xr.DataArray, ratio: xr.DataArray) -> xr.DataArray:
    """Ratios extrapolated to step size 0 from the two smallest ones, where they are linear."""
    ordered = ratio.sortby(x.name)
    first, second = (float(value) for value in np.sort(x.values)[:2])
    return ordered[..., 0] + (ordered[..., 0] - ordered[..., 1]) * first / (second - first)


@rule("N2", "At the authors' settings, is SGD as near to the gradient flow as its law says?")
def authors(data: xr.Dataset) -> Finding:
    """Undecided where the runs are too few to exclude a spread twice as large."""
    end, last, allowed = data.isel(paper_step=-1), data.isel(paper_time=-1), allowed_score()
    score, double = (
        float(abs(end.paper_spread - factor * end.paper_predicted) / end.paper_spread_error)
        for factor in (1, 2)
    )
    outcome = judged(score <= allowed, rests_on=[score, last.paper_law])
    share = 100 * float(last.paper_law / last.paper_size)
    return Finding(
        "undecided" if outcome == "holds" and double <= allowed else outcome,
        "By a law that its runs obey, the authors' SGD ends within "
        f"{share:.2g} % of gradient flow's parameters.",
        "The authors' SGD is not as near to gradient flow as predicted.",
        {
            "predicted distance at the end": last.paper_law,
            "of parameters of norm": last.paper_size,
            "spread of runs over its first part": np.sqrt(end.paper_spread),
            "predicted": np.sqrt(end.paper_predicted),
        },
    )


def usual(data: xr.Dataset) -> float:
    """The step size of Adam nearest to PyTorch's default, 1e-3."""
    steps = data.adam_step_size.values
    return float(steps[np.argmin(np.abs(steps - 1e-3))])


@rule("N2", "Does Adam follow its own flow, with the memory that its averages have?")
def adam(data: xr.Dataset) -> Finding:
    """Holds where the distance is small and falls at least like the step size."""
    slope = log_slope(data.adam_step_size, data.memory_gap)
    near = float(data.memory_gap.sel(adam_step_size=usual(data)))
    return Finding(
        judged(near < 1e-3 and slope > 0.9, rests_on=[near, slope]),
        "Adam follows a flow of its own, and ends elsewhere.",
        "Adam does not follow the flow predicted for it.",
        {
            "step size": usual(data),
            "largest distance to its flow": near,
            "exponent in the step size": slope,
        },
    )


@rule(
    "N2", "Is gradient descent's largest distance to the flow the predicted multiple of the step?"
)
def descent(data: xr.Dataset) -> Finding:
    """As the step size tends to 0, in coefficient and slope."""
    ratio = data.gap / (data.predicted_gap * data.step_size)
    limit = at_zero(data.step_size, ratio)
    smallest = data.gap.sortby("step_size")[..., :4]
    slopes = [log_slope(smallest.step_size, row) for row in smallest]
    wrong = float(abs(limit - 1).max())
    return Finding(
        judged(wrong < 0.02 and max(abs(s - 1) for s in slopes) < 0.1, rests_on=[limit, slopes]),
        numbers={
            "predicted multiple": data.predicted_gap,
            "relative error as the step tends to 0": wrong,
            "exponent in the step": slopes,
        },
    )


@rule(
    "N2", "Is the largest stable step of descent 2 over the largest Hessian eigenvalue at its end?"
)
def stable(data: xr.Dataset) -> Finding:
    """Measured by bisection around the prediction; a step 1 % larger must leave."""
    worst = float(abs(data.measured_stable_step / data.stable_step - 1).max(skipna=False))
    least = float(data.growth_beyond.min())
    return Finding(
        judged(worst < 2e-3 and least > 10, rests_on=[worst, least]),
        numbers={
            "predicted": data.stable_step,
            "largest relative error": worst,
            "growth of a deviation in 200 steps 1 % larger": least,
        },
    )


def intercept(data: xr.Dataset) -> tuple[float, float]:
    """Spread over its prediction as η/B tends to 0, and the standard error."""
    x, known = (data.batch_step_size / data.batch_size).values, data.predicted_spread.values
    y, error = data.sgd_spread.values / known, data.sgd_spread_error.values / known
    design = np.stack([np.ones_like(x), x], -1) / error[:, None]
    inverse = np.linalg.inv(design.T @ design)
    a = float((inverse @ design.T @ (y / error))[0])
    own = float((data.predicted_spread_error / data.predicted_spread).mean())
    return a, float(np.hypot(np.sqrt(inverse[0, 0]), own))


@rule("N2", "Do runs of SGD spread around the flow as P' = -HP - PH + (η/B)C predicts?")
def spread(data: xr.Dataset) -> Finding:
    """As η/B tends to 0; undecided where twice the prediction would fit too."""
    a, error = intercept(data)
    allowed = allowed_score()
    outcome = judged(abs(a - 1) <= allowed * error, rests_on=[a, error])
    return Finding(
        "undecided" if outcome == "holds" and abs(a - 2) <= allowed * error else outcome,
        numbers={
            "variance over its prediction as η/B tends to 0": a,
            "standard error": error,
            "distance to the flow over its prediction": data.sgd_gap / data.predicted_sgd_gap,
        },
    )


@rule("N2", "Would half the batch size explain the spread as well?", control=True)
def half_batch(data: xr.Dataset) -> Finding:
    """Fails where twice the prediction is too much."""
    a, error = intercept(data)
    score = abs(a - 2) / error
    return Finding(
        judged(score <= allowed_score(), rests_on=[score]), numbers={"standard errors": score}
    )


@rule("N2", "Does Adam end where the gradient flow ends on the line of solutions?", control=True)
def adam_end(data: xr.Dataset) -> Finding:
    """Fails where b² - ‖A‖², which the flow conserves, is another at the end of Adam."""
    one = data.sel(adam_step_size=usual(data))
    gauges = [one.adam_gauge, one.flow_gauge]
    return Finding(
        judged(not abs(float(gauges[0] - gauges[1])) > 0.1, rests_on=gauges),
        numbers={
            "b² - ‖A‖² of Adam": one.adam_gauge,
            "predicted": one.memory_gauge,
            "of the gradient flow": one.flow_gauge,
        },
    )


RULES = (authors, adam, descent, stable, spread, half_batch, adam_end)
