"""Names of verdicts and columns in an audit's dataset; needs no torch."""

import re

import numpy as np
import xarray as xr

from largeprompt.display.labels import label

FINDINGS = ("moments", "few clusters", "selects", "other shape", "uniform", "mixtures not tried")
REGIMES = ("linear", "heavy", "frozen")
FLAGS = {  # what whole numbers stand for, and which is the first
    "regime": (-1, ("unknown", *REGIMES)),
    "finding": (-1, ("not judged", *FINDINGS)),
    "chosen": (0, ("keep", "replace")),
}
# places of the verdicts for which the mean and covariance are enough
READ_MOMENTS = tuple(FINDINGS.index(name) for name in ("moments", "uniform"))
READ_OUTS = ("mean", "affine", "third", "fourth")
NAMES = {
    "tokens": "keys that the query may read [tokens]",
    "weighed_tokens": "effective number of these keys by their position biases alone [tokens]",
    "score_variance": "variance of the scores",
    "score_skewness": "skewness of the scores",
    "score_kurtosis": "excess kurtosis of the scores",
    "entropy": "entropy of the weights [nats]",
    "largest_weight": "largest weight",
    "effective_tokens": "effective number of tokens read [tokens]",
    "alpha": "standard deviation of the scores over √(2 ln L)",
    "regime": "regime of the softmax",
    "mean_error": "relative error of the mean value alone",
    "affine_error": "relative error of the affine read-out",
    "affine_error_bar": "standard error over texts of the affine error",
    "third_error": "relative error of the read-out with cumulants up to the third",
    "fourth_error": "relative error of the read-out with cumulants up to the fourth",
    "mixture_*_error": "relative error of the mixture read-out, components: *",
    "tilt": "‖Cov(v, s)‖² over the squared output",
    "value_spread": "tr Cov(v) over the squared output",
    "query": "position of the query",
    "share_*": "share of queries in the * regime",
    "clusters": "fewest components of a mixture within the tolerance",
    "finding": "verdict",
    "order": "place in the order of replacement, smallest affine error first",
    "factor_*": "factor on the scores that keeps the effective tokens at the length times *",
    "key_width": "coordinates of a key",
    "value_width": "coordinates of a value",
    "group_size": "heads that share these keys and values",
    "saved_operations": "share of the head's multiplications that its affine read-out saves",
    "saved_cache": "share of the head's cache that its affine read-out does without",
    "chosen": "whether the head is to be replaced",
    "chosen_order": "place in the order of replacement by the texts that choose",
    "kept": "cosine or loss ratio with the chosen heads replaced",
    "kept_error": "standard error over texts of what is kept",
    "confirmed": "cosine or loss ratio with the chosen heads replaced, on held-out texts",
    "confirmed_error": "standard error over texts of what is kept on held-out texts",
    "cosine": "cosine of the embeddings before and after",
    "cosine_error": "standard error over texts of the cosine of the embeddings",
    "kl": "Kullback-Leibler divergence of the next token [nats]",
    "kl_error": "standard error over texts of the Kullback-Leibler divergence [nats]",
    "loss_change": "change of the loss of the next token [nats]",
    "loss_change_error": "standard error over texts of the change of the loss [nats]",
    "layer": "layer",
    "head": "head",
    "position": "place of the query among those looked at",
    "length": "tokens of the text that are read [tokens]",
    "curve": "order and read-out of the replacement",
    "replaced": "number of heads replaced",
    "mixture_components": "components of the mixture read-out",
}
RUN_NAMES = {f"head_{name}": f"by head: {words}" for name, words in NAMES.items()} | NAMES


def described(data: xr.Dataset) -> xr.Dataset:
    """Add names, units and the meanings of flags to the dataset, in place."""
    label(data, RUN_NAMES)
    for name, (first, meanings) in FLAGS.items():
        for key in (name, f"head_{name}"):
            if key in data:
                values = np.arange(first, first + len(meanings), dtype=np.int8)
                words = " ".join(each.replace(" ", "_") for each in meanings)
                data[key].attrs |= {"flag_values": values, "flag_meanings": words}
    return data


def mixtures(data: xr.Dataset) -> list[int]:
    """Return the numbers of components that were tried, ascending."""
    names = (re.fullmatch(r"mixture_(\d+)_error", str(name)) for name in data)
    return sorted(int(found[1]) for found in names if found)


def longest(data: xr.Dataset) -> xr.Dataset:
    """Return the dataset at the longest of its prompt lengths."""
    return data.isel(length=-1) if "length" in data.dims else data


def queries(data: xr.Dataset) -> list[str]:
    """Return the dimensions over which medians of a head are taken."""
    return [name for name in ("text", "position") if name in data.dims]


def head_name(layer: int, head: int) -> str:
    """Return the name of a head, ``L0H10``."""
    return f"L{layer}H{head}"
