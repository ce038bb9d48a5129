"""The audit of one model over some texts: its settings, the statistics of its heads, and what
replacing heads does.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
import xarray as xr
from torch import Tensor

from largeprompt.audit.adapters.load import load_with_texts
from largeprompt.audit.adapters.source import Source
from largeprompt.audit.adapters.transformers import Model
from largeprompt.audit.choose import plan_linear, replacement_order
from largeprompt.audit.findings import Rule, summary
from largeprompt.audit.kinds import described, longest
from largeprompt.audit.model import COMPONENTS, SINKS, audit_model
from largeprompt.audit.replace import replacement_curves
from largeprompt.audit.subsets import SMALLEST
from largeprompt.runs.settings import Count, NonNegative, Seed, settings
from largeprompt.runs.study import Progress, side_by_side

ABOUT = (
    "tokens",
    "dtype",
    "positions_allowed",
    "attending_layers",
    "silent_layers",
)  # attributes of the heads' dataset that the run's keeps
RANDOMS = 2  # random orders beside the audit's
Number = Annotated[int, pydantic.Field(ge=0)]


@settings
class AuditConfig:
    """What is audited, and how closely."""

    model: str = ""
    texts: tuple[str, ...] = ()
    contents: str = ""  # fingerprint of texts and model, so that changed files are read again
    # ascending, the text cut to the longest; empty: as it is
    lengths: tuple[Annotated[int, pydantic.Field(ge=2)], ...] = ()
    layers: tuple[Number, ...] = ()  # empty: all
    positions: Count = 32  # queries in each text, evenly spaced
    components: tuple[Count, ...] = COMPONENTS  # sizes of the Gaussian mixtures
    sinks: Number = SINKS  # first tokens that mixtures read exactly
    tolerance: NonNegative = 0.2
    counts: Number = 6  # steps of the replacement curves, each half of the next; 0 leaves them out
    # cosine, or loss before over after, that the chosen heads keep
    budget: Annotated[float, pydantic.Field(gt=0, le=1)] = 0.99
    device: str = "cpu"
    dtype: Literal["float32", "float64", "bfloat16", "float16", "auto"] = "float32"
    revision: str = ""  # on the hub
    device_map: str = ""  # instead of the device
    attn_implementation: Literal["", "sdpa", "eager"] = ""
    seed: Seed = 0

    @pydantic.field_validator("lengths", "layers", "components")
    @classmethod
    def _ascending(cls, given: tuple[int, ...]) -> tuple[int, ...]:
        if list(given) != sorted(set(given)):
            raise ValueError("must be in ascending order, each once")
        return given


@dataclasses.dataclass
class Loaded:
    """A model, its texts, and what was seen of its heads where both parts are computed by one
    process.
    """

    model: Model
    inputs: dict[str, Tensor]
    seen: xr.Dataset | None = None


@functools.lru_cache(maxsize=1)
def _loaded(config: AuditConfig) -> Loaded:
    """The model and its texts, read once for both parts where one process computes them."""
    longest = config.lengths[-1] if config.lengths else None
    loading = {
        name: getattr(config, name) or None
        for name in ("device", "dtype", "device_map", "attn_implementation")
    }
    return Loaded(
        *load_with_texts(
            Source(config.model, config.revision or None), config.texts, longest, **loading
        )
    )


def lengths(config: AuditConfig, inputs: Mapping[str, Tensor]) -> list[int] | None:
    """Lengths to read: those asked for; where it is one, or all texts have one length, a quarter
    and a half of it too.

    What the shorter ones predict is tested at the longer ones. None, each text as it is, where
    texts differ in length.
    """
    if len(config.lengths) > 1 or (not config.lengths and "attention_mask" in inputs):
        return list(config.lengths) or None
    longest = config.lengths[0] if config.lengths else inputs["input_ids"].shape[1]
    return [*(longest // part for part in (4, 2) if longest // part >= SMALLEST), longest]


def heads(config: AuditConfig, progress: Progress) -> xr.Dataset:
    """One pass over the texts for each length: statistics of every query, and of every head
    (``head_...``).
    """
    progress("loading")
    loaded = _loaded(config)
    options: dict[str, Any] = {
        "layers": config.layers or None,
        "positions": config.positions,
        "components": config.components,
    }
    options |= {
        "sinks": config.sinks,
        "lengths": lengths(config, loaded.inputs),
        "progress": progress,
    }
    data = audit_model(loaded.model, loaded.inputs, **options)
    loaded.seen = longest(data)
    found = summary(data, Rule(tolerance=config.tolerance))
    return data.merge(found.rename({str(name): f"head_{name}" for name in found.data_vars}))


def steps(heads: int, count: int) -> tuple[list[int], list[int]]:
    """How many heads are replaced: all, a half, a quarter, ..., ascending; and at which of these
    curves are compared.

    That is every other one, all heads being left out: orders do not differ there.
    """
    found = sorted({round(heads / 2**step) for step in range(count)} - {0})
    return found, [each for each in found[-2::-2] if each < heads] or found


def replacement(config: AuditConfig, progress: Progress) -> xr.Dataset:
    """The model run again and again with more and more heads replaced; and those that can be,
    within the budget.

    The curves go by the order of all texts, and the heads of the plan by that of the texts that
    choose them.
    """
    progress("loading")
    loaded = _loaded(config)
    model, inputs, seen = loaded.model, loaded.inputs, loaded.seen
    if seen is None:  # another process looked at the heads
        options: dict[str, Any] = {
            "layers": config.layers or None,
            "positions": config.positions,
            "components": (),
        }
        seen = audit_model(model, inputs, progress=progress, **options)
    order, choosing = (
        replacement_order(summary(each)) for each in (seen, seen.isel(text=slice(0, None, 2)))
    )
    counts, compared = steps(len(order), config.counts)
    size = min(config.components, key=lambda each: abs(each - 8), default=0)
    options = {
        "components": size,
        "sinks": config.sinks,
        "seed": config.seed,
        "randoms": RANDOMS,
        "progress": progress,
    }
    found = replacement_curves(model, inputs, order, counts, compared=compared, **options)
    plan = plan_linear(model, inputs, config.budget, order=choosing, progress=progress)
    layers, numbers = ([*sorted({pair[place] for pair in order})] for place in (0, 1))
    place = {head: 1.0 + number for number, head in enumerate(plan.heads)}
    chosen = np.array([[place.get((layer, head), 0.0) for head in numbers] for layer in layers])
    found = found.assign_coords(layer=layers, head=numbers).assign(
        chosen=(("layer", "head"), (chosen > 0).astype(np.int8))
    )
    found["chosen_order"] = ("layer", "head"), np.where(chosen > 0, chosen, np.nan)
    for name in ("kept", "confirmed", "kept_error", "confirmed_error"):
        value = getattr(plan, name)
        found[name] = np.nan if value is None else value
    return found


def only(config: AuditConfig, results: Mapping[Any, xr.Dataset]) -> xr.Dataset:
    """The one result of a part, attributes and all."""
    (result,) = results.values()
    return result


def combine(config: AuditConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Both parts in one dataset, with the settings that rules and figures need."""
    data = described(side_by_side(config, parts))
    data.attrs |= {name: value for name, value in parts["heads"].attrs.items() if name in ABOUT}
    data.attrs |= {
        "tolerance": config.tolerance,
        "model": config.model,
        "sinks": config.sinks,
        "budget": config.budget,
    }
    return data
