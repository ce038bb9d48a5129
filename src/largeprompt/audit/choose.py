"""Choose the heads that a model can do without, within a budget, and measure what that costs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import xarray as xr
from torch import Tensor

from largeprompt import validation
from largeprompt.audit.adapters.transformers import Model, attending_layers, check_model, head_count
from largeprompt.audit.findings import summary
from largeprompt.audit.model import audit_model
from largeprompt.audit.plan import Head, Kind, Plan
from largeprompt.audit.replace import Outputs, effects, linearize, outputs, standard_error
from largeprompt.errors import InvalidArgumentError
from largeprompt.runs.study import Progress, quiet


def plan_linear(
    model: Model,
    inputs: Mapping[str, Tensor],
    budget: float = 0.99,
    *,
    kind: Kind = "affine",
    components: int = 8,
    sinks: int = 1,
    whole_layers: bool = False,
    order: Sequence[Head] | None = None,
    progress: Progress = quiet,
) -> Plan:
    """As many heads as can be run by their read-out while the output stays within a budget.

    Heads are replaced in the audit's order, from the smallest error of the affine read-out on, and
    the number is found by bisection: each step runs the model with so many heads replaced. The
    first, third, ... text choose; the others confirm.

    Parameters
    ----------
    model
        A model of transformers.
    inputs
        What the tokenizer gave, at least two texts if the choice is to be confirmed.
    budget
        What must be kept, up to 1: the cosine of the embeddings, or for a language model its loss
        before over that after.
    kind, components, sinks
        The read-out; see :func:`linearize`.
    whole_layers
        Replace layers as a whole, as hybrids of full and linear attention do, from the smallest
        median error on.
    order
        Pairs (layer, head) in the order of replacement, where it is known already; from other texts
        than those that confirm.
    progress
        Called with a line about each step.

    Returns
    -------
    Plan
        For :func:`linearize`, or to be saved.
    """
    check_model(model, inputs)
    budget, whole_layers = (
        validation.positive("budget", budget),
        validation.flag("whole_layers", whole_layers),
    )
    if budget > 1:
        raise InvalidArgumentError("budget", f"{budget:g}", "a number above 0, up to 1")
    texts = len(next(iter(inputs.values())))
    choosing, others = (
        {name: value[start::2] for name, value in inputs.items()} for start in (0, 1)
    )
    if order is None or whole_layers:
        heads = summary(audit_model(model, choosing, components=(), progress=progress))
        units = _layers(heads) if whole_layers else [[head] for head in replacement_order(heads)]
    else:
        units = [[head] for head in order]
    reading: dict[str, Any] = {"kind": kind, "components": components, "sinks": sinks}

    def run(count: int, texts: Mapping[str, Tensor]) -> Outputs:
        progress(f"replacing {sum(map(len, units[:count]))} heads")
        with linearize(model, [head for unit in units[:count] for head in unit], **reading):
            return outputs(model, texts)

    low, high, best = 0, len(units) + 1, (before := outputs(model, choosing))
    while high - low > 1:
        middle = (low + high) // 2
        found = run(middle, choosing)
        low, high, best = (
            (middle, high, found) if kept(before, found) >= budget else (low, middle, best)
        )
    confirmed, confirmed_error = (
        _kept(outputs(model, others), run(low, others)) if texts > 1 else (None, None)
    )
    reading["kept"], reading["kept_error"] = _kept(before, best)
    chosen = tuple(head for unit in units[:low] for head in unit)
    measure: Literal["cosine", "loss"] = "cosine" if before.log_probabilities is None else "loss"
    reading |= {"confirmed": confirmed, "confirmed_error": confirmed_error}
    return Plan(
        chosen, tuple(attending_layers(model)), head_count(model), measure, budget, **reading
    )


def kept(before: Outputs, after: Outputs) -> float:
    """How much of the model is left: loss before over loss after of a language model, cosine of the
    embeddings of another.
    """
    return (
        float(effects(before, after)[0].mean())
        if before.log_probabilities is None
        else before.loss / after.loss
    )


def _kept(before: Outputs, after: Outputs) -> tuple[float, float | None]:
    """What :func:`kept` gives, and its standard error over texts; None of one text."""
    each = (
        effects(before, after)[0]
        if before.log_probabilities is None
        else before.losses / after.losses
    )
    return kept(before, after), standard_error(each) if len(each) > 1 else None


def replacement_order(heads: xr.Dataset) -> list[Head]:
    """Heads by their ``order``, from the smallest error of the affine read-out to the largest;
    unknown ones last.
    """
    order = heads.order.stack(pair=("layer", "head"))
    return [(int(layer), int(head)) for layer, head in order.sortby(order).pair.values.tolist()]


def _layers(heads: xr.Dataset) -> list[list[Head]]:
    """All heads of each layer, layers of the smallest median error first."""
    error = heads.affine_error.median("head")
    return [
        [(int(layer), int(head)) for head in heads["head"]]
        for layer in error.sortby(error).layer.values
    ]


def perplexity(model: Model, inputs: Mapping[str, Tensor]) -> float:
    """Exponential of the mean loss of the next token, over all texts.

    Parameters
    ----------
    model
        A causal language model of transformers, as it is or within :func:`linearize`.
    inputs
        What the tokenizer gave.

    Returns
    -------
    float
        At least 1.
    """
    loss = outputs(model, inputs).loss
    if math.isnan(loss):
        raise InvalidArgumentError(
            "model", type(model).__name__, "a causal language model, which predicts the next token"
        )
    return math.exp(loss)
