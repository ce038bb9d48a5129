"""What the affine read-out of a head saves: operations for each token, and numbers in the cache."""

from typing import Any

LONGER = 8  # times the length at which savings are given too


def saved_operations(keys: Any, key_width: Any, value_width: Any) -> Any:
    """1 - 2do/(n(d + o)): share of the multiplications that a read-out of moments saves; below 0 where it costs more.

    A token reads n keys of width d and values of width o, n(d + o) multiplications; the read-out adds the token to the d × o matrix
    Σ k v^T and multiplies the query by it.
    """
    return 1 - 2 * key_width * value_width / (keys * (key_width + value_width))


def saved_cache(keys: Any, key_width: Any, value_width: Any) -> Any:
    """1 - (do + d + o)/(n(d + o)): share of the numbers kept for n tokens that the moments do without.

    Heads that share keys and values share their cache: it goes only where all of them are replaced.
    """
    state = key_width * value_width + key_width + value_width
    return 1 - state / (keys * (key_width + value_width))
