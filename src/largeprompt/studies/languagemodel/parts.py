"""The model on every text: its heads at every prefix with what shorter ones foretold, and its loss
with heads read otherwise.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import pydantic
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from largeprompt.audit import FINDINGS, Heads, linearize, load_model, summary, watching
from largeprompt.audit.adapters.transformers import Model, Visitor, evaluating, transformers_module
from largeprompt.audit.plan import Head
from largeprompt.audit.readouts import chosen_heads
from largeprompt.audit.real.models import SOURCES, fetched
from largeprompt.runs.settings import Count, Distinct, Increasing, Positive, Seed, settings
from largeprompt.runs.study import Progress, along, side_by_side
from largeprompt.studies.languagemodel.measure import FIRST, Prefixes, Trial, effective_share
from largeprompt.studies.languagemodel.shape import extrapolated, separated, subsets
from largeprompt.studies.languagemodel.state import state_read_out, state_tokens
from largeprompt.studies.languagemodel.texts import tokens
from largeprompt.studies.own_moments import expected_affine_error, typical_affine_error

Number = Annotated[int, pydantic.Field(ge=0)]
Share = Annotated[float, pydantic.Field(gt=0, le=1)]
ORDERS = ("audit", "random", "reverse")
OCTAVES = 3  # between the longest prefix and that from which its error is explained
MOMENTS = ("score_variance", "tilt", "value_spread")
SHARES = ("share_linear", "share_heavy", "share_frozen")
SCORES = (
    "score_variance",
    "score_skewness",
    "score_kurtosis",
    "alpha",
    "effective_tokens",
    "largest_weight",
)
KEPT = (
    "tokens",
    *SCORES,
    *SHARES,
    "tilt",
    "value_spread",
    "mean_error",
    "affine_error",
    "law_error",
    "law_slope",
    "shape_share",
)


@settings
class LanguageModelConfig:
    """Which texts, how long, which states, and where the weights are."""

    weights: str = "smollm2"  # a name that is fetched, or a folder
    texts: Annotated[Distinct[str], pydantic.Field(min_length=2)] = (
        "novel 1",
        "novel 2",
        "novel 3",
        "manual",
        "code",
    )
    lengths: Annotated[
        Increasing[Annotated[int, pydantic.Field(ge=64)]], pydantic.Field(min_length=2)
    ] = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
    queries: Annotated[int, pydantic.Field(ge=2, le=8)] = 8  # in the last eighth of each prefix
    recent: Increasing[Number] = (0, 16, 64, 256, 1024)  # last tokens that a state reads exactly
    components: Increasing[Number] = (0, 1, 4)  # of a state: none, mean and covariance, a mixture
    sinks: Count = 1  # first tokens that a state reads exactly
    replaced_length: Annotated[int, pydantic.Field(ge=64)] = 1024
    replaced_recent: Increasing[Number] = (16, 64)
    # of all heads, that are read from a state
    replaced_shares: Increasing[Share] = (0.25, 0.5, 0.75)
    steps: Count = 4  # of the replacement curves
    tolerance: Positive = 0.2
    device: str = "cpu"
    seed: Seed = 0


def others(config: LanguageModelConfig) -> Iterable[str]:
    """Texts on which heads are replaced: all but the first, which says in which order."""
    return config.texts[1:]


def loaded(
    config: LanguageModelConfig, texts: Sequence[str], length: int, progress: Progress
) -> tuple[Model, list[Tensor]]:
    """The model, fetched the first time, and the tokens of some texts, each (1, length)."""
    folder = (
        fetched(config.weights, progress) if config.weights in SOURCES else Path(config.weights)
    )
    # its bar for the weights would break into ours
    transformers_module().utils.logging.disable_progress_bar()
    model = load_model(str(folder), device=config.device)
    numbers = [tokens(text, folder, length, seed=config.seed, progress=progress) for text in texts]
    return model, [torch.tensor([each], device=model.device) for each in numbers]


def sizes(config: LanguageModelConfig, model: Model, recent: Sequence[int]) -> NDArray[np.float64]:
    """Sizes of the states in tokens of an ordinary cache, (components, recent)."""
    given = model.config.get_text_config()
    width = int(getattr(given, "head_dim", None) or given.hidden_size // given.num_attention_heads)
    return np.array(
        [
            [state_tokens(m, k, config.sinks, width, width) for m in recent]
            for k in config.components
        ]
    )


def look(model: Model, given: Tensor, visitor: Visitor) -> None:
    """One pass of the model, all of its layers looked at."""
    with evaluating(model), watching(model, visitor):
        model(given, logits_to_keep=1, use_cache=False)


def heads(config: LanguageModelConfig, text: str, progress: Progress) -> xr.Dataset:
    """Heads at every prefix of one text, with and without its first token; and what states of
    constant size would give.
    """
    progress(f"{text}: one pass over {config.lengths[-1]} tokens")
    model, (given,) = loaded(config, [text], config.lengths[-1], progress)
    found = Prefixes(config.lengths, config.queries, config.recent, config.components, config.sinks)
    look(model, given, found)
    progress(f"{text}: what was foretold")
    audits = [
        with_law(summary(found.audit(first))).assign_coords(length=list(config.lengths))
        for first in FIRST
    ]
    data = xr.concat(
        [_kept(each) for each in audits],
        xr.Variable("first", list(FIRST)),
        data_vars="all",
        coords="minimal",
    )
    layers, without = data.layer.values.tolist(), audits[1]
    shares = [
        [_effective(without, found, length, layer) for layer in layers] for length in config.lengths
    ]
    data["effective_share"] = (("length", "layer", "head"), np.array(shares))
    states = np.stack(
        [
            np.stack([found.states[length, layer] for layer in layers], -2)
            for length in config.lengths
        ]
    )
    data["state_error"] = (("length", "components", "recent", "layer", "head"), states)
    data["size_of_state"] = (("components", "recent"), sizes(config, model, config.recent))
    return data.assign_coords(components=list(config.components), recent=list(config.recent))


def with_law(made: xr.Dataset) -> xr.Dataset:
    """Return the medians with the exact law's error, and with what part of the error is shape."""
    moments = [made[name] for name in MOMENTS]
    law = xr.apply_ufunc(typical_affine_error, made.tokens.round(), *moments)
    return separated(made.assign(law_error=law))


