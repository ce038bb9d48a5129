"""The audit of one model over some texts as a study: a run folder, figures, and findings by rule, like every other."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
import xarray as xr
from torch import Tensor

from largeprompt.audit.adapters.load import load_config, load_model, most_tokens, read_texts
from largeprompt.audit.adapters.transformers import AuditError, transformers_module
from largeprompt.audit.findings import FINDINGS, Rule, mixtures, summary
from largeprompt.audit.model import COMPONENTS, SINKS, audit_model
from largeprompt.audit.replace import Head, replacement_curves
from largeprompt.runs.study import Outcome, Progress, Study, Verdict

CLAIM = "audit"


@dataclasses.dataclass(frozen=True)
class AuditConfig:
    """What is audited, and how closely.

    Attributes
    ----------
    lengths
        Prompt lengths to read, the text cut to the longest; empty: the text as it is.
    layers
        Layers to look at; empty: all.
    positions
        Query positions for each text, evenly spaced.
    components
        Sizes of the Gaussian mixtures; ``sinks`` first tokens are read exactly beside them.
    counts
        Steps of the replacement curves; 0 leaves them out.
    """

    model: str = ""
    texts: tuple[str, ...] = ()
    contents: str = ""  # fingerprint of texts and model, so that changed files are read again
    lengths: tuple[int, ...] = ()
    layers: tuple[int, ...] = ()
    positions: int = 32
    components: tuple[int, ...] = COMPONENTS
    sinks: int = SINKS
    tolerance: float = 0.2
    counts: int = 6
    device: str = "cpu"
    dtype: str = "float32"
    seed: int = 0


def fingerprint(model: str, texts: tuple[str, ...]) -> str:
    """Digest of the texts, of the model's config and of the names, sizes and times of its weights."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(Path(text).read_bytes())
    folder = Path(model)
    if folder.is_dir():
        digest.update((folder / "config.json").read_bytes())
        for file in sorted(folder.glob("*.safetensors")):
            found = file.stat()
            digest.update(f"{file.name} {found.st_size} {found.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]


def cells(config: AuditConfig) -> list[str]:
    """The heads, and what replacing them does."""
    return ["heads", "replacement"] if config.counts else ["heads"]


def compute(config: AuditConfig, cell: str, progress: Progress) -> xr.Dataset:
    """One pass over the texts for each length; or the model run again and again with more and more heads replaced."""
    progress(f"{cell}: loading")
    transformers_module().utils.logging.disable_progress_bar()  # of its own, in this worker
    longest = max(config.lengths) if config.lengths else None
    model = load_model(config.model, config.device, config.dtype)
    inputs = read_texts(
        config.model, [Path(text) for text in config.texts], longest, allowed=most_tokens(load_config(config.model))
    )
    if int(inputs["input_ids"].max()) >= len(cast(Tensor, model.get_input_embeddings().weight)):
        raise AuditError("model: the tokenizer gives numbers that the model has no embedding for: they do not belong together.")
    inputs = {name: value.to(model.device) for name, value in inputs.items()}
    rule = Rule(tolerance=config.tolerance)
    layers = config.layers or None
    if cell == "heads":
        data = audit_model(
            model,
            inputs,
            layers=layers,
            positions=config.positions,
            lengths=config.lengths or None,
            components=config.components,
            sinks=config.sinks,
            progress=progress,
        )
        heads = summary(data, rule)
        return data.merge(heads.rename({str(name): f"head_{name}" for name in heads.data_vars}))
    quick = summary(audit_model(model, inputs, layers=layers, positions=config.positions, components=(), progress=progress), rule)
    order = replacement_order(quick)
    counts = sorted({round(len(order) * step / config.counts) for step in range(1, config.counts + 1)} - {0})
    size = min(config.components, key=lambda each: abs(each - 8), default=0)
    return replacement_curves(
        model, inputs, order, counts, components=size, sinks=config.sinks, seed=config.seed, progress=progress
    )


def replacement_order(heads: xr.Dataset) -> list[Head]:
    """Heads from the one that its affine read-out stands for best to the one it stands for worst."""
    error = heads.affine_error if "length" not in heads.dims else heads.affine_error.isel(length=-1)
    flat = error.stack(pair=("layer", "head")).fillna(np.inf).sortby(error.stack(pair=("layer", "head")).fillna(np.inf))
    return [(int(layer), int(head)) for layer, head in flat.pair.values]


def combine(config: AuditConfig, parts: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Both cells in one dataset."""
    data = xr.merge(parts.values(), combine_attrs="drop", compat="no_conflicts", join="outer")
    data.attrs |= {"tolerance": config.tolerance, "model": config.model, "sinks": config.sinks}
    return data


def verdicts(data: xr.Dataset) -> list[Verdict]:
    """Which kinds of heads there are, what explains their errors, and whether replacing them in the audit's order proves it."""
    found = [_kinds(data), _law(data), _clusters(data)]
    if "cosine" in data:
        found += [_order(data), _last(data)]
    return found


def _last_length(data: xr.Dataset) -> xr.Dataset:
    return data.isel(length=-1) if "length" in data.dims else data


def _kinds(data: xr.Dataset) -> Verdict:
    heads = _last_length(data)
    code = heads.head_finding.values
    numbers = [int((code == index).sum()) for index in range(len(FINDINGS))]
    total = int((code >= 0).sum())
    outcome: Outcome = "holds" if numbers[0] == total else "holds in part" if numbers[0] else "fails"
    low, high = (float(heads.head_score_variance.quantile(q)) for q in (0.0, 1.0))
    told = [f"{number} {WORDS[name][number != 1]}" for name, number in zip(FINDINGS[1:], numbers[1:], strict=True) if number]
    best, worst = (_named(heads, float(heads.head_affine_error.quantile(q))) for q in (0.0, 1.0))
    return Verdict(
        CLAIM,
        "Do the heads read only the mean and covariance of their prompt?",
        outcome,
        f"{numbers[0]} of {total} heads do, to {float(data.attrs['tolerance']):g} of their output"
        + "".join(f"; {x}" for x in told)
        + f". Affine errors from {best} to {worst}; median score variances from {low:.2g} to {high:.3g}, against ln L = "
        f"{float(np.log(heads.tokens.max())):.1f}.",
    )


WORDS = {
    "needs a longer prompt": ("needs a longer prompt", "need a longer prompt"),
    "few clusters": ("reads a few clusters", "read a few clusters"),
    "selects": ("selects tokens", "select tokens"),
    "other shape": ("averages over many keys of another shape", "average over many keys of another shape"),
}


def _named(heads: xr.Dataset, error: float) -> str:
    """An error with the layer and head that has it."""
    layer, head = np.argwhere(np.isclose(heads.head_affine_error.transpose("layer", "head").values, error))[0]
    return f"{error:.2g} (layer {int(heads.layer[layer])}, head {int(heads['head'][head])})"


def _law(data: xr.Dataset) -> Verdict:
    heads = _last_length(data)
    wrong = heads.head_affine_error > float(data.attrs["tolerance"])
    share = heads.head_law_share.where(wrong)
    count = int(wrong.sum())
    most = float((share >= 0.5).sum() / max(count, 1))
    text = (
        f"For {most:.0%} of the {count} heads beyond the tolerance the exact law of a finite prompt explains at least half of the "
        f"squared error (median share {float(share.median()):.2f}); the rest is shape."
        if count
        else "Every head is within the tolerance."
    )
    return Verdict(
        CLAIM,
        "Is the affine error of the other heads what Gaussian tokens of their moments and number would have?",
        "undecided" if not count else "holds" if most > 0.9 else "holds in part" if most > 0.1 else "fails",
        text,
    )


def _clusters(data: xr.Dataset) -> Verdict:
    heads = _last_length(data)
    sizes = mixtures(data)
    atoms = f" + {int(data.attrs['sinks'])} exact" if data.attrs["sinks"] else ""
    errors = {"mean only": heads.head_mean_error, "affine": heads.head_affine_error}
    errors |= {f"{k} component{'s' if k > 1 else ''}{atoms}": heads[f"head_mixture_{k}_error"] for k in sizes}
    medians = {name: float(error.median()) for name, error in errors.items()}
    base = medians.get(f"1 component{atoms}", medians["affine"])  # what the exact first tokens do is not the clusters' doing
    return Verdict(
        CLAIM,
        "Do a few Gaussian clusters read more than one?",
        "undecided" if not sizes or max(sizes) == 1 else "holds" if list(medians.values())[-1] < 0.9 * base else "fails",
        "Median error over heads: " + ", ".join(f"{name} {value:.2f}" for name, value in medians.items()) + ".",
    )


def _order(data: xr.Dataset) -> Verdict:
    inner = data.cosine.isel(replaced=slice(0, -1)) if data.sizes["replaced"] > 1 else data.cosine  # at the end all are replaced
    gain = inner.sel(curve="audit") - inner.sel(curve="random")
    loss = inner.sel(curve="random") - inner.sel(curve="reverse")
    right = bool((gain.mean() > 0) & (loss.mean() > 0))
    half = inner.replaced.values[inner.sizes["replaced"] // 2]
    values = {str(name): float(data.cosine.sel(curve=name, replaced=half)) for name in data.curve.values}
    text = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
    kl = ""
    if bool(data.kl.notnull().any()):
        here = data.sel(replaced=half)
        parts = (
            f"{name} {float(here.kl.sel(curve=name)):.3g} ({float(here.loss_change.sel(curve=name)):+.3g})"
            for name in ("audit", "random", "reverse")
        )
        kl = " KL divergence of the next token (change of the loss): " + ", ".join(parts) + "."
    return Verdict(
        CLAIM,
        "Does replacing heads in the audit's order change the model less than at random, and the reverse order more?",
        "holds" if right else "fails",
        f"Cosine of the embeddings with {half} heads replaced: {text}.{kl}",
    )


def _last(data: xr.Dataset) -> Verdict:
    first = data.replaced.values[0]
    kept, lost = (float(data.cosine.sel(curve=name, replaced=first)) for name in ("audit", "reverse"))
    return Verdict(
        CLAIM,
        "Could one as well replace the heads that the audit puts last?",
        "fails" if lost < kept else "holds",
        f"With {first} heads replaced the cosine is {kept:.4f} for the first and {lost:.4f} for the last.",
        control=True,
    )


STUDY = Study(
    "audit",
    "Which heads read only the moments of the prompt",
    "For each head of this transformer: is softmax attention an affine read-out of mean and covariance, is the prompt too short, "
    "are the keys not Gaussian, or does the head select tokens?",
    "One function registered with the attention interface of transformers sees queries, keys and values; the outputs recomputed "
    "from them equal the model's own. Scores give moments, regime and errors of the read-outs; the exact law of a finite Gaussian "
    "prompt tells which part of the affine error is due to length. Then heads are replaced by their read-outs, in the audit's "
    "order and others.",
    AuditConfig,
    AuditConfig(positions=16, components=(1, 8), counts=3),
    cells,
    compute,
    combine,
    verdicts,
)
