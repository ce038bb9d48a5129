"""What the study of trained transformers says, by rules fixed before any was trained."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

from largeprompt.audit.findings import FINDINGS
from largeprompt.runs.study import Outcome, Verdict

FALSE_ALARM = 1e-6  # of all comparisons of one verdict together
REACHED = 0.02  # how near the trained head must come to the optimum of its objective
FOLLOWS = 0.10  # excess risks that differ by less are the same
EXPLAINED = 2  # factor within which the exact law explains a head's affine error
UNCHANGED = 0.10  # likewise for the risk of a model with replaced heads
DIVERGES = 100  # times the risk: a replaced model that has run away
LOWERED = 0.1  # share of the signal by which a model must lower the risk to have learnt anything


def verdicts(data: xr.Dataset) -> list[Verdict]:
    """The control against the exact theory, then regimes, depth, replacement, and what must fail."""
    genuine = data.isel(model=np.flatnonzero(~data.shuffled.values.astype(bool)))
    bare = (genuine.kind.values == "attention") & (genuine.layers.values == 1)
    alone = np.flatnonzero(bare & (genuine.heads.values == 1))
    several = np.flatnonzero(bare & (genuine.heads.values > 1))
    deeper = genuine.isel(model=np.flatnonzero(~bare))
    found = []
    if len(alone):
        control = genuine.isel(model=alone[0])
        found += [_agreement(control), _optimum(control), _never_better(control), _carried(control)]
    found += [
        _regime(genuine.isel(model=np.flatnonzero(genuine.kind.values == kind)), kind) for kind in np.unique(genuine.kind.values)
    ]
    if len(several):
        found.append(_several(genuine.isel(model=several[0])))
    if deeper.sizes["model"]:
        found += [_deeper(deeper), _theory_elsewhere(deeper)]
    if len(alone):
        found.append(_replaced_exactly(genuine.isel(model=alone[0])))
    found += [_law(genuine), _replaced(genuine), _audit_is_right(genuine), _bayes(genuine), _untrained(genuine)]
    shuffled = data.isel(model=np.flatnonzero(data.shuffled.values.astype(bool)))
    return [*found, _shuffled(shuffled)] if shuffled.sizes["model"] else found


def z_scores(data: xr.Dataset, against: xr.DataArray, name: str = "risk") -> xr.DataArray:
    """Distance of each sampled mean from a number in standard errors, with the skewness of the samples taken out (Hall, 1992).

    A mean of n squares is skewed to the right and its standard error rises with it: t = (mean - number)/error alone strays too far
    below 0. With a = g/(3√n), g the skewness of one prompt, t + at² + a²t³/3 + a/2 is normal to the next order, and rises with t.
    """
    t: xr.DataArray = (data[name] - against) / data[f"{name}_error"]
    a: xr.DataArray = data[f"{name}_skewness"] / (3 * np.sqrt(data.test_prompts))
    score: xr.DataArray = t + a * t**2 + a**2 * t**3 / 3 + a / 2
    return score


def allowed(count: int, sides: int = 2) -> float:
    """How many standard errors ``count`` comparisons may be apart."""
    from scipy.stats import norm

    return float(norm.isf(FALSE_ALARM / (sides * count)))


def share_interval(share: xr.DataArray) -> tuple[float, float, float]:
    """Mean of shares over independent trainings and its 95 % interval, as if the heads of a training were one (Clopper, Pearson).

    Trainings of different models do not have the same chance; the spread of their mean is then less than that of equal ones.
    """
    from scipy.stats import beta

    values = share.values.ravel()
    n, x = len(values), float(values.sum())
    lower = float(beta.ppf(0.025, x, n - x + 1)) if x > 0 else 0.0
    upper = float(beta.ppf(0.975, x + 1, n - x)) if x < n else 1.0
    return x / n, lower, upper


def excess_ratio(data: xr.Dataset, of: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Risk above the noise, over that of ``of``: mean over runs and its standard error (trainings and prompts together)."""
    ratio = (data.risk - data.floor) / (of - data.floor)
    return ratio.mean("run"), ratio.std("run", ddof=1) / math.sqrt(ratio.sizes["run"])


def _longest(data: xr.Dataset) -> int:
    return int(data.training_length.max())


def _trained_on(data: xr.Dataset) -> xr.Dataset:
    """Test lengths within the range of training."""
    return data.sel(length=data.length[(data.length >= data.training_length.min()) & (data.length <= data.training_length.max())])


