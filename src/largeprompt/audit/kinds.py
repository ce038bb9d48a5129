"""Kinds of heads and names in an audit's dataset, for rules and figures, which do without torch."""

import xarray as xr

FINDINGS = ("moments", "needs a longer prompt", "few clusters", "selects", "other shape")
READ_OUTS = ("mean", "affine", "third", "fourth")
NAMES = {
    "tokens": "keys that the query may read [tokens]",
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
    "mixture_*_error": "relative error of the mixture read-out, components: *",
    "mixture_*_error_deviation": "error of the mixture read-out over the output's deviation from the mean value, components: *",
    "mass_mixture_*": "error of the log-normaliser of the mixture read-out, components: *",
    "mass_*": "error of the log-normaliser of the * read-out",
    "*_error_deviation": "error of the * read-out over the output's deviation from the mean value",
    "mean_square": "‖v̄‖² over the squared output",
    "mean_tilt": "v̄·Cov(v, s) over the squared output",
    "tilt": "‖Cov(v, s)‖² over the squared output",
    "value_spread": "tr Cov(v) over the squared output",
    "law_error": "affine error that Gaussian tokens of these moments have",
    "law_share": "share of the squared affine error that the finite-length law explains",
    "shape_error": "affine error that the finite-length law does not explain",
    "query": "position of the query",
    "effective_tokens_low": "lower decile over queries of the effective tokens [tokens]",
    "effective_tokens_high": "upper decile over queries of the effective tokens [tokens]",
    "*_low": "lower decile over queries of the *",
    "*_high": "upper decile over queries of the *",
    "share_*": "share of queries in the * regime",
    "queries": "number of queries",
    "clusters": "fewest components of a mixture within the tolerance",
    "needed_length": "length at which Gaussian tokens of these moments are within the tolerance [tokens]",
    "finding": "verdict",
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
RUN_NAMES = {f"head_{name}": f"by head: {words}" for name, words in NAMES.items()} | NAMES  # the first that fits counts


def mixtures(data: xr.Dataset) -> list[int]:
    """Numbers of components that were tried, ascending."""
    names = [str(name) for name in data if str(name).startswith("mixture_") and str(name).endswith("_error")]
    return sorted(int(name.split("_")[1]) for name in names)


def longest(data: xr.Dataset) -> xr.Dataset:
    """The dataset at the longest of its prompt lengths."""
    return data.isel(length=-1) if "length" in data.dims else data
