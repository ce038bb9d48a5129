"""What the study of trained transformers says, by rules fixed before any was trained."""

import numpy as np
import xarray as xr

from largeprompt.runs.judging import Finding, NotInRunError, Rule, allowed_score, at, judged, rule

REACHED = 0.02  # how near the trained head must come to the optimum of its objective
CLOSE = 0.10  # excess risks, or risks with heads replaced, that differ by less are the same
LOWERED = 0.1  # share of the signal by which a model must lower the risk to have learned anything


def chosen(data: xr.Dataset, **wanted: object) -> xr.Dataset:
    """Models of this kind, layers and heads, trained on true prompts unless ``shuffled``."""
    mask = data.shuffled.values.astype(bool) == wanted.pop("shuffled", False)
    for name, value in wanted.items():
        mask &= data[name].values == value
    if not mask.any():
        raise NotInRunError("the run has no such model")
    return data.isel(model=np.flatnonzero(mask))


def excess(data: xr.Dataset, over: str) -> xr.DataArray:
    """Risk above the noise, over that of a reference, by run."""
    found: xr.DataArray = (data.risk - data.floor) / (data[over] - data.floor)
    return found


def trained_on(data: xr.Dataset) -> xr.Dataset:
    """Test lengths within the range of training."""
    lengths, trained = data.length, data.training_length
    return data.sel(length=lengths[(lengths >= trained.min()) & (lengths <= trained.max())])


def longest(data: xr.Dataset) -> int:
    """Longest length of training."""
    return int(data.training_length.max())


@rule("C6", "Does training one bare head end at the exact optimum of one layer?")
def optimum(data: xr.Dataset) -> Finding:
    """Holds to 2 %."""
    head = chosen(data, kind="attention", layers=1, heads=1)
    gap = 100 * (head.exact_objective / head.objective_optimum - 1)
    far = head.isel(length=-1)
    best = (far.exact_risk - far.floor) / (far.softmax_optimum - far.floor)
    return Finding(
        judged(float(abs(gap).max()) <= 100 * REACHED, rests_on=[gap]),
        f"Adam trains one softmax head to within {float(abs(gap).max()):.2g} % of the exact "
        "optimum of one layer.",
        "Adam does not train one softmax head to the exact optimum of one layer.",
        {
            "above the optimum": (gap, "%"),
            f"excess over that of the best head for L = {int(far.length)}": best,
        },
    )


def regime(kind: str) -> Rule:
    """Rule that holds where the interval of the share of linear heads is above a half."""
    words = {"attention": "of bare attention", "blocks": "in real blocks"}[kind]

    @rule(
        "C7",
        f"Do trained heads {words} sit in the linear regime, alpha < 1/2?",
        fails="A property of trained models that the paper's limit would like, not its claim.",
    )
    def found(data: xr.Dataset) -> Finding:
        from scipy.stats import beta

        last = chosen(data, kind=kind).isel(checkpoint=-1)
        known = last.alpha.notnull()
        share = (last.alpha < 0.5).where(known).mean(["layer", "head"])  # (model, run)
        # Clopper and Pearson's 95 % interval, as if the heads of a training were one
        n, x = share.size, float(share.sum())
        low = float(beta.ppf(0.025, x, n - x + 1)) if x > 0 else 0.0
        high = float(beta.ppf(0.975, x + 1, n - x)) if x < n else 1.0
        outcome = judged(low > 0.5, rests_on=[share])
        said = f"{round(100 * x / n)} % of trained heads {words} are in the linear regime."
        return Finding(
            "undecided" if low <= 0.5 <= high else outcome,
            said,
            said,
            {"share of linear heads": x / n, "95 % interval": f"{low:.2f} to {high:.2f}"},
        )

    return found


@rule(
    "Q1",
    "Do two softmax heads in one bare layer reach the risk of the best linear attention?",
    stronger=True,
    fails="A method: training does not find the opposite tilts that would reach it.",
)
def two_heads(data: xr.Dataset) -> Finding:
    """Holds within 10 % of linear attention's excess at every length, in part at some."""
    part = trained_on(chosen(data, kind="attention", layers=1, heads=2))
    ratio = excess(part, "linear_optimum")
    near = abs(ratio.mean("run") - 1) <= CLOSE
    return Finding(
        judged(bool(near.all()), in_part=bool(near.any()), rests_on=[ratio]),
        "Two trained softmax heads reach the risk of linear attention.",
        "Two trained softmax heads do not always reach the risk of linear attention.",
        {
            "mean excess over linear attention's": ratio.mean("run"),
            "in the best training": ratio.min("run"),
        },
    )


@rule(
    "Q2",
    "Do deeper models and real blocks beat the best single head at every length of training?",
    fails="Our conjecture, by this training: some of its runs end above the best single head.",
)
def deeper(data: xr.Dataset) -> Finding:
    """Holds where every run is better beyond chance at every length, in part at some."""
    genuine = chosen(data)
    bare = (genuine.kind.values == "attention") & (genuine.layers.values == 1)
    if bare.all():
        raise NotInRunError("the run has no such model")
    part = trained_on(genuine.isel(model=np.flatnonzero(~bare)))
    score = (part.softmax_optimum - part.risk) / part.risk_error
    beats = (score > allowed_score(part.risk.size, sides=1)).all(["run", "model"])
    last = at(part, length=longest(data))
    ratio = excess(last, "softmax_optimum").mean("run")
    return Finding(
        judged(bool(beats.all()), in_part=bool(beats.any()), rests_on=[score]),
        f"Depth beats the best single head: its excess risk is down to {float(ratio.min()):.2g} "
        "of that.",
        "Deeper models do not always beat the best single head.",
        {
            f"mean excess over the best head's at L = {longest(data)}": ratio,
            "over that of Bayes": excess(last, "bayes").mean("run"),
        },
    )


@rule(
    "C7",
    "Can every head of a trained model be replaced by its affine read-out?",
    fails="A stronger reading: heads that are linear one by one do not make the model linear.",
)
def replaced(data: xr.Dataset) -> Finding:
    """Holds where no model has over 10 % more risk (median), in part where some have not."""
    models = chosen(data)
    change = models.replaced_risk / models.replaced_risk.sel(replaced="softmax") - 1
    affine, mean = (change.sel(replaced=name).median("run") for name in ("affine", "mean"))
    count = int((affine <= CLOSE).sum())
    return Finding(
        judged(count == affine.size, in_part=count > 0, rests_on=[affine]),
        "Every head can be replaced by its affine read-out.",
        f"{count} of {affine.size} models keep their risk when all heads become affine read-outs.",
        {
            f"more risk at L = {longest(data)}": (100 * affine, "%"),
            "with the mean value alone": (100 * mean, "%"),
        },
    )


@rule("C6", "Does a model trained on prompts without information lower the risk?", control=True)
def shuffled(data: xr.Dataset) -> Finding:
    """Fails where it lowers the risk by less than a tenth of the signal."""
    one = at(chosen(data, shuffled=True), length=longest(data))
    lowered = float(((one.zero_risk - one.risk) / (one.zero_risk - one.floor)).mean())
    return Finding(
        judged(lowered > LOWERED, rests_on=[lowered]),
        numbers={f"share of the signal that it learned, L = {longest(data)}": lowered},
    )


RULES = (optimum, regime("attention"), regime("blocks"), two_heads, deeper, replaced, shuffled)