def _kept(made: xr.Dataset) -> xr.Dataset:
    """What is kept of the audit's summary, with foretold errors and what explains those that were
    seen.
    """
    result = made[list(KEPT)]
    for index, name in enumerate(FINDINGS):
        result[f"finding_{name.replace(' ', '_')}"] = (
            (made.finding == index).where(made.finding >= 0).astype(np.float64)
        )
    return result.merge(foretold(made)).merge(explained(made)).drop_attrs()


def foretold(made: xr.Dataset) -> xr.Dataset:
    """Errors at each length as each shorter one foretells them (dimension ``made_at``): by the law
    alone, and with the shape.

    By the law alone all of the error is due to length, e(n) → e(n) √(E_L/E_n) with the expected
    squared errors E for the moments that were measured at n. With the shape, that part of it stays
    which does not fall with the number of keys at a fixed law.
    """
    made = made.assign(tokens=made.tokens.round())
    short = made.rename(length="made_at")
    later = made.length > short.made_at
    moments = [short[name] for name in MOMENTS]
    there, here = (
        xr.apply_ufunc(expected_affine_error, number, *moments)
        for number in (made.tokens, short.tokens)
    )
    law = (short.affine_error * np.sqrt(there / here)).where(later)
    shape = extrapolated(
        short.affine_error, short.shape_share, short.law_slope, made.tokens / short.tokens
    ).where(later)
    return xr.Dataset({"law_foretold": law, "shape_foretold": shape})


