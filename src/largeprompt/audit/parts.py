"""The audit of one model over some texts: its settings, the statistics of its heads, and what replacing heads does."""

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
from largeprompt.audit.kinds import described
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
Number = Annotated[int, pydantic.Field(ge=0)]


@settings
class AuditConfig:
    """What is audited, and how closely."""

    model: str = ""
    texts: tuple[str, ...] = ()
    contents: str = ""  # fingerprint of texts and model, so that changed files are read again
    lengths: tuple[Annotated[int, pydantic.Field(ge=2)], ...] = ()  # ascending, the text cut to the longest; empty: as it is
    layers: tuple[Number, ...] = ()  # empty: all
    positions: Count = 32  # queries in each text, evenly spaced
    components: tuple[Count, ...] = COMPONENTS  # sizes of the Gaussian mixtures
    sinks: Number = SINKS  # first tokens that mixtures read exactly
    tolerance: NonNegative = 0.2
    counts: Number = 6  # steps of the replacement curves; 0 leaves them out
    budget: Annotated[float, pydantic.Field(gt=0, le=1)] = 0.99  # cosine, or loss before over after, that the chosen heads keep
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


@functools.lru_cache(maxsize=1)
def _loaded(config: AuditConfig) -> tuple[Model, dict[str, Tensor]]:
    """The model and its texts, read once for both parts where one process computes them."""
    longest = config.lengths[-1] if config.lengths else None
    loading = {name: getattr(config, name) or None for name in ("device", "dtype", "device_map", "attn_implementation")}
    return load_with_texts(Source(config.model, config.revision or None), config.texts, longest, **loading)


def lengths(config: AuditConfig, inputs: Mapping[str, Tensor]) -> list[int] | None:
    """Lengths to read: those asked for; where it is one, or all texts have one length, a quarter and a half of it too.

    What the shorter ones predict is tested at the longer ones. None, each text as it is, where texts differ in length.
    """
    if len(config.lengths) > 1 or (not config.lengths and "attention_mask" in inputs):
        return list(config.lengths) or None
    longest = config.lengths[0] if config.lengths else inputs["input_ids"].shape[1]
    return [*(longest // part for part in (4, 2) if longest // part >= SMALLEST), longest]


def heads(config: AuditConfig, progress: Progress) -> xr.Dataset:
    """One pass over the texts for each length: statistics of every query, and of every head (``head_...``)."""
    progress("loading")
    model, inputs = _loaded(config)
    options: dict[str, Any] = {"components": config.components, "sinks": config.sinks, "lengths": lengths(config, inputs)}
    data = audit_model(model, inputs, layers=config.layers or None, positions=config.positions, progress=progress, **options)
    found = summary(data, Rule(tolerance=config.tolerance))
    return data.merge(found.rename({str(name): f"head_{name}" for name in found.data_vars}))


def replacement(config: AuditConfig, progress: Progress) -> xr.Dataset:
    """The model run again and again with more and more heads replaced; and those that can be, within the budget."""
    progress("loading")
    model, inputs = _loaded(config)
    options: dict[str, Any] = {"layers": config.layers or None, "positions": config.positions, "components": ()}
    order = replacement_order(summary(audit_model(model, inputs, progress=progress, **options)))
    counts = sorted({round(len(order) * step / config.counts) for step in range(1, config.counts + 1)} - {0})
    size = min(config.components, key=lambda each: abs(each - 8), default=0)
    options = {"components": size, "sinks": config.sinks, "seed": config.seed, "progress": progress}
    found = replacement_curves(model, inputs, order, counts, **options)
    plan = plan_linear(model, inputs, config.budget, order=order, progress=progress)
    layers, numbers = ([*sorted({pair[place] for pair in order})] for place in (0, 1))
    chosen = np.array([[(layer, head) in plan.heads for head in numbers] for layer in layers], dtype=np.int8)
    found = found.assign_coords(layer=layers, head=numbers).assign(chosen=(("layer", "head"), chosen))
    found["kept"], found["confirmed"] = plan.kept, np.nan if plan.confirmed is None else plan.confirmed
    return found


def only(config: AuditConfig, results: Mapping[Any, xr.Dataset]) -> xr.Dataset:
    """The one result of a part, attributes and all."""
    (result,) = results.values()
    return result


def combine(config: AuditConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Both parts in one dataset, with the settings that rules and figures need."""
    data = described(side_by_side(config, parts))
    data.attrs |= {name: value for name, value in parts["heads"].attrs.items() if name in ABOUT}
    data.attrs |= {"tolerance": config.tolerance, "model": config.model, "sinks": config.sinks, "budget": config.budget}
    return data
