"""Kinds of heads and names in an audit's dataset, for rules and figures, which do without torch."""

import re

import numpy as np
import xarray as xr

from largeprompt.display.labels import label

FINDINGS = (
    "moments",
    "needs a longer prompt",
    "few clusters",
    "selects",
    "other shape",
    "uniform",
    "mixtures not tried",
)
REGIMES = ("linear", "heavy", "frozen")
FLAGS = {  # what whole numbers stand for, and which is the first
    "regime": (-1, ("unknown", *REGIMES)),
    "finding": (-1, ("not judged", *FINDINGS)),
    "out_of_reach": (0, ("within reach", "out of reach")),
    "chosen": (0, ("keep", "replace")),
}
READ_MOMENTS = (0, 5)  # places of those for which the mean and covariance are enough
READ_OUTS = ("mean", "affine", "third", "fourth")
FEWEST_KEYS = 128  # that a query must see for length and shape to be told apart
# share of the predictions that must come true for such a verdict, and fewest
TRUSTED, TRIALS = 0.8, 5
NAMES = {
    "tokens": "keys that the query may read [tokens]",
    "weighed_tokens": "effective number of these keys by their position biases alone, all of them "
    "without biases [tokens]",
    "score_mean": "mean of the scores",
    "score_variance": "variance of the scores",
    "score_skewness": "skewness of the scores",
    "score_kurtosis": "excess kurtosis of the scores",
    "entropy": "entropy of the weights [nats]",
    "largest_weight": "largest weight",
    "tail_index": "tail index of the largest weights",
    "affine_direction": "cosine of output and affine read-out",
    "effective_tokens": "effective number of tokens read [tokens]",
    "alpha": "standard deviation of the scores over √(2 ln L)",
    "regime": "regime of the softmax",
    "linear_length": "length from which on the softmax is linear, e^(2σ²) [tokens]",
    "error_bar": "sampling error of the output, relative",
    "mean_error": "relative error of the mean value alone",
    "affine_error_bar": "standard error over texts of the affine error",
    "mass_mean": "error of the log-normaliser of the mean score [nats]",
    **{
        name.replace("*", rung): words.replace("*", rung)
        for rung in ("third", "fourth")
        for name, words in (
            ("*_error", "relative error of the affine read-out with cumulants up to the *"),
            (
                "*_error_deviation",
                "error of the same with cumulants up to the *, over the output's deviation from "
                "the mean value",
            ),
            ("mass_*", "error of the log-normaliser with cumulants up to the * [nats]"),
        )
    },
    "mixture_*_error": "relative error of the mixture read-out, components: *",
    "mixture_*_error_deviation": "error of the mixture read-out over the output's deviation from "
    "the mean value, components: *",
    "mass_mixture_*": "error of the log-normaliser of the mixture read-out, components: * [nats]",
    "mass_*": "error of the log-normaliser of the * read-out [nats]",
    "*_error_deviation": "error of the * read-out over the output's deviation from the mean value",
    "mean_square": "‖v̄‖² over the squared output",
    "mean_tilt": "v̄·Cov(v, s) over the squared output",
    "tilt": "‖Cov(v, s)‖² over the squared output",
    "value_spread": "tr Cov(v) over the squared output",
    "subset_all_error": "relative error of the affine read-out at the queries for which subsets of "
    "keys were drawn",
    "subset_tokens": "keys at the queries for which subsets of keys were drawn [tokens]",
    "subset_*_error": "relative error of the affine read-out over random keys, keys: *",
    "law_error": "affine error that as many Gaussian tokens of these moments have",
    "law_share": "squared affine error of the finite-length law over that which is seen, at most 1",
    "law_slope": "power of the number of keys with which the squared error of the finite-length "
    "law falls",
    "shape_error": "affine error that stays however many keys of the same law there are",
    "shape_share": "share of the squared affine error that stays however many keys of the same law "
    "there are",
    "predictions_close": "share of the errors predicted for a longer length that are within a "
    "quarter of what is seen there",
    "predicted_error": "affine error that the next shorter length predicted",
    "predictions_made": "predictions that a head comes within the tolerance at a longer length",
    "predictions_kept": "predictions that a head comes within the tolerance at a longer length, "
    "and it did",
    "out_of_reach": "whether the needed length is beyond the model's positions or its window",
    "query": "position of the query",
    "effective_tokens_low": "lower decile over queries of the effective tokens [tokens]",
    "effective_tokens_high": "upper decile over queries of the effective tokens [tokens]",
    "*_low": "lower decile over queries of the *",
    "*_high": "upper decile over queries of the *",
    "share_*": "share of queries in the * regime",
    "queries": "number of queries",
    "clusters": "fewest components of a mixture within the tolerance",
    "needed_length": "length at which the affine read-out is predicted to be within the tolerance "
    "[tokens]",
    "finding": "verdict",
    "order": "place in the order of replacement, from the smallest affine error on",
    "key_width": "coordinates of a key",
    "value_width": "coordinates of a value",
    "group_size": "heads that share these keys and values",
    "saved_operations": "share of the head's multiplications that its affine read-out saves",
    "saved_operations_longer": "share of the head's multiplications that its affine read-out saves "
    "at the longer length",
    "saved_cache": "share of the head's cache that its affine read-out does without",
    "saved_cache_longer": "share of the head's cache that its affine read-out does without at the "
    "longer length",
    "longer_length": "the longer length: eight times this one, or what the model reads [tokens]",
    "chosen": "whether the head is to be replaced",
    "kept": "cosine or loss ratio with the chosen heads replaced",
    "chosen_order": "place in the order of replacement by the texts that choose",
    "kept_error": "standard error over texts of what is kept",
    "confirmed_error": "standard error over texts of what is kept on texts that did not choose the "
    "heads",
    "cosine_error": "standard error over texts of the cosine of the embeddings",
    "kl_error": "standard error over texts of the Kullback-Leibler divergence [nats]",
    "loss_change_error": "standard error over texts of the change of the loss [nats]",
    "confirmed": "cosine or loss ratio with the chosen heads replaced, on texts that did not "
    "choose them",
    "layer": "layer",
    "head": "head",
    "position": "place of the query among those looked at",
    "length": "tokens of the text that are read [tokens]",
    "curve": "order and read-out of the replacement",
    "replaced": "number of heads replaced",
    "cosine": "cosine of the embeddings before and after",
    "kl": "Kullback-Leibler divergence of the next token [nats]",
    "loss_change": "change of the loss of the next token [nats]",
    "mixture_components": "components of the mixture read-out",
    "*_error": "relative error of the * read-out",
}  # of the variables, as largeprompt.display.labels reads them
# the first that fits counts; how many predictions came true is one number for all heads
RUN_NAMES = {
    f"head_{name}": words if name.startswith("predictions_") else f"by head: {words}"
    for name, words in NAMES.items()
} | NAMES


