"""What the study of trained transformers says, by rules fixed before any was trained."""

from typing import get_args

import numpy as np
import xarray as xr

from largeprompt.audit.kinds import FINDINGS, READ_MOMENTS
from largeprompt.runs.judging import FALSE_ALARM, Answer, Rule, allowed_score, judged, listed, span
from largeprompt.studies.trained.choosing import (
    about,
    choice,
    deep_models,
    excess_ratio,
    genuine,
    is_shuffled,
    longest,
    one_head,
    several_heads,
    share_interval,
    shuffled_models,
    trained_on,
    z_scores,
)
from largeprompt.studies.trained.config import Kind

REACHED = 0.02  # how near the trained head must come to the optimum of its objective
FOLLOWS = 0.10  # excess risks that differ by less are the same
EXPLAINED = 2  # factor within which the exact law explains a head's affine error
KEPT = 0.10  # likewise for the risk of a model with replaced heads
DIVERGES = 100  # times the risk: a replaced model that has run away
LOWERED = 0.1  # share of the signal by which a model must lower the risk to have learnt anything


@about(
    one_head,
    "C6",
    "Does a trained bare head have, on fresh prompts of every length, the exact risk of its own U "
    "and V?",
)
def agreement(control: xr.Dataset) -> Answer:
    """Holds where every sampled risk is within chance of the exact one."""
    score, limit = (
        float(abs(z_scores(control, control.exact_risk)).max()),
        allowed_score(control.risk.size),
    )
    return (
        judged(score <= limit, rests_on=[score]),
        f"{control.risk.size} sampled risks lie within {score:.1f} standard errors, {limit:.1f} "
        f"allowed (false alarms in {FALSE_ALARM:g} of runs).",
    )


@about(one_head, "C6", "Does training one bare head end at the exact optimum of one layer?")
def optimum(control: xr.Dataset) -> Answer:
    """Holds to 2 %."""
    gap = control.exact_objective / control.objective_optimum - 1
    return (
        judged(float(abs(gap).max()) <= REACHED, rests_on=[gap]),
        f"Exact mean risk over L = {listed(control.training_length)}: {span(gap, '+.2%')} from the "
        f"optimum {control.objective_optimum:.4f} in {gap.size} trainings ({REACHED:.0%} allowed).",
        f"Adam trains one softmax head to within {100 * float(abs(gap).max()):.2g} % of the exact "
        "optimum of one layer.",
    )


@about(
    one_head,
    "C6",
    "Is the trained head at no length better than the best of that length, U = diag(aI, 0), v = "
    "(0, b)?",
)
def never_better(control: xr.Dataset) -> Answer:
    """Holds where no sampled risk is below the best beyond chance."""
    score, limit = (
        float(z_scores(control, control.softmax_optimum).min()),
        allowed_score(control.risk.size, sides=1),
    )
    least = float((control.exact_risk / control.softmax_optimum - 1).min())
    return (
        judged(score >= -limit, rests_on=[score]),
        f"At {control.risk.size} runs and lengths the sampled risk is never more than "
        f"{max(0.0, -score):.1f} standard errors below ({limit:.1f} allowed, false alarms in "
        f"{FALSE_ALARM:g} of runs); by the exact risk the nearest is {least:+.2%}.",
    )


@about(
    one_head,
    "C5",
    "At which lengths does the risk of the trained head follow the exact theory of one layer?",
)
def carried(control: xr.Dataset) -> Answer:
    """Holds where the excess is within 10 % of the best head for training everywhere, in part where
    it is somewhere.
    """
    apart = abs(control.exact_risk - control.carried) / (control.carried - control.floor)
    best = (control.exact_risk.mean("run") - control.floor) / (
        control.softmax_optimum - control.floor
    )
    near = control.length.values[(best <= 1 + FOLLOWS).values]
    return (
        judged(
            float(apart.max()) <= FOLLOWS, in_part=float(apart.min()) <= FOLLOWS, rests_on=[apart]
        ),
        f"Its excess is within {apart.max():.1%} of that of the best head for training at every "
        f"tested L ({int(control.length[0])} to {int(control.length[-1])}), and within "
        f"{FOLLOWS:.0%} of the best for L itself at L = {listed(near) or 'none'}; at L = "
        f"{int(control.length[-1])} it is {best[-1]:.2f} times that.",
    )