def explained(made: xr.Dataset) -> xr.Dataset:
    """Why the error at the longest prefix L is not what the law foretells three octaves before, at
    n: logarithms that add up.

    With e the error, e* that over n random of the L keys, and ℓ(L; n) the law's over L keys with
    the moments measured at n,

        ln e(L)/e(n) = ln ℓ(L; n)/ℓ(n; n)                              foretold: by the law alone
                     + ln ℓ(L; L)/ℓ(L; n) variance: the moments of scores and values are others at L
                     + ln [e(L)/e*(n)] / [ℓ(L; L)/ℓ(n; L)] shape: what the law's fall misses at a
                       fixed law of keys
                     + ln [e*(n)/e(n)] / [ℓ(n; L)/ℓ(n; n)] order: random keys of L are not the first
                       n in a row.
    """
    made = made.assign(tokens=made.tokens.round())
    place = max(0, made.sizes["length"] - 1 - OCTAVES)
    short, last = made.isel(length=place, drop=True), made.isel(length=-1, drop=True)
    size = int(made.length[place])
    drawn = last[f"subset_{size}_error"] if size in subsets(made) else last.affine_error * np.nan

    def law(keys: xr.DataArray, of: xr.Dataset) -> xr.DataArray:
        expected = xr.apply_ufunc(expected_affine_error, keys, *(of[name] for name in MOMENTS))
        found: xr.DataArray = np.log(expected) / 2
        return found

    before, foretold_law, after = (
        law(short.tokens, short),
        law(last.tokens, short),
        law(last.tokens, last),
    )
    few = law(xr.full_like(short.tokens, float(size)), last)
    found = {
        "seen": np.log(last.affine_error / short.affine_error),
        "foretold": foretold_law - before,
        "variance": after - foretold_law,
        "shape": np.log(last.affine_error / drawn) - (after - few),
        "order": np.log(drawn / short.affine_error) - (few - before),
    }
    terms = [each.drop_vars("length", errors="ignore") for each in found.values()]
    joined: xr.DataArray = xr.concat(terms, xr.Variable("term", list(found)))
    return joined.to_dataset(name="explained")


def _effective(made: xr.Dataset, found: Prefixes, length: int, layer: int) -> list[float]:
    """Effective over real number of keys of every head of a layer, the first token left out."""
    some = made.sel(length=length, layer=layer)
    columns = zip(
        *(some[name].values.tolist() for name in ("tokens", *MOMENTS)),
        found.memory[length, layer],
        strict=True,
    )
    return [effective_share(*column) for column in columns]


def state_instead(
    wanted: Mapping[int, list[int]], components: int, recent: int, sinks: int
) -> Visitor:
    """A visitor that lets some heads of some layers read from a state of constant size."""

    def visitor(layer: int, heads: Heads, output: Tensor) -> Tensor | None:
        if not wanted.get(layer):
            return None
        changed = output.clone()
        some = chosen_heads(heads, wanted[layer])
        changed[:, wanted[layer]] = state_read_out(
            some, [recent], components=components, sinks=sinks
        )[0].to(output.dtype)
        return changed

    return visitor


def loss(model: Model, given: Tensor) -> float:
    """Mean of -log p(next token) over the second half of the text."""
    half = given.shape[1] // 2
    with evaluating(model):
        logits = model(given, logits_to_keep=half + 1, use_cache=False).logits[:, :-1]
    logs = torch.log_softmax(logits.float(), -1)
    return float(-logs.gather(-1, given[:, -half:, None]).mean())