def _agreement(control: xr.Dataset) -> Verdict:
    score, limit = float(abs(z_scores(control, control.exact_risk)).max()), allowed(control.risk.size)
    return Verdict(
        "C6",
        "Does a trained bare head have, on fresh prompts of every length, the exact risk of its own U and V?",
        "holds" if score <= limit else "fails",
        f"{control.risk.size} sampled risks lie within {score:.1f} standard errors, {limit:.1f} allowed "
        f"(false alarms in {FALSE_ALARM:g} of runs).",
    )


def _optimum(control: xr.Dataset) -> Verdict:
    gap = control.exact_objective / control.objective_optimum - 1
    error = float((control.exact_objective_error / control.objective_optimum).max())
    lengths = ", ".join(f"{int(each)}" for each in control.training_length)
    return Verdict(
        "C6",
        "Does training one bare head end at the exact optimum of one layer?",
        "holds" if float(abs(gap).max()) <= REACHED else "fails",
        f"Exact mean risk over L = {lengths}: {float(gap.min()):+.2%} to {float(gap.max()):+.2%} from the optimum "
        f"{float(control.objective_optimum):.4f} in {gap.size} trainings, each ± {error:.2%} ({REACHED:.0%} allowed).",
    )


def _never_better(control: xr.Dataset) -> Verdict:
    score, limit = float(z_scores(control, control.softmax_optimum).min()), allowed(control.risk.size, 1)
    least = float((control.exact_risk / control.softmax_optimum - 1).min())
    return Verdict(
        "C6",
        "Is the trained head at no length better than the best of that length, U = diag(aI, 0), v = (0, b)?",
        "holds" if score >= -limit else "fails",
        f"At {control.risk.size} runs and lengths the sampled risk is never more than {max(0.0, -score):.1f} standard errors below "
        f"({limit:.1f} allowed, false alarms in {FALSE_ALARM:g} of runs); by the exact risk the nearest is {least:+.2%}.",
    )


def _carried(control: xr.Dataset) -> Verdict:
    apart = abs(control.exact_risk - control.carried) / (control.carried - control.floor)
    best = (control.exact_risk.mean("run") - control.floor) / (control.softmax_optimum - control.floor)
    near = [f"{int(each)}" for each in control.length.values[(best <= 1 + FOLLOWS).values]]
    return Verdict(
        "C5",
        "At which lengths does the risk of the trained head follow the exact theory of one layer?",
        "holds" if float(apart.max()) <= FOLLOWS else "holds in part" if float(apart.min()) <= FOLLOWS else "fails",
        f"Its excess is within {float(apart.max()):.1%} of that of the best head for training at every tested L "
        f"({int(control.length[0])} to {int(control.length[-1])}), and within {FOLLOWS:.0%} of the best for L itself at L = "
        f"{', '.join(near) or 'none'}; at L = {int(control.length[-1])} it is {float(best[-1]):.2f} times that.",
    )


def _regime(models: xr.Dataset, kind: str) -> Verdict:
    last = models.isel(checkpoint=-1)
    known = last.alpha.notnull()
    share = (last.alpha < 0.5).where(known).mean(["layer", "head"])  # (model, run)
    mean, low, high = share_interval(share)
    outcome: Outcome = "holds" if low > 0.5 else "fails" if high < 0.5 else "undecided"
    alpha = last.alpha.quantile([0.1, 0.5, 0.9], ["model", "run", "layer", "head"])
    first = (models.isel(checkpoint=0).alpha < 0.5).where(known).mean()
    each = ", ".join(f"{float(row.mean()):.2f} ({row.model.values})" for row in share)
    frozen = float((last.alpha >= 1).where(known).mean())
    deepest = last.isel(model=int(np.argmax(last.layers.values)))
    layers = deepest.alpha.median(["run", "head"]).sel(layer=slice(1, int(deepest.layers)))
    by_layer = (
        f" By layer of {deepest.model.values}: {', '.join(f'{float(each):.2f}' for each in layers)}." if len(layers) > 1 else ""
    )
    words = {"attention": "of bare attention", "blocks": "in real blocks"}[kind]
    return Verdict(
        "C7",
        f"Do trained heads {words} sit in the linear regime, alpha < 1/2, at the longest training length?",
        outcome,
        f"Share of heads {mean:.2f} [{low:.2f}, {high:.2f}] over {share.size} trainings at L = {_longest(models)} "
        f"({float(first):.2f} untrained): {each}. alpha is {float(alpha[1]):.2f} (10 to 90 %: {float(alpha[0]):.2f} to "
        f"{float(alpha[2]):.2f}), {frozen:.0%} are frozen.{by_layer}",
    )