def described(data: xr.Dataset) -> xr.Dataset:
    """The dataset with names, units and the meanings of its flags, in place."""
    label(data, RUN_NAMES)
    for name, (first, meanings) in FLAGS.items():
        for key in (name, f"head_{name}"):
            if key in data:
                flags = {"flag_values": np.arange(first, first + len(meanings), dtype=np.int8)}
                data[key].attrs |= flags | {
                    "flag_meanings": " ".join(each.replace(" ", "_") for each in meanings)
                }
    return data


def mixtures(data: xr.Dataset) -> list[int]:
    """Numbers of components that were tried, ascending."""
    return _numbers(data, "mixture")


def _numbers(data: xr.Dataset, kind: str) -> list[int]:
    return sorted(
        int(found[1]) for name in data if (found := re.fullmatch(rf"{kind}_(\d+)_error", str(name)))
    )


def subsets(data: xr.Dataset) -> list[int]:
    """Sizes of the random subsets of keys that were drawn, ascending."""
    return _numbers(data, "subset")


def trusted(made: int, kept: int) -> bool:
    """Whether predictions were tested often enough, and often enough came true, for a verdict to
    rest on them.
    """
    return made >= TRIALS and kept >= TRUSTED * made


def looks_back(data: xr.Dataset) -> xr.DataArray:
    """Whether no query of a head reads keys behind it; its own key is one more than its position, a
    learned sink the other.
    """
    found: xr.DataArray = (data.tokens - data["query"]).max(
        [name for name in ("text", "position") if name in data.dims]
    ) <= 2
    return found


def longest(data: xr.Dataset) -> xr.Dataset:
    """The dataset at the longest of its prompt lengths."""
    return data.isel(length=-1) if "length" in data.dims else data
