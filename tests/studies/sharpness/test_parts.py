"""C3: certificates over exact errors, signs in closed form, and the settings."""

import numpy as np
from study_checks import SettingChecks

from largeprompt.studies.sharpness.rules import SHARP
from largeprompt.studies.sharpness.study import STUDY
from largeprompt.studies.shortcontext.formulas import long_enough


def test_bounds_are_sharp_for_long_prompts(data):
    assert float(data.ratio.isel(multiple=-1).max()) < 1.01
    assert np.all(long_enough(data.ratio, "multiple", SHARP) > 0.3)
    # signs at L = 1: T_1 = ±1 against tanh u, ρ = cosh 2u/cosh² u
    u = data.sign_tilt.values
    rho, gap = np.cosh(2 * u) / np.cosh(u) ** 2, np.tanh(2 * u) - np.tanh(u)
    leading = rho * (1 / np.cosh(2 * u) ** 2 + gap**2) / (1 + np.tanh(u) ** 2)
    np.testing.assert_allclose(data.sign_leading_ratio, leading, rtol=1e-10)


class TestSettings(SettingChecks):
    study = STUDY
    refused = (
        "variances=-1",
        "variances=1,1",
        "tilts=inf",
        "tilts=",
        "sign_tilts=1,1",
        "points=0",
        "largest_multiple=1",
    )
