"""The contest between softmax and linear attention in a small setting."""

import pytest

from largeprompt.studies.softmax_vs_linear.study import STUDY, SoftmaxVsLinearConfig

SMALL = SoftmaxVsLinearConfig(
    dims=(1, 5),
    noises=(0.0, 1.0),
    lengths=(3, 100, 1_000_000_000),
    spectra=("toeplitz",),
    spectrum_dim=2,
    spectrum_lengths=(100, 1_000_000_000),
    spectrum_noises=(0.0,),
    largest_scale=4.0,
    pair_dims=(1, 2),
    pair_noises=(0.0,),
    pair_lengths=(5, 1_000_000_000),
    shift_variances=(0.1, 1.0),
    shift_dims=(1,),
    shift_lengths=(30,),
    spikes=(0.0, 4.0, 16.0),
    location_lengths=(100, 1_000_000),
    outlier_shares=(0.2,),
    outlier_lengths=(30, 1000),
    outlier_dim=2,
)


@pytest.fixture(scope="session")
def data():
    """Computed once; copy before changing it."""
    return STUDY.run(SMALL)