def regime(kind: Kind) -> Rule:
    """The rule for models of one kind: holds where the interval of the share of linear heads is
    above a half, fails below.
    """
    words = {"attention": "of bare attention", "blocks": "in real blocks"}[kind]
    question = (
        f"Do trained heads {words} sit in the linear regime, alpha < 1/2, at the longest "
        "training length?"
    )

    @about(choice(lambda data: ~is_shuffled(data) & (data.kind.values == kind)), "C7", question)
    def found(models: xr.Dataset) -> Answer:
        last = models.isel(checkpoint=-1)
        known = last.alpha.notnull()
        share = (last.alpha < 0.5).where(known).mean(["layer", "head"])  # (model, run)
        mean, low, high = share_interval(share)
        alpha = last.alpha.quantile([0.1, 0.5, 0.9], ["model", "run", "layer", "head"])
        first = (models.isel(checkpoint=0).alpha < 0.5).where(known).mean()
        each = ", ".join(f"{row.mean():.2f} ({row.model.values})" for row in share)
        frozen = float((last.alpha >= 1).where(known).mean())
        deepest = last.isel(model=int(np.argmax(last.layers.values)))
        layers = deepest.alpha.median(["run", "head"]).sel(layer=slice(1, int(deepest.layers)))
        by_layer = (
            f" By layer of {deepest.model.values}: {listed(layers, '.2f')}."
            if len(layers) > 1
            else ""
        )
        return (
            "holds" if low > 0.5 else "fails" if high < 0.5 else "undecided",
            f"Share of heads {mean:.2f} [{low:.2f}, {high:.2f}] over {share.size} trainings at L "
            f"= {longest(models)} ({first:.2f} untrained): {each}. alpha is {alpha[1]:.2f} (10 to "
            f"90 %: {alpha[0]:.2f} to {alpha[2]:.2f}), {frozen:.0%} are frozen.{by_layer}",
        )

    return found


@about(
    genuine,
    "C2",
    "Is the affine error of trained heads that of as many Gaussian tokens with their moments, "
    f"within a factor of {EXPLAINED}?",
)
def law(models: xr.Dataset) -> Answer:
    """Holds for nine in ten heads, in part for half."""
    last = models.isel(checkpoint=-1)
    known = last.law_share.notnull()
    near = ((last.law_share > 1 / EXPLAINED) & (last.law_share < EXPLAINED)).where(known)
    share = float(near.mean())
    finding = [int((last.finding == code).sum()) for code in range(len(FINDINGS))]
    each = ", ".join(f"{row.median():.2f} ({row.model.values})" for row in last.law_share)
    return (
        judged(share >= 0.9, in_part=share >= 0.5, rests_on=[share]),
        f"For {share:.0%} of {int(known.sum())} heads at L = {longest(models)}; expected over "
        f"found mean square, medians: {each}. "
        f"Findings: {', '.join(f'{n} {name}' for n, name in zip(finding, FINDINGS, strict=True))}.",
    )


def _number_of_heads(data: xr.Dataset) -> str:
    model = several_heads(data)
    number = "several" if model is None else int(model.heads)
    return (
        f"Do {number} softmax heads in one bare layer reach the risk of the best linear attention?"
    )


@about(
    several_heads,
    "Q1",
    _number_of_heads,
    fails="A method: training does not find the opposite tilts with which two heads would reach "
    "it.",
)
def several(model: xr.Dataset) -> Answer:
    """Holds where the excess is within 10 % of linear attention's at every length of training, in
    part at some.
    """
    part = trained_on(model)
    (linear, error), (single, _) = (
        excess_ratio(part, of) for of in (part.linear_optimum, part.softmax_optimum)
    )
    least = ((part.risk - part.floor) / (part.linear_optimum - part.floor)).min("run")
    near = abs(linear - 1) <= FOLLOWS
    text = ", ".join(f"{a:.2f} ± {e:.2f}" for a, e in zip(linear, error, strict=True))
    return (
        judged(bool(near.all()), in_part=bool(near.any()), rests_on=[linear])
        if near.size
        else "undecided",
        f"Excess over that of linear attention {text} at L = {listed(part.length)} "
        f"({listed(least, '.2f')} in "
        f"the best training; the mean is {listed(single, '.2f')} of the best single head).",
    )


