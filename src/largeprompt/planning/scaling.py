"""How attention should scale with length: the factor on the scores that keeps what softmax reads.

Scores are Gaussian of variance σ² over L keys, Y = Σ w² is the collision probability of the
softmax weights, and 1/E Y the effective number of tokens read: docs/mathematics/finite_prompt.md.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import elementwise
from torch import Tensor

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError
from largeprompt.law import collision_moments

Array = NDArray[np.float64]
LARGEST_SCALE = 500.0  # of scores whose moments are computed
LARGEST_VARIANCE = 2500.0  # standard deviation 50: one token is read, whatever the length


def length_scaling(length: Any, reference_length: Any, score_variance: Any) -> Tensor:
    """Return the factor on the scores that keeps the effective number of tokens.

    The factor c is the root of E Y(length, c² score_variance) = E Y(reference_length,
    score_variance): exact for independent Gaussian scores at every length. For long prompts

    - c ≈ sqrt(1 + ln s/σ²) while many tokens are read (s = length/reference_length, σ² the score
      variance at the reference length),
    - c ≈ sqrt(ln(length)/ln(reference_length)) where few tokens carry the weight.

    Multiply queries or keys by it, or both by its square root.

    Parameters
    ----------
    length, reference_length
        Keys that a query reads, and how many it read where the scores have that variance: integers
        from 2 to 10¹⁵, one or an array. All three arguments broadcast.
    score_variance
        Variance of the scores of one query over its keys, after all scaling: positive, at most
        2500; one or an array.

    Examples
    --------
    >>> lp.length_scaling(8 * 8192, 8192, [1.0, 4.5, 14.3])
    tensor([1.7580, 1.2488, 1.1608], dtype=torch.float64)
    """
    lengths, references = _lengths("length", length), _lengths("reference_length", reference_length)
    variance = _variance(score_variance)
    if bool((variance <= 0).any()):
        raise InvalidArgumentError("score_variance", "0", "positive variances")
    validation.broadcast(
        "length, reference_length and score_variance",
        *(torch.Size(each.shape) for each in (lengths, references, variance)),
    )
    lengths, references, variance = np.broadcast_arrays(lengths, references, variance)
    kept = _log_collision(references, variance)
    if bool((kept <= -np.log(lengths)).any()):
        most = int(np.ceil(np.exp(-kept[kept <= -np.log(lengths)]).max()))
        allowed = f"more than the {most:,} tokens that are effectively read at the reference length"
        raise InvalidArgumentError("length", f"{lengths.min():g}", allowed)
    # t = ln c; a start between the two regimes' factors
    start = 0.5 * np.log(np.maximum(1 + np.log(lengths / references) / variance, 0.5)) / 2

    def excess(t: Array, length: Array, variance: Array, kept: Array) -> Array:
        return _log_collision(length, variance * np.exp(2 * t)) - kept

    args = (lengths, variance, kept)
    most = np.log(LARGEST_SCALE) - np.log(variance) / 2
    found = elementwise.bracket_root(excess, start - 0.05, start + 0.05, xmax=most, args=args)
    if not bool(found.success.all()):
        failed = ~found.success
        given = f"{variance[failed].min():g} at {references[failed].min():g} tokens"
        allowed = f"a factor that keeps the deviation of the scores below {LARGEST_SCALE:g}"
        raise InvalidArgumentError("score_variance", given, allowed)
    root = elementwise.find_root(
        excess, found.bracket, args=args, tolerances={"xatol": 1e-13, "xrtol": 0.0}
    )
    return torch.from_numpy(np.asarray(np.exp(root.x)))


def output_scale(length: Any, score_variance: Any) -> Tensor:
    """Return sqrt(E Y), the root mean square of attention's output per unit of value.

    Exact for Gaussian scores and values of mean 0 that do not depend on the keys: E(Σ w v)² =
    E Y E v². Divide by it to keep the output at unit scale.

    Parameters
    ----------
    length
        Keys that a query reads: integers from 1 to 10¹⁵, one or an array.
    score_variance
        Variance of the scores: from 0 to 2500, one or an array.

    Examples
    --------
    >>> lp.output_scale([64, 1024, 16384], 1.0)
    tensor([0.1970, 0.0513, 0.0129], dtype=torch.float64)
    """
    lengths, variance = _lengths("length", length, least=1), _variance(score_variance)
    shapes = (torch.Size(lengths.shape), torch.Size(variance.shape))
    validation.broadcast("length and score_variance", *shapes)
    return torch.from_numpy(np.asarray(np.exp(_log_collision(lengths, variance) / 2)))


def log_n_scaling(length: Any, reference_length: Any) -> Tensor:
    """Return ln(length)/ln(reference_length), the rule found by trial ("log-n").

    To first order it is exact where σ² = ln(reference_length)/2, and where few tokens are read.
    """
    first, last = _lengths("reference_length", reference_length), _lengths("length", length)
    return torch.from_numpy(np.asarray(np.log(last) / np.log(first)))


def longrope_scaling(length: Any, reference_length: Any) -> Tensor:
    """Return LongRoPE's factor on the scores, sqrt(1 + ln s/ln L₀)²: log-n, never below 1."""
    return log_n_scaling(length, reference_length).clamp_min(1.0)


def yarn_scaling(length: Any, reference_length: Any) -> Tensor:
    """Return YaRN's factor on the scores, (1 + 0.1 ln s)², 1 for shorter prompts.

    To first order it is the exact factor where σ² = 2.5; later it grows too fast.
    """
    ratio = _lengths("length", length) / _lengths("reference_length", reference_length)
    return torch.from_numpy(np.asarray((1 + 0.1 * np.log(np.maximum(ratio, 1.0))) ** 2))


def _lengths(name: str, value: Any, least: int = 2) -> Array:
    given = validation.tensor(name, value).detach().cpu().double().numpy()
    for each in np.unique(given):
        if validation.length(name, float(each)) < least:
            raise InvalidArgumentError(name, f"{each:g}", f"at least {least} tokens")
    return given


def _variance(value: Any) -> Array:
    given = validation.tensor("score_variance", value).detach().cpu().double().numpy()
    if bool((given < 0).any()) or bool((given > LARGEST_VARIANCE).any()):
        wrong = given[(given < 0) | (given > LARGEST_VARIANCE)][0]
        allowed = f"variances from 0 to {LARGEST_VARIANCE:g}, after all scaling"
        raise InvalidArgumentError("score_variance", f"{wrong:g}", allowed)
    return given


def _log_collision(length: Array, variance: Array) -> Array:
    """Return ln E Y, with one quadrature for each length."""
    length, variance = np.broadcast_arrays(length, variance)
    found = np.empty(length.shape)
    for each in np.unique(length):
        here = length == each
        scale = torch.from_numpy(np.sqrt(variance[here]))
        found[here] = collision_moments(float(each), scale).collision.log().numpy()
    return found
