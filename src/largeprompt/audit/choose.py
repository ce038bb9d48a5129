"""Choose the heads that a model can do without, within a budget, and measure what that costs."""

import math
from collections.abc import Mapping, Sequence

from torch import Tensor

from largeprompt import validation
from largeprompt.audit.adapters.transformers import Model, attending_layers, check_model, head_count
from largeprompt.audit.findings import replacement_order
from largeprompt.audit.model import audit_model
from largeprompt.audit.plan import Head, Kind, Plan
from largeprompt.audit.replace import Outputs, cosines, linearize, outputs, standard_error
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
    order: Sequence[Head] | None = None,
    progress: Progress = quiet,
) -> Plan:
    """Return as many heads as can be run by their read-out while the output stays within a budget.

    Heads are replaced in the audit's order, smallest error of the affine read-out first, and the
    number is found by bisection: each step runs the model with so many heads replaced. The first,
    third, ... text choose; the others confirm.

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
    order
        Pairs (layer, head) in the order of replacement, where it is known already.
    progress
        Called with a line about each step.

    Returns
    -------
    Plan
        For :func:`linearize`, or to be saved.
    """
    check_model(model, inputs)
    budget = validation.positive("budget", budget)
    if budget > 1:
        raise InvalidArgumentError("budget", f"{budget:g}", "a number above 0, up to 1")
    choosing, others = ({name: x[start::2] for name, x in inputs.items()} for start in (0, 1))
    if order is None:
        order = replacement_order(audit_model(model, choosing, components=(), progress=progress))

    def run(count: int, texts: Mapping[str, Tensor]) -> Outputs:
        progress(f"replacing {count} heads")
        with linearize(model, order[:count], kind, components=components, sinks=sinks):
            return outputs(model, texts)

    low, high, best = 0, len(order) + 1, (before := outputs(model, choosing))
    while high - low > 1:
        middle = (low + high) // 2
        found = run(middle, choosing)
        if kept(before, found) >= budget:
            low, best = middle, found
        else:
            high = middle
    several = len(next(iter(inputs.values()))) > 1
    confirmed = _kept(outputs(model, others), run(low, others)) if several else (None, None)
    value, error = _kept(before, best)
    return Plan(
        tuple(order[:low]),
        tuple(attending_layers(model)),
        head_count(model),
        "cosine" if before.log_probabilities is None else "loss",
        budget,
        value,
        kept_error=error,
        confirmed=confirmed[0],
        confirmed_error=confirmed[1],
        kind=kind,
        components=components,
        sinks=sinks,
    )


def kept(before: Outputs, after: Outputs) -> float:
    """Return loss before over loss after of a language model, else the cosine of embeddings."""
    if before.log_probabilities is None:
        return float(cosines(before, after).mean())
    return before.loss / after.loss


def _kept(before: Outputs, after: Outputs) -> tuple[float, float | None]:
    """What :func:`kept` gives, and its standard error over texts; None of one text."""
    cosine = before.log_probabilities is None
    each = cosines(before, after) if cosine else before.losses / after.losses
    return kept(before, after), standard_error(each) if len(each) > 1 else None


def perplexity(model: Model, inputs: Mapping[str, Tensor]) -> float:
    """Return the exponential of the mean next-token loss, over all texts.

    Parameters
    ----------
    model
        A causal language model of transformers, as it is or within :func:`linearize`.
    inputs
        What the tokenizer gave.
    """
    loss = outputs(model, inputs).loss
    if math.isnan(loss):
        allowed = "a causal language model, which predicts the next token"
        raise InvalidArgumentError("model", type(model).__name__, allowed)
    return math.exp(loss)