@about(
    deep_models,
    "Q2",
    "Do deeper models and real blocks beat the best single layer with one head, at every length of "
    "training?",
    fails="Our conjecture, by this training: some of its runs end above the best single head.",
)
def deeper(models: xr.Dataset) -> Answer:
    """Holds where every run is better beyond chance at every length of training, in
    part at some.
    """
    beats = (
        z_scores(models, models.softmax_optimum) < -allowed_score(models.risk.size, sides=1)
    ).all("run")
    trained = trained_on(
        beats.to_dataset(name="beats").assign(training_length=models.training_length)
    ).beats
    at = models.sel(length=longest(models), method="nearest")
    (ratio, error), (bayes, _) = (excess_ratio(at, of) for of in (at.softmax_optimum, at.bayes))
    rows, lost = [], []
    for i, name in enumerate(models.model.values):
        rows.append(f"{name} {ratio[i]:.3f} ± {error[i]:.3f} ({bayes[i]:.2f} times Bayes)")
        if not beats.values[i].all():
            lost.append(f"{name} at L = {listed(models.length.values[~beats.values[i]])}")
    return (
        judged(bool(trained.all()), in_part=bool(trained.any()), rests_on=[models.risk])
        if trained.size
        else "undecided",
        f"Excess over that of the best head at L = {int(at.length)}: {', '.join(rows)}. Over all "
        f"tested lengths ({int(models.length[0])} to {int(models.length[-1])}) not better beyond "
        f"sampling error: {'; '.join(lost) or 'none'}.",
    )


@about(
    deep_models,
    "Q2",
    "Does the risk of deeper models and real blocks follow the exact theory of one layer anywhere?",
)
def theory_elsewhere(models: xr.Dataset) -> Answer:
    """Holds in part where some excess is within 10 % of that of one head or of linear attention."""
    follows, text = [], []
    for name, target in {
        "one head": "softmax_optimum",
        "linear attention": "linear_optimum",
        "Bayes": "bayes",
    }.items():
        ratio, _ = excess_ratio(models, models[target])
        near = abs(ratio - 1) <= FOLLOWS
        places = [
            f"{m.values} at L = {int(n)}"
            for m in models.model
            for n in models.length
            if bool(near.sel(model=m, length=n))
        ]
        follows.append(len(places))
        text.append(f"{name}: {', '.join(places) or 'nowhere'}")
    return (
        judged(False, in_part=follows[0] + follows[1] > 0),
        f"Excess within {FOLLOWS:.0%}, of {models.sizes['model'] * models.sizes['length']} models "
        f"and lengths, of {'; '.join(text)}.",
    )


def _change(data: xr.Dataset, name: str) -> xr.DataArray:
    """Relative change of the risk, median over runs."""
    change: xr.DataArray = (
        data.replaced_risk.sel(replaced=name) / data.replaced_risk.sel(replaced="softmax") - 1
    )
    return change.median("run")


@about(
    one_head,
    "C7",
    "Does the affine read-out of the prompt's own moments change the trained head's risk as the "
    "exact law says?",
)
def replaced_exactly(control: xr.Dataset) -> Answer | None:
    """Holds where every change of the risk is within chance of the exact one; no verdict if that
    length is not tested.
    """
    if longest(control) not in control.length.values:
        return None
    here = control.sel(replaced="affine")
    part = here.replaced_risk - control.replaced_risk.sel(replaced="softmax")
    expected = control.exact_replaced - control.exact_risk.sel(length=longest(control))
    score = float(abs(z_scores(here.assign(change=part), expected, "change")).max())
    limit = allowed_score(part.size)
    return (
        judged(score <= limit, rests_on=[score]),
        f"At L = {longest(control)} the risk changes by {part.mean():+.4f}, predicted "
        f"{expected.mean():+.4f}; "
        f"{part.size} trainings within {score:.1f} standard errors, {limit:.1f} allowed.",
    )


