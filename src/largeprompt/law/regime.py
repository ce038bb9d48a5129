"""Which regime a prompt is in: α = σ/√(2 ln L) against 1/2 and 1."""

import math
from typing import Literal

from largeprompt import validation

Regime = Literal["linear", "heavy", "frozen"]


def regime(score_variance: float, length: float) -> Regime:
    """Name the regime of softmax attention with Gaussian scores of this variance over this many tokens.

    With α = σ/√(2 ln L): 'linear' for α < 1/2 (L > e^{2σ²}), 'heavy' for 1/2 <= α < 1 (rare large tokens set the error), 'frozen'
    for α >= 1 (L <= e^{σ²/2}; few tokens carry the weight): formula (reg.1) of docs/mathematics/regimes.md.

    Parameters
    ----------
    score_variance
        σ² = u^TΓu.
    length
        L, an integer from 1 to 10^15, or ``math.inf``.

    Returns
    -------
    str
        'linear', 'heavy' or 'frozen'.

    Examples
    --------
    >>> from largeprompt.law import regime
    >>> [regime(2.0, length) for length in (2, 10, 100)]
    ['frozen', 'heavy', 'linear']
    """
    score_variance = validation.number("score_variance", score_variance, minimum=0)
    length = validation.length("length", length, allow_infinity=True)
    if score_variance == 0 or math.isinf(length):
        return "linear"
    twice_log = 2 * math.log(length)
    if twice_log > 4 * score_variance:
        return "linear"
    return "heavy" if twice_log > score_variance else "frozen"
