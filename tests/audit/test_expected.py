"""What Gaussian tokens of a head's moments and number would have, against the exact law and drawn
prompts.
"""

import math

import numpy as np
import torch

from largeprompt.audit import head_statistics, summary
from largeprompt.audit.expected import expected_affine_error, typical_affine_error
from largeprompt.audit.own_moments import own_moment_error


def test_the_table_of_the_law_is_the_law():
    variance = np.array([1e-3, 0.1, 0.5, 2.0, 7.0, 30.0, 300.0])
    for length in (2, 30, 512, 8192):
        along, across = (value.numpy() for value in own_moment_error(length, variance))
        tilt, spread = 0.3 * variance, 2.0
        found = expected_affine_error(
            np.full(len(variance), length), variance, tilt, np.full(len(variance), spread)
        )
        np.testing.assert_allclose(found, along * 0.3 + across * (spread - 0.3), rtol=2e-3)


def test_the_typical_error_is_the_median_of_drawn_prompts():
    """Values of 24 coordinates, one of them along the tilt; 4000 prompts, whose median is known to
    2 %, the ratio to 5 %.
    """
    generator = torch.Generator().manual_seed(3)
    for q, length in ((1.0, 60), (4.0, 200)):
        xi = torch.randn(4000, length, generator=generator)
        rest = torch.randn(4000, length, 24, generator=generator)
        weights = torch.softmax(math.sqrt(q) * xi, -1)
        difference = weights - (1 + math.sqrt(q) * (xi - xi.mean(-1, keepdim=True))) / length
        drawn = (
            (difference * xi).sum(-1) ** 2
            + torch.einsum("nl,nlo->no", difference, rest).square().sum(-1) / 24
        ).sqrt()
        found = typical_affine_error(*(np.array([each]) for each in (length, q, q, 2.0)))[0]
        assert abs(float(drawn.median()) / found - 1) < 0.15
        rms = math.sqrt(
            expected_affine_error(*(np.array([each]) for each in (length, q, q, 2.0)))[0]
        )
        assert found < 0.92 * rms


def test_the_law_explains_all_of_a_gaussian_head_and_little_of_another(planted, audited):
    """Ratio of measured to expected squared error, mean over independent texts: Gaussian tokens
    give 1 within sampling error.
    """
    for kind in ("linear", "short", "frozen"):
        heads = planted(kind, texts=400, tokens=100, seed=1)
        raw = head_statistics(heads, torch.arange(1))
        expected = expected_affine_error(
            *(raw[name].numpy() for name in ("tokens", "score_variance", "tilt", "value_spread"))
        )
        ratio = raw["affine_error"].numpy()[:, 0, 0] / expected[:, 0, 0]
        # fluctuating moments of the sample shift the expectation by O(1/L): 5 % at L = 100
        assert abs(ratio.mean() - 1) < 0.08 + 5 * ratio.std() / math.sqrt(len(ratio)), kind
    assert float(summary(audited(planted("selects"), ())).law_share.item()) < 0.3
