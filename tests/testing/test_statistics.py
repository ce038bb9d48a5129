"""The statistical assertion can fail, fails where it says, and rarely otherwise."""

import pytest
import torch
from scipy.stats import norm

from largeprompt.testing import assert_sample_mean

F = torch.float64


def rows(score):
    """1000 rows of one entry with standard deviation 1 whose mean is ``score`` standard errors
    above 0.
    """
    signs = torch.ones(1000, 1, dtype=F)
    signs[::2] = -1
    return signs / signs.std() + score / 1000**0.5


def test_limit_is_the_quantile_of_the_false_alarm():
    for rate in (1e-3, 1e-9):
        allowed = float(norm.isf(rate / 2))
        assert_sample_mean(rows(0.999 * allowed), torch.zeros(1, dtype=F), false_alarm=rate)
        with pytest.raises(AssertionError, match=f"standard errors apart, allowed {allowed:.1f}"):
            assert_sample_mean(rows(1.001 * allowed), torch.zeros(1, dtype=F), false_alarm=rate)


def test_several_entries_share_the_rate_and_the_worst_is_named():
    allowed = float(norm.isf(1e-9 / 4))
    both = torch.cat([rows(0.0), rows(1.01 * allowed)], 1)
    with pytest.raises(AssertionError, match="entry 1: sample mean"):
        assert_sample_mean(both, torch.zeros(2, dtype=F))
    # too much for one entry alone, not for one of two
    between = rows((float(norm.isf(1e-9 / 2)) + allowed) / 2)
    assert_sample_mean(torch.cat([rows(0.0), between], 1), torch.zeros(2, dtype=F))
    with pytest.raises(AssertionError):
        assert_sample_mean(between, torch.zeros(1, dtype=F))


def test_entries_without_variance_may_differ_by_rounding_only():
    constant = torch.full((50, 1), 0.3, dtype=F)
    assert_sample_mean(constant, torch.tensor([0.1 + 0.2], dtype=F))
    with pytest.raises(AssertionError):
        assert_sample_mean(constant, torch.tensor([0.3 + 1e-9], dtype=F))
