"""The audit of one model over some texts: its settings, the statistics of its heads, and what replacing heads does."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
import xarray as xr
from torch import Tensor

from largeprompt.audit.adapters.load import load_with_texts
from largeprompt.audit.adapters.transformers import Model
from largeprompt.audit.findings import Rule, summary
from largeprompt.audit.model import COMPONENTS, SINKS, audit_model
from largeprompt.audit.replace import Head, replacement_curves
from largeprompt.runs.settings import Count, NonNegative, Seed, settings
from largeprompt.runs.study import Progress, side_by_side

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
    device: str = "cpu"
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32"
    seed: Seed = 0

    @pydantic.field_validator("lengths", "layers", "components")
    @classmethod
    def _ascending(cls, given: tuple[int, ...]) -> tuple[int, ...]:
        if list(given) != sorted(set(given)):
            raise ValueError("must be in ascending order, each once")
        return given


def _audited(config: AuditConfig, progress: Progress, **options: Any) -> tuple[Model, dict[str, Tensor], xr.Dataset]:
    """The model, its texts, and what :func:`audit_model` sees."""
    progress("loading")
    longest = config.lengths[-1] if config.lengths else None
    model, inputs = load_with_texts(config.model, config.texts, longest, device=config.device, dtype=config.dtype)
    options |= {"layers": config.layers or None, "positions": config.positions, "progress": progress}
    return model, inputs, audit_model(model, inputs, **options)


def heads(config: AuditConfig, progress: Progress) -> xr.Dataset:
    """One pass over the texts for each length: statistics of every query, and of every head (``head_...``)."""
    options = {"lengths": config.lengths or None, "components": config.components, "sinks": config.sinks}
    *_, data = _audited(config, progress, **options)
    found = summary(data, Rule(tolerance=config.tolerance))
    return data.merge(found.rename({str(name): f"head_{name}" for name in found.data_vars}))


def replacement(config: AuditConfig, progress: Progress) -> xr.Dataset:
    """The model run again and again with more and more heads replaced."""
    model, inputs, data = _audited(config, progress, components=())
    order = replacement_order(summary(data))
    counts = sorted({round(len(order) * step / config.counts) for step in range(1, config.counts + 1)} - {0})
    size = min(config.components, key=lambda each: abs(each - 8), default=0)
    options: dict[str, Any] = {"components": size, "sinks": config.sinks, "seed": config.seed, "progress": progress}
    return replacement_curves(model, inputs, order, counts, **options)


def replacement_order(heads: xr.Dataset) -> list[Head]:
    """Heads from the smallest error of the affine read-out to the largest; unknown ones last."""
    error = heads.affine_error.transpose("layer", "head").fillna(np.inf)
    layers, numbers = np.unravel_index(np.argsort(error.values, axis=None, kind="stable"), error.shape)
    return list(zip(error.layer.values[layers].tolist(), error["head"].values[numbers].tolist(), strict=True))


def combine(config: AuditConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Both parts in one dataset, with the settings that rules and figures need."""
    data = side_by_side(config, parts)
    data.attrs |= {"tolerance": config.tolerance, "model": config.model, "sinks": config.sinks}
    return data
