"""A scalar law against its own cumulants."""

import pytest
import torch

from largeprompt.testing import assert_sample_mean


@pytest.fixture
def draws_its_tilts():
    """Check mean, variance and skewness of 100,000 draws at two tilts against the cumulants of the
    law.
    """

    def check(law, tilts):
        u = torch.tensor(tilts, dtype=torch.float64)
        _, k1, k2, k3 = law.derivatives(u, 3)
        draws = law.sample(u.expand(100_000, -1), torch.Generator().manual_seed(5))
        scaled = (draws - k1) / torch.sqrt(k2)
        expected = torch.stack([torch.zeros_like(u), torch.ones_like(u), k3 / k2**1.5])
        assert_sample_mean(torch.stack([scaled, scaled**2, scaled**3], 1), expected)

    return check
