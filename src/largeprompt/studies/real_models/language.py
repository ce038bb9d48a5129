"""Heads of a language model at every prefix, and its loss with heads read from a small state."""

from collections.abc import Iterable, Mapping, Sequence
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
from largeprompt.runs.study import Progress
from largeprompt.studies.real_models.config import RealModelsConfig
from largeprompt.studies.real_models.own_moments import expected_affine_error
from largeprompt.studies.real_models.prefixes import Prefixes
from largeprompt.studies.real_models.state import STATES, state_read_out, state_tokens
from largeprompt.studies.real_models.texts import tokens

KEPT = ["tokens", "score_variance", "tilt", "value_spread", "affine_error", "share_linear"]


def others(config: RealModelsConfig) -> Iterable[str]:
    """Texts on which heads are replaced: all but the first, which says in which order."""
    return config.texts[1:]


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


def sizes(model: Model, recent: Sequence[int]) -> NDArray[np.float64]:
    """Sizes of the states in tokens of an ordinary cache, (states, recent)."""
    given = model.config.get_text_config()
    width = int(getattr(given, "head_dim", None) or given.hidden_size // given.num_attention_heads)
    return np.array(
        [[state_tokens(m, kind == "moments", width) for m in recent] for kind in STATES]
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
    """Heads at every prefix of one text, with what shorter ones foretold and what states give."""
    progress(f"{text}: one pass over {config.lengths[-1]} tokens")
    model, folder = loaded(config, progress)
    found = Prefixes(config.lengths, config.queries, config.recent)
    look(model, text_tokens(model, folder, text, config.lengths[-1], progress), found)
    made = found.summary()
    data = made[KEPT].assign(
        law_foretold=foretold(made),
        state_error=found.state_errors(),
        size_of_state=(("state", "recent"), sizes(model, config.recent)),
    )
    return data.assign_coords(state=list(STATES), recent=list(config.recent)).drop_attrs()


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
    """Loss of the model with heads read by moments or from a state of constant size.

    Heads are chosen on the first text: those of the smallest errors are replaced first.
    """
    length = config.replaced_length
    model, folder = loaded(config, progress)
    chooser, given = (
        text_tokens(model, folder, name, length, progress) for name in (config.texts[0], text)
    )
    progress(f"{text}: order of the heads")
    trial = Prefixes([length], config.queries, config.replaced_recent)
    look(model, chooser, trial)
    made, states = trial.summary().isel(length=0), trial.state_errors().isel(length=0)
    layers = made.layer.values.tolist()
    affine = ordered(made.affine_error.values, layers)
    good = int((made.affine_error <= config.tolerance).sum())
    before = loss(model, given, length // 2)
    with linearize(model, affine[:good]):
        within = loss(model, given, length // 2) - before
    mixed = given[:, torch.randperm(length, generator=torch.Generator().manual_seed(config.seed))]
    counts = [round(len(affine) * share) for share in config.replaced_shares]
    change = np.full((*states.shape[:2], len(counts)), np.nan)
    for i, kind in enumerate(STATES):
        for j, recent in enumerate(config.replaced_recent):
            error = states.values[i, j]
            for k, count in enumerate(counts if np.isfinite(error).all() else ()):
                progress(f"{text}: {count} heads read from a state, {kind}, {recent} tokens")
                chosen = ordered(error, layers)[:count]
                with watching(model, state_instead(chosen, recent, kind == "moments")):
                    change[i, j, k] = loss(model, given, length // 2) - before
    grid = ("state", "replaced_recent")
    return xr.Dataset(
        {
            "loss": before,
            "shuffled_loss": loss(model, mixed, length // 2),
            "within_change": within,
            "within_count": float(good),
            "state_change": ((*grid, "replaced_share"), change),
            "state_size": (grid, sizes(model, config.replaced_recent)),
        },
        coords={
            "state": list(STATES),
            "replaced_recent": list(config.replaced_recent),
            "replaced_share": list(config.replaced_shares),
        },
    )


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


def ordered(error: NDArray[np.float64], layers: Sequence[int]) -> list[Head]:
    """Pairs (layer, head), the smallest error first."""
    rows, columns = np.unravel_index(np.argsort(error, axis=None), error.shape)
    return [(layers[row], int(head)) for row, head in zip(rows.tolist(), columns, strict=True)]


def one_size(config: RealModelsConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """All parts side by side; sizes of states are those of any text."""
    data = xr.merge(parts.values(), combine_attrs="drop", compat="no_conflicts", join="outer")
    for name in ("size_of_state", "state_size"):
        if name in data:
            data[name] = data[name].max("text")
    if "text" in data.dims:
        data = data.sel(text=[name for name in config.texts if name in data.text.values])
    return data.assign_attrs(tolerance=config.tolerance, replaced_length=config.replaced_length)