def replacement(config: LanguageModelConfig, text: str, progress: Progress) -> xr.Dataset:
    """Loss of the model with heads read by moments or from a state, those first that have the
    smallest errors on the first text.
    """
    length = config.replaced_length
    model, (trial, given) = loaded(config, [config.texts[0], text], length, progress)
    progress(f"{text}: order of the heads")
    first = Trial(config.replaced_recent, config.components, config.sinks)
    look(model, trial, first)
    layers = sorted(first.affine)
    error = np.stack([first.affine[layer] for layer in layers])
    # (components, recent, layer, head)
    states = np.stack([first.states[layer] for layer in layers], -2)
    total, good = error.size, int((error <= config.tolerance).sum())
    moments = by_moments(
        config,
        model,
        given,
        _ordered(error, layers),
        good,
        lambda line: progress(f"{text}: {line}"),
    )
    before = float(moments.loss)
    mixed = given[
        :, torch.from_numpy(np.random.default_rng(config.seed).permutation(length)).to(given.device)
    ]
    counts = [round(total * share) for share in config.replaced_shares]
    change = np.full((len(config.components), len(config.replaced_recent), len(counts)), np.nan)
    for i, count in enumerate(config.components):
        for j, recent in enumerate(config.replaced_recent):
            order = _ordered(states[i, j], layers)
            for k, size in enumerate(counts):
                if np.isfinite(states[i, j]).all():
                    progress(
                        f"{text}: {size} heads read from a state, {count} clusters and {recent} "
                        "tokens"
                    )
                    visitor = state_instead(_by_layer(order[:size]), count, recent, config.sinks)
                    with watching(model, visitor):
                        change[i, j, k] = loss(model, given) - before
    grid = ("components", "replaced_recent")
    return moments.assign(
        {
            "shuffled_loss": loss(model, mixed),
            "state_change": ((*grid, "replaced_share"), change),
            "state_size": (grid, sizes(config, model, config.replaced_recent)),
        }
    ).assign_coords(
        components=list(config.components),
        replaced_recent=list(config.replaced_recent),
        replaced_share=list(config.replaced_shares),
    )


def by_moments(
    config: LanguageModelConfig,
    model: Model,
    given: Tensor,
    pairs: list[Head],
    good: int,
    say: Progress,
) -> xr.Dataset:
    """Loss with more and more heads replaced by their affine read-out, in three orders; and with
    the first ``good``.
    """
    before = loss(model, given)
    shuffled = np.random.default_rng([config.seed, 1]).permutation(len(pairs))
    orders = {"audit": pairs, "random": [pairs[i] for i in shuffled], "reverse": pairs[::-1]}
    counts = sorted(
        {round(len(pairs) / 2 ** (config.steps - step)) for step in range(1, config.steps + 1)}
        - {0}
    )
    change = np.empty((len(ORDERS), len(counts)))
    for i, order in enumerate(ORDERS):
        for j, count in enumerate(counts):
            say(f"{count} heads replaced, order: {order}")
            with linearize(model, orders[order][:count]):
                change[i, j] = loss(model, given) - before
    with linearize(model, pairs[:good]):
        within = loss(model, given) - before
    found = {
        "change": (("order", "heads_replaced"), change),
        "within_change": within,
        "within_count": float(good),
        "loss": before,
    }
    return xr.Dataset(found, coords={"order": list(ORDERS), "heads_replaced": counts})


def _ordered(error: NDArray[np.float64], layers: Sequence[int]) -> list[Head]:
    """Pairs (layer, head) from the smallest error on."""
    rows, columns = np.unravel_index(np.argsort(error, axis=None), error.shape)
    return [
        (layers[row], int(head)) for row, head in zip(rows.tolist(), columns.tolist(), strict=True)
    ]


def _by_layer(pairs: Sequence[Head]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for layer, head in pairs:
        found.setdefault(layer, []).append(head)
    return found


def combine(config: LanguageModelConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """All parts in one dataset, texts in the order of the settings."""
    data = side_by_side(config, parts).sel(text=list(config.texts))
    for name in ("size_of_state", "state_size"):
        data[name] = data[name].max("text")  # the same for all
    shortest = config.lengths[max(0, len(config.lengths) - 1 - OCTAVES)]
    return data.assign_attrs(
        tolerance=config.tolerance, replaced_length=config.replaced_length, explained_from=shortest
    )


by_text = along("text")
