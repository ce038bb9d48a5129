"""Statistical assertions with a stated rate of false alarms."""

import torch
from scipy.stats import norm
from torch import Tensor


def assert_sample_mean(
    samples: Tensor, expected: Tensor, *, false_alarm: float = 1e-9, slack: float = 1e-12
) -> None:
    """Assert that independent rows have the expected mean.

    A two-sided normal test for each entry, with a Bonferroni correction: for rows with finite
    variance and enough of them for the central limit theorem, a correct expectation fails with
    probability at most ``false_alarm``.

    Parameters
    ----------
    samples
        Independent rows, shape (n, ...).
    expected
        Mean under the hypothesis, shape (...).
    false_alarm
        Probability with which a true hypothesis fails.
    slack
        Absolute difference that rounding may cause, for entries without variance.
    """
    count = samples.shape[0]
    error = samples.std(0, correction=1) / count**0.5
    bound = float(norm.isf(false_alarm / (2 * expected.numel())))
    difference = (samples.mean(0) - expected).abs()
    score = (difference - slack) / error.clamp_min(1e-300)
    worst = int(torch.argmax(score))
    assert bool((score <= bound).all()), (
        f"entry {worst}: sample mean {samples.mean(0).flatten()[worst]:.6g}, expected "
        f"{expected.flatten()[worst]:.6g}, "
        f"{score.flatten()[worst]:.1f} standard errors apart, allowed {bound:.1f}"
    )
