"""Heads of a language model at every prefix, and its loss with heads read from a small state."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.audit import Heads, linearize, load_model, watching
from largeprompt.audit.adapters.transformers import Model, Visitor, evaluating, transformers_module
from largeprompt.audit.plan import Head
from largeprompt.audit.readouts import chosen_heads
from largeprompt.audit.real.models import SOURCES, fetched
from largeprompt.runs.study import Progress, side_by_side
from largeprompt.studies.real_models.config import RealModelsConfig
from largeprompt.studies.real_models.own_moments import expected_affine_error
from largeprompt.studies.real_models.prefixes import Prefixes, query_places
from largeprompt.studies.real_models.state import STATES, state_read_out, state_tokens
from largeprompt.studies.real_models.texts import tokens

Array = NDArray[np.float64]
KEPT = ["tokens", "score_variance", "tilt", "value_spread", "affine_error", "share_linear"]


def loaded(config: RealModelsConfig, progress: Progress) -> tuple[Model, Path]:
    """The language model, fetched the first time, and its folder."""
    name = config.language_model
    folder = fetched(name, progress) if name in SOURCES else Path(name)
    # its bar for the weights would break into ours
    transformers_module().utils.logging.disable_progress_bar()
    return load_model(str(folder), device=config.device), folder


def text_tokens(model: Model, folder: Path, name: str, length: int, progress: Progress) -> Tensor:
    """The first tokens of a text, (1, length)."""
    found = tokens(name, folder, length, progress)
    return torch.tensor([found], device=model.device)


def sizes(model: Model, recent: Sequence[int]) -> Array:
    """Sizes of the states in tokens of an ordinary cache, (states, recent)."""
    given = model.config.get_text_config()
    width = int(getattr(given, "head_dim", None) or given.hidden_size // given.num_attention_heads)
    return np.array(
        [[state_tokens(m, each == "moments", width) for m in recent] for each in STATES]
    )


def look(model: Model, given: Tensor, visitor: Visitor) -> None:
    """One pass of the model, all of its layers looked at."""
    with evaluating(model), watching(model, visitor):
        model(given, logits_to_keep=1, use_cache=False)


def loss(model: Model, given: Tensor, last: int) -> float:
    """Mean of -log p(token) over the last tokens of a text."""
    with evaluating(model):
        logits = model(given, logits_to_keep=last + 1, use_cache=False).logits[:, :-1]
    logs = torch.log_softmax(logits.float(), -1)
    return float(-logs.gather(-1, given[:, -last:, None]).mean())


def heads(config: RealModelsConfig, text: str, progress: Progress) -> xr.Dataset:
    """Heads at every prefix of one text, and what shorter prefixes foretold."""
    progress(f"{text}: one pass over {config.lengths[-1]} tokens")
    model, folder = loaded(config, progress)
    found = Prefixes(config.lengths, config.queries)
    look(model, text_tokens(model, folder, text, config.lengths[-1], progress), found)
    made = found.summary()
    return made[KEPT].assign(law_foretold=foretold(made)).drop_attrs()


def foretold(made: xr.Dataset) -> xr.DataArray:
    """Errors at each length as each shorter one foretells them by the law (dimension ``made_at``).

    All of the error is taken to be due to length, e(n) → e(n) √(E_L/E_n), with the expected squared
    errors E for the moments that were measured at n.
    """
    keys = made.tokens.round()
    short, before = made.rename(length="made_at"), keys.rename(length="made_at")
    moments = [short[name] for name in ("score_variance", "tilt", "value_spread")]
    there, here = (
        xr.apply_ufunc(expected_affine_error, count, *moments) for count in (keys, before)
    )
    law: xr.DataArray = short.affine_error * np.sqrt(there / here)
    return law.where(made.length > short.made_at)


def replacement(config: RealModelsConfig, text: str, progress: Progress) -> xr.Dataset:
    """Loss of the model with heads read by moments or from a state, the best of the first text."""
    length = config.replaced_length
    model, folder = loaded(config, progress)
    chooser, given = (
        text_tokens(model, folder, name, length, progress) for name in (config.texts[0], text)
    )
    progress(f"{text}: order of the heads")
    trial, errors = Prefixes([length], config.queries), dict[int, Array]()
    where = torch.tensor(query_places(length, config.queries), device=model.device)

    def visitor(layer: int, heads: Heads, output: Tensor) -> None:
        trial(layer, heads, output)
        errors[layer] = state_errors(heads, output, where, config.recent)

    look(model, chooser, visitor)
    layers, made = sorted(errors), trial.summary().isel(length=0)
    states = np.stack([errors[layer] for layer in layers], 2)  # (state, recent, layer, head)
    affine = ordered(made.affine_error.values, layers)
    good = int((made.affine_error <= config.tolerance).sum())
    before = loss(model, given, length // 2)
    with linearize(model, affine[:good]):
        within = loss(model, given, length // 2) - before
    mixed = given[:, torch.randperm(length, generator=torch.Generator().manual_seed(config.seed))]
    size = sizes(model, config.recent)
    counts = [round(len(affine) * share) for share in config.replaced_shares]
    change = np.full((*size.shape, len(counts)), np.nan)
    for i, j in np.argwhere(size < length).tolist():
        order, recent = ordered(states[i, j], layers), config.recent[j]
        for k, count in enumerate(counts):
            progress(f"{text}: {count} heads read from a state, {STATES[i]}, {recent} tokens")
            with watching(model, state_instead(order[:count], recent, STATES[i] == "moments")):
                change[i, j, k] = loss(model, given, length // 2) - before
    return xr.Dataset(
        {
            "loss": before,
            "shuffled_loss": loss(model, mixed, length // 2),
            "within_change": within,
            "within_count": float(good),
            "state_change": (("state", "recent", "replaced_share"), change),
            "state_size": (("state", "recent"), size),
        },
        coords={
            "state": list(STATES),
            "recent": list(config.recent),
            "replaced_share": list(config.replaced_shares),
        },
    )


def state_errors(heads: Heads, output: Tensor, where: Tensor, recent: Sequence[int]) -> Array:
    """√(Σ‖T - T̂‖² / Σ‖T‖²) over the queries for every state, (states, recent, head)."""
    exact = output[:, :, where].to(heads.wide)
    reads = [state_read_out(heads, recent, where, moments=each == "moments") for each in STATES]
    missed = (torch.stack(reads) - exact).square().sum((-1, -2))
    found: Array = (missed / exact.square().sum((-1, -2))).sqrt()[:, :, 0].double().cpu().numpy()
    return found


def state_instead(pairs: Sequence[Head], recent: int, moments: bool) -> Visitor:
    """A visitor that lets some heads read from a state of constant size."""
    wanted: dict[int, list[int]] = {}
    for layer, head in pairs:
        wanted.setdefault(layer, []).append(head)

    def visitor(layer: int, heads: Heads, output: Tensor) -> Tensor | None:
        if layer not in wanted:
            return None
        changed, some = output.clone(), chosen_heads(heads, wanted[layer])
        changed[:, wanted[layer]] = state_read_out(some, [recent], moments=moments)[0].to(output)
        return changed

    return visitor


def ordered(error: Array, layers: Sequence[int]) -> list[Head]:
    """Pairs (layer, head), the smallest error first."""
    rows, columns = np.unravel_index(np.argsort(error, axis=None), error.shape)
    return [(layers[row], int(head)) for row, head in zip(rows.tolist(), columns, strict=True)]


def one_size(config: RealModelsConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """All parts side by side; sizes of states are those of any text."""
    data = side_by_side(config, parts)
    if "state_size" in data:
        data["state_size"] = data.state_size.max("text")
    return data.assign_attrs(tolerance=config.tolerance, replaced_length=config.replaced_length)