def _law(models: xr.Dataset) -> Verdict:
    last = models.isel(checkpoint=-1)
    known = last.law_share.notnull()
    near = ((last.law_share > 1 / EXPLAINED) & (last.law_share < EXPLAINED)).where(known)
    share = float(near.mean())
    finding = [int((last.finding == code).sum()) for code in range(len(FINDINGS))]
    each = ", ".join(f"{float(row.median()):.2f} ({row.model.values})" for row in last.law_share)
    return Verdict(
        "C2",
        f"Is the affine error of trained heads that of as many Gaussian tokens with their moments, within a factor of {EXPLAINED}?",
        "holds" if share >= 0.9 else "holds in part" if share >= 0.5 else "fails",
        f"For {share:.0%} of {int(known.sum())} heads at L = {_longest(models)}; expected over found mean square, medians: {each}. "
        f"Findings: {', '.join(f'{n} {name}' for n, name in zip(finding, FINDINGS, strict=True))}.",
    )


def _several(model: xr.Dataset) -> Verdict:
    part = _trained_on(model)
    linear, error = excess_ratio(part, part.linear_optimum)
    single, _ = excess_ratio(part, part.softmax_optimum)
    least = ((part.risk - part.floor) / (part.linear_optimum - part.floor)).min("run")
    near = abs(linear - 1) <= FOLLOWS
    text = ", ".join(f"{float(a):.2f} ± {float(e):.2f}" for a, e in zip(linear, error, strict=True))
    return Verdict(
        "Q1",
        f"Do {int(model.heads)} softmax heads in one bare layer reach the risk of the best linear attention?",
        "holds" if bool(near.all()) else "holds in part" if bool(near.any()) else "fails",
        f"Excess over that of linear attention {text} at L = {', '.join(f'{int(each)}' for each in part.length)} "
        f"({', '.join(f'{float(each):.2f}' for each in least)} in the best training; the mean is "
        f"{', '.join(f'{float(each):.2f}' for each in single)} of the best single head).",
    )


def _beats(data: xr.Dataset) -> xr.DataArray:
    """Whether a model is better than the best single head in every run, beyond sampling error."""
    return (z_scores(data, data.softmax_optimum) < -allowed(data.risk.size, 1)).all("run")


def _deeper(models: xr.Dataset) -> Verdict:
    beats = _beats(models)
    trained = _trained_on(beats.to_dataset(name="beats").assign(training_length=models.training_length)).beats
    outcome: Outcome = "holds" if bool(trained.all()) else "holds in part" if bool(trained.any()) else "fails"
    at = models.sel(length=_longest(models), method="nearest")
    ratio, error = excess_ratio(at, at.softmax_optimum)
    bayes, _ = excess_ratio(at, at.bayes)
    rows = ", ".join(
        f"{models.model.values[i]} {float(ratio[i]):.3f} ± {float(error[i]):.3f} ({float(bayes[i]):.2f} times Bayes)"
        for i in range(models.sizes["model"])
    )
    lost = [
        f"{models.model.values[i]} at L = {', '.join(f'{int(each)}' for each in models.length.values[~beats.values[i]])}"
        for i in range(models.sizes["model"])
        if not beats.values[i].all()
    ]
    return Verdict(
        "Q2",
        "Do deeper models and real blocks beat the best single layer with one head, at every length of training?",
        outcome,
        f"Excess over that of the best head at L = {int(at.length)}: {rows}. Over all tested lengths "
        f"({int(models.length[0])} to {int(models.length[-1])}) not better beyond sampling error: {'; '.join(lost) or 'none'}.",
    )


def _theory_elsewhere(models: xr.Dataset) -> Verdict:
    follows, text = [], []
    for name, target in (
        ("one head", models.softmax_optimum),
        ("linear attention", models.linear_optimum),
        ("Bayes", models.bayes),
    ):
        ratio, _ = excess_ratio(models, target)
        near = abs(ratio - 1) <= FOLLOWS
        places = [f"{m.values} at L = {int(n)}" for m in models.model for n in models.length if bool(near.sel(model=m, length=n))]
        follows.append(len(places))
        text.append(f"{name}: {', '.join(places) or 'nowhere'}")
    return Verdict(
        "Q2",
        "Does the risk of deeper models and real blocks follow the exact theory of one layer anywhere?",
        "holds in part" if follows[0] + follows[1] else "fails",
        f"Excess within {FOLLOWS:.0%}, of {models.sizes['model'] * models.sizes['length']} models and lengths, of "
        + "; ".join(text)
        + ".",
    )


def _change(data: xr.Dataset, name: str) -> xr.DataArray:
    """Relative change of the risk, median over runs."""
    change: xr.DataArray = data.replaced_risk.sel(replaced=name) / data.replaced_risk.sel(replaced="softmax") - 1
    return change.median("run")


