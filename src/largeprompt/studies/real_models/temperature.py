"""Loss of a language model beyond its trained length, with its scores multiplied by a factor."""

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import xarray as xr
from torch import Tensor

from largeprompt.audit import AuditError, Heads, watching
from largeprompt.audit.adapters.transformers import Model
from largeprompt.audit.factors import with_factors
from largeprompt.planning import log_n_scaling, yarn_scaling
from largeprompt.runs.study import Progress
from largeprompt.studies.real_models.config import RealModelsConfig
from largeprompt.studies.real_models.language import loaded, look, loss, text_tokens
from largeprompt.studies.real_models.prefixes import LAST, Prefixes

SCALINGS = ("none", "log-n", "YaRN", "exact by head", "exact, mean")


def trained_length(model: Model) -> int:
    """Tokens that the model was trained to read, as its config says."""
    return int(model.config.get_text_config().max_position_embeddings)


@contextlib.contextmanager
def interpolated(model: Model, times: int) -> Iterator[None]:
    """Squeeze rotary positions as YaRN does for texts ``times`` as long, with no temperature."""
    config = copy.deepcopy(model.config)
    given = getattr(config, "rope_parameters", None) or {}
    if given.get("rope_type") != "default":
        raise AuditError("language_model: this trial needs a model with plain rotary positions.")
    config.rope_parameters = given | {
        "rope_type": "yarn",
        "factor": float(times),
        "original_max_position_embeddings": trained_length(model),
        "attention_factor": 1.0,
    }
    rotary: list[Any] = [
        each for each in model.modules() if type(each).__name__.endswith("RotaryEmbedding")
    ]
    before = [each.inv_freq for each in rotary]
    try:
        for each in rotary:
            each.inv_freq = type(each)(config).inv_freq.to(each.inv_freq)
        yield
    finally:
        for each, old in zip(rotary, before, strict=True):
            each.inv_freq = old


@contextlib.contextmanager
def scaled_queries(model: Model, factors: Mapping[int, Tensor]) -> Iterator[None]:
    """Multiply the queries of every head by a factor, (heads,) by layer, inside the block."""

    def visitor(layer: int, heads: Heads, output: Tensor) -> Tensor:
        if heads.cap is not None or heads.atoms:
            raise AuditError("language_model: this trial needs scores without caps and sinks.")
        query = heads.query * factors[layer].to(heads.query)[:, None, None]
        share = heads.count // heads.groups  # repeated: grouped kernels may store every score
        key, value = (each.repeat_interleave(share, 1) for each in (heads.key, heads.value))
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, heads.mask, is_causal=heads.causal, scale=heads.scale
        )

    with watching(model, visitor):
        yield


def factors(made: xr.Dataset, trained: int, times: int) -> xr.DataArray:
    """Factors on the scores by each rule, (scaling, layer, head).

    The exact ones keep each head's effective tokens (:func:`largeprompt.length_scaling`) at its
    score variance in ``made``, the summary at the trained length; 1 where its scores are flat.
    """
    exact = with_factors(made)[f"factor_{times}"].fillna(1.0)
    log_n, yarn = (float(rule(times * trained, trained)) for rule in (log_n_scaling, yarn_scaling))
    values = (1.0, log_n, yarn, exact, float(exact.mean()))  # in the order of SCALINGS
    each = [xr.zeros_like(exact) + value for value in values]
    found: xr.DataArray = xr.concat(each, xr.Variable("scaling", list(SCALINGS)))
    return found


def temperature(config: RealModelsConfig, text: str, progress: Progress) -> xr.Dataset:
    """Loss over the last eighth of a text, at each length and with each factor on the scores."""
    model, folder = loaded(config, progress)
    trained = trained_length(model)
    given = text_tokens(model, folder, text, max(config.longer) * trained, progress)
    progress(f"{text}: score variances at {trained} tokens")
    seen = Prefixes([trained], config.queries)
    look(model, given[:, :trained], seen)
    made = seen.summary().isel(length=0, drop=True)
    found = []
    for times in config.longer:
        some, each = given[:, : times * trained], factors(made, trained, times)
        losses = []
        for name in SCALINGS:
            progress(f"{text}: {some.shape[1]} tokens, factor {name}")
            rows = zip(made.layer.values.tolist(), each.sel(scaling=name).values, strict=True)
            scaled = scaled_queries(model, {layer: torch.from_numpy(row) for layer, row in rows})
            plain = contextlib.nullcontext()
            with interpolated(model, times), plain if name == "none" else scaled:
                losses.append(loss(model, some, some.shape[1] // LAST))
        one = each.mean(["layer", "head"]).to_dataset(name="scaling_factor")
        found.append(one.assign(long_loss=("scaling", losses)))
    data = xr.concat(found, xr.Variable("longer", list(config.longer)))
    return data.assign(trained_length=float(trained)).drop_attrs()
