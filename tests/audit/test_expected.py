"""What Gaussian tokens of a head's moments and number would have, against the exact law and drawn prompts."""

import math

import numpy as np
import torch

from largeprompt.audit import head_statistics
from largeprompt.audit.expected import Moments, expected_affine_error, expected_output, needed_length
from largeprompt.audit.own_moments import own_moment_error


def moments(tokens=1e9, score_variance=1.0, mean_square=1.0, mean_tilt=0.0, tilt=0.5, value_spread=1.0):
    """One head's moments as arrays; of so many tokens that chance adds nothing."""
    return Moments(
        *(
            np.atleast_1d(np.array(each, dtype=float))
            for each in (tokens, score_variance, mean_square, mean_tilt, tilt, value_spread)
        )
    )


def test_the_table_of_the_law_is_the_law():
    variance = np.array([1e-3, 0.1, 0.5, 2.0, 7.0, 30.0, 300.0])
    for length in (2, 30, 512, 8192):
        along, across = (value.numpy() for value in own_moment_error(length, variance))
        tilt, spread = 0.3 * variance, 2.0
        found = expected_affine_error(np.full(len(variance), length), variance, tilt, np.full(len(variance), spread))
        np.testing.assert_allclose(found, along * 0.3 + across * (spread - 0.3), rtol=2e-3)


def test_the_expected_output_is_that_of_drawn_prompts():
    """E‖T_L‖² for values v = m + c s/q + noise, s ~ N(0, q), against 40,000 drawn prompts: within 6 standard errors."""
    generator = torch.Generator().manual_seed(3)
    q, length, m, c = 2.0, 12, torch.tensor([0.5, -0.2], dtype=torch.float64), torch.tensor([0.8, 0.3], dtype=torch.float64)
    s = math.sqrt(q) * torch.randn(40_000, length, generator=generator, dtype=torch.float64)
    v = m + s[..., None] * c / q + 0.4 * torch.randn(40_000, length, 2, generator=generator, dtype=torch.float64)
    drawn = (torch.softmax(s, -1)[..., None] * v).sum(1).square().sum(-1)
    spread = float((c**2).sum() / q + 2 * 0.16)
    found = expected_output(length, moments(1e9, q, float(m @ m), float(m @ c), float(c @ c), spread))[0]
    assert abs(float(drawn.mean()) - found) < 6 * float(drawn.std()) / 200


def test_needed_length_is_where_the_law_comes_within_the_tolerance():
    both = moments([1e9] * 3, [0.5, 2.0, np.nan], [1.0] * 3, [0.0] * 3, [0.2, 0.5, 0.1], [1.0] * 3)
    needed = needed_length(both, 0.03)
    assert np.isnan(needed[2])
    for value, q, tilt in zip(needed[:2], (0.5, 2.0), (0.2, 0.5), strict=True):
        for length, within in ((value, True), (value / 2, False)):
            error = expected_affine_error(np.array([length]), np.array([q]), np.array([tilt]), np.array([1.0]))
            assert (error[0] <= 0.03**2 * expected_output(length, moments(1e9, q, 1.0, 0.0, tilt, 1.0))[0]) == within
    assert np.isinf(needed_length(moments(score_variance=60.0, tilt=1.0, value_spread=2.0), 0.1)[0])


def test_no_length_helps_a_head_whose_keys_say_nothing_about_its_values():
    """Output and error vanish alike; what a finite prompt adds to its moments by chance is seen through."""
    for tokens in (64, 512, 4096):
        chance = moments(tokens, 1.0, 1 / tokens, 0.0, 1 / tokens, 1.0)
        assert np.isinf(needed_length(chance, 0.2)[0])


def test_the_law_explains_all_of_a_gaussian_head_and_little_of_another(planted, audited):
    """Ratio of measured to expected squared error, mean over independent texts: Gaussian tokens give 1 within sampling error."""
    for kind in ("linear", "short", "frozen"):
        heads = planted(kind, texts=400, tokens=100, seed=1)
        raw = head_statistics(heads, torch.arange(1))
        expected = expected_affine_error(*(raw[name].numpy() for name in ("tokens", "score_variance", "tilt", "value_spread")))
        ratio = raw["affine_error"].numpy()[:, 0, 0] / expected[:, 0, 0]
        # fluctuating moments of the sample shift the expectation by O(1/L): 5 % at L = 100
        assert abs(ratio.mean() - 1) < 0.08 + 5 * ratio.std() / math.sqrt(len(ratio)), kind
    data = audited(planted("selects"), ())
    assert float(data.law_share.median()) < 0.3