@about(
    genuine,
    "C7",
    f"May every head of a trained model be replaced by its affine read-out, for at most {KEPT:.0%} "
    "more risk?",
)
def replaced(models: xr.Dataset) -> Answer:
    """Holds where no model has over 10 % more risk, in part where some have not."""
    affine, mean = _change(models, "affine"), _change(models, "mean")
    count = int((affine <= KEPT).sum())

    def words(value: float) -> str:
        return f"{value:+.0%}" if value < DIVERGES else f"more than {DIVERGES} times"

    text = ", ".join(
        f"{m.values} {words(float(a))}" for m, a in zip(models.model, affine, strict=True)
    )
    return (
        judged(count == affine.size, in_part=count > 0, rests_on=[affine]),
        f"Risk at L = {longest(models)}, median over trainings: {text}. By the mean value alone "
        f"{span(mean, '+.0%')}.",
    )


@about(
    genuine,
    "C7",
    "Do heads that the audit says read only moments cost less, one by one, than the others when "
    "replaced at the query?",
)
def audit_is_right(models: xr.Dataset) -> Answer:
    """Holds in nine of ten trainings that have heads of both kinds, in part in more than half."""
    last = models.finding.isel(checkpoint=-1)
    known, moments = last >= 0, last.isin(READ_MOMENTS)
    number = moments.sum(["layer", "head"])
    # (model, run) with heads of either kind
    both = (number > 0) & (number < known.sum(["layer", "head"]))
    base = models.replaced_risk.sel(replaced="softmax")
    kept, lost = (
        (models.replaced_risk.sel(replaced=name) - base) / base
        for name in ("moments heads", "other heads")
    )
    per_kept, per_lost = (
        (kept / number).where(both),
        (lost / (known.sum(["layer", "head"]) - number)).where(both),
    )
    right, total = float((abs(per_kept) < abs(per_lost)).where(both).sum()), int(both.sum())
    return (
        judged(right >= 0.9 * total, in_part=right > 0.5 * total) if total else "undecided",
        f"In {right:.0f} of {total} trainings with heads of both kinds; change of risk per head "
        f"{per_kept.median():+.1%} against {per_lost.median():+.1%} (medians). "
        f"{float(moments.sum()) / float(known.sum()):.0%} of {int(known.sum())} heads read "
        "moments."
        if total
        else "No training has heads of both kinds.",
    )


@about(genuine, "C6", "Is no model better than Bayes?")
def bayes(models: xr.Dataset) -> Answer:
    """Holds where no sampled risk is below that of Bayes beyond chance."""
    score, limit = (
        float(z_scores(models, models.bayes).min()),
        allowed_score(models.risk.size, sides=1),
    )
    return (
        judged(score >= -limit, rests_on=[score]),
        f"{models.risk.size} sampled risks, the lowest {score:+.1f} standard errors from the "
        f"Bayes risk of its length ({-limit:.1f} allowed).",
    )


@about(genuine, "C6", "Do untrained models, on average, do better than answering 0?", control=True)
def untrained(models: xr.Dataset) -> Answer:
    """Fails where they lower the risk by less than a tenth of the signal."""
    risk = models.checkpoint_risk.isel(checkpoint=0)
    lowered = (models.zero_risk - risk) / (models.zero_risk - models.floor)
    return (
        judged(float(lowered.mean()) > LOWERED, rests_on=[lowered]),
        f"Before training the risk is {risk.mean():.2f} in the mean of {risk.size} models and runs "
        f"({span(risk, '.2f')}), and {models.zero_risk:.2f} for answering 0.",
    )


@about(
    shuffled_models,
    "C6",
    "Does a model trained on prompts without information lower the risk?",
    control=True,
)
def shuffled(models: xr.Dataset) -> Answer:
    """Fails where it lowers the risk by less than a tenth of the signal."""
    at = models.sel(length=longest(models), method="nearest")
    lowered = (at.zero_risk - at.risk) / (at.zero_risk - at.floor)
    return (
        judged(float(lowered.mean()) > LOWERED, rests_on=[lowered]),
        "Every token had a task vector of its own in training. On true prompts of L = "
        f"{int(at.length)} the risk is {at.risk.mean():.3f}, {at.zero_risk:.3f} for answering 0, "
        f"lower by {lowered.mean():.1%} of the signal ({LOWERED:.0%} would count).",
    )


ONE_HEAD = (agreement, optimum, never_better, carried)
HEADS = (replaced_exactly, law, replaced, audit_is_right)
RULES = (
    *ONE_HEAD,
    *map(regime, get_args(Kind)),
    several,
    deeper,
    theory_elsewhere,
    *HEADS,
    bayes,
    untrained,
    shuffled,
)
