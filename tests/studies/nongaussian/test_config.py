"""N1: settings of the study of tokens that are not Gaussian."""

import pydantic
import pytest

from largeprompt.studies.nongaussian.config import NonGaussianConfig

BAD = [
    {"lengths": (-5,)},
    {"lengths": (100, 10)},
    {"terms": (0,)},
    {"shapes": (0.5,)},
    {"separations": (1.5,)},
    {"skews": (1.0,)},
    {"correlations": (1.0,)},
    {"score_variances": (-1.0,)},
    {"replicas": 1},
    {"seed": -1},
]


@pytest.mark.parametrize("settings", BAD)
def test_bad_settings_are_refused(settings):
    with pytest.raises(pydantic.ValidationError, match=next(iter(settings))):
        NonGaussianConfig(**settings)