def _replaced_exactly(control: xr.Dataset) -> Verdict:
    here = control.sel(replaced="affine")
    part = here.replaced_risk - control.replaced_risk.sel(replaced="softmax")
    expected = control.exact_replaced - control.exact_risk.sel(length=_longest(control))
    score = float(abs(z_scores(here.assign(change=part), expected, "change")).max())
    limit = allowed(part.size)
    return Verdict(
        "C7",
        "Does the affine read-out of the prompt's own moments change the trained head's risk as the exact law says?",
        "holds" if score <= limit else "fails",
        f"At L = {_longest(control)} the risk changes by {float(part.mean()):+.4f}, predicted {float(expected.mean()):+.4f}; "
        f"{part.size} trainings within {score:.1f} standard errors, {limit:.1f} allowed.",
    )


def _replaced(models: xr.Dataset) -> Verdict:
    affine, mean = _change(models, "affine"), _change(models, "mean")
    count = int((affine <= UNCHANGED).sum())

    def words(value: float) -> str:
        return f"{value:+.0%}" if value < DIVERGES else f"more than {DIVERGES} times"

    text = ", ".join(f"{m.values} {words(float(a))}" for m, a in zip(models.model, affine, strict=True))
    return Verdict(
        "C7",
        f"May every head of a trained model be replaced by its affine read-out, for at most {UNCHANGED:.0%} more risk?",
        "holds" if count == affine.size else "holds in part" if count else "fails",
        f"Risk at L = {_longest(models)}, median over trainings: {text}. "
        f"By the mean value alone {float(mean.min()):+.0%} to {float(mean.max()):+.0%}.",
    )


def _audit_is_right(models: xr.Dataset) -> Verdict:
    last = models.finding.isel(checkpoint=-1)
    known, moments = last >= 0, last == 0
    number = moments.sum(["layer", "head"])
    both = (number > 0) & (number < known.sum(["layer", "head"]))  # (model, run) with heads of either kind
    base = models.replaced_risk.sel(replaced="softmax")
    kept, lost = ((models.replaced_risk.sel(replaced=name) - base) / base for name in ("moments heads", "other heads"))
    per_kept = (kept / number).where(both)
    per_lost = (lost / (known.sum(["layer", "head"]) - number)).where(both)
    right = float((abs(per_kept) < abs(per_lost)).where(both).sum())
    total = int(both.sum())
    return Verdict(
        "C7",
        "Do heads that the audit says read only moments cost less, one by one, than the others when replaced at the query?",
        "undecided" if total == 0 else "holds" if right >= 0.9 * total else "fails" if right <= 0.5 * total else "holds in part",
        f"In {right:.0f} of {total} trainings with heads of both kinds; change of risk per head "
        f"{float(per_kept.median()):+.1%} against {float(per_lost.median()):+.1%} (medians). "
        f"{float(moments.sum()) / float(known.sum()):.0%} of {int(known.sum())} heads read moments."
        if total
        else "No training has heads of both kinds.",
    )


def _bayes(models: xr.Dataset) -> Verdict:
    score, limit = float(z_scores(models, models.bayes).min()), allowed(models.risk.size, 1)
    return Verdict(
        "C6",
        "Is no model better than Bayes?",
        "holds" if score >= -limit else "fails",
        f"{models.risk.size} sampled risks, the lowest {score:+.1f} standard errors from the Bayes risk of its length "
        f"({-limit:.1f} allowed).",
    )


def _untrained(models: xr.Dataset) -> Verdict:
    risk = models.checkpoint_risk.isel(checkpoint=0)
    lowered = (models.zero_risk - risk) / (models.zero_risk - models.floor)
    return Verdict(
        "C6",
        "Do untrained models, on average, do better than answering 0?",
        "holds" if float(lowered.mean()) > LOWERED else "fails",
        f"Before training the risk is {float(risk.mean()):.2f} in the mean of {risk.size} models and runs "
        f"({float(risk.min()):.2f} to {float(risk.max()):.2f}), and {float(models.zero_risk):.2f} for answering 0.",
        control=True,
    )


def _shuffled(models: xr.Dataset) -> Verdict:
    at = models.sel(length=_longest(models), method="nearest")
    lowered = (at.zero_risk - at.risk) / (at.zero_risk - at.floor)
    return Verdict(
        "C6",
        "Does a model trained on prompts without information lower the risk?",
        "holds" if float(lowered.mean()) > LOWERED else "fails",
        f"Every token had a task vector of its own in training. On true prompts of L = {int(at.length)} the risk is "
        f"{float(at.risk.mean()):.3f}, {float(at.zero_risk):.3f} for answering 0, lower by {float(lowered.mean()):.1%} of the "
        f"signal ({LOWERED:.0%} would count).",
        control=True,
    )
