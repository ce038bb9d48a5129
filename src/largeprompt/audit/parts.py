"""The audit of one model over some texts: its settings, its heads, and what replacing them does."""

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
from largeprompt.audit.choose import plan_linear
from largeprompt.audit.factors import with_factors
from largeprompt.audit.findings import Rule, replacement_order, summary
from largeprompt.audit.kinds import described, longest
from largeprompt.audit.model import COMPONENTS, SINKS, audit_model
from largeprompt.audit.replace import replacement_curves
from largeprompt.runs.settings import Count, NonNegative, Seed, settings
from largeprompt.runs.study import Progress, side_by_side

# attributes of the parts' datasets that the run's keeps
ABOUT = ("tokens", "dtype", "attending_layers", "silent_layers", "plan")
RANDOMS = 2  # random orders: each is as much work as the audit's own curve
Number = Annotated[int, pydantic.Field(ge=0)]


@settings
class AuditConfig:
    """What is audited, and how closely."""

    model: str = ""
    texts: tuple[str, ...] = ()
    contents: str = ""  # fingerprint of texts and model, so that changed files are read again
    lengths: tuple[Annotated[int, pydantic.Field(ge=2)], ...] = ()  # ascending; empty: all
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
    """A model, its texts, and its audit once it is there."""

    model: Model
    inputs: dict[str, Tensor]
    seen: xr.Dataset | None = None


@functools.lru_cache(maxsize=1)
def _loaded(config: AuditConfig) -> Loaded:
    """The model and its texts, read once for both parts."""
    cut = config.lengths[-1] if config.lengths else None
    names = ("device", "dtype", "device_map", "attn_implementation")
    loading = {name: getattr(config, name) or None for name in names}
    source = Source(config.model, config.revision or None)
    return Loaded(*load_with_texts(source, config.texts, cut, **loading))


def heads(config: AuditConfig, progress: Progress) -> xr.Dataset:
    """Statistics of every query at each length, and of every head (``head_...``)."""
    progress("loading")
    loaded = _loaded(config)
    data = audit_model(
        loaded.model,
        loaded.inputs,
        layers=config.layers or None,
        positions=config.positions,
        lengths=config.lengths if len(config.lengths) > 1 else None,
        components=config.components,
        sinks=config.sinks,
        progress=progress,
    )
    loaded.seen = longest(data)
    found = with_factors(summary(data, Rule(tolerance=config.tolerance)))
    return data.merge(found.rename({str(name): f"head_{name}" for name in found.data_vars}))


def steps(heads: int, count: int) -> tuple[list[int], list[int]]:
    """Return how many heads are replaced, and at which of these counts orders are compared."""
    found = sorted({round(heads / 2**step) for step in range(count)} - {0})
    # every other one, but not where all heads are replaced: orders do not differ there
    return found, [each for each in found[-2::-2] if each < heads] or found


def replacement(config: AuditConfig, progress: Progress) -> xr.Dataset:
    """Run the model with more and more heads replaced, and find those that fit in the budget."""
    progress("loading")
    loaded = _loaded(config)
    model, inputs, seen = loaded.model, loaded.inputs, loaded.seen
    if seen is None:  # another process looked at the heads
        options: dict[str, Any] = {"layers": config.layers or None, "positions": config.positions}
        seen = audit_model(model, inputs, **options, components=(), progress=progress)
    order = replacement_order(seen)
    counts, compared = steps(len(order), config.counts)
    options = {"components": min(config.components, key=lambda each: abs(each - 8), default=0)}
    options |= {"sinks": config.sinks, "seed": config.seed, "randoms": RANDOMS}
    options |= {"compared": compared, "progress": progress}
    found = replacement_curves(model, inputs, order, counts, **options)
    choosing = replacement_order(seen.isel(text=slice(0, None, 2)))
    plan = plan_linear(model, inputs, config.budget, order=choosing, progress=progress)
    place = {head: 1.0 + number for number, head in enumerate(plan.heads)}
    grid = {"layer": seen.layer.values, "head": seen["head"].values}
    chosen = np.array([[place.get((i, j), np.nan) for j in grid["head"]] for i in grid["layer"]])
    found = found.assign_coords(grid).assign(
        chosen=(("layer", "head"), np.isfinite(chosen).astype(np.int8)),
        chosen_order=(("layer", "head"), chosen),
    )
    for name in ("kept", "confirmed", "kept_error", "confirmed_error"):
        value = getattr(plan, name)
        found[name] = np.nan if value is None else value
    return found.assign_attrs(plan=plan.json())


def only(config: AuditConfig, results: Mapping[Any, xr.Dataset]) -> xr.Dataset:
    """Return the one result of a part, attributes and all."""
    (result,) = results.values()
    return result


def combine(config: AuditConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Return both parts in one dataset, with the settings that rules and figures need."""
    data = described(side_by_side(config, parts))
    for part in parts.values():
        data.attrs |= {name: value for name, value in part.attrs.items() if name in ABOUT}
    names = ("tolerance", "model", "sinks", "budget")
    return data.assign_attrs({name: getattr(config, name) for name in names})
