"""The studies in settings small enough for tests, each computed once."""

import functools
import math

from largeprompt.studies.anisotropy.study import AnisotropyConfig
from largeprompt.studies.convergence.study import ConvergenceConfig
from largeprompt.studies.drift.study import DriftConfig
from largeprompt.studies.exponent.study import ExponentConfig
from largeprompt.studies.limit.study import LimitConfig
from largeprompt.studies.phase_diagram.study import PhaseDiagramConfig
from largeprompt.studies.registry import study
from largeprompt.studies.sharpness.study import SharpnessConfig
from largeprompt.studies.shortcontext.study import ShortContextConfig

CONFIGS = {
    "limit": LimitConfig(dims=(1, 2, 6), layers=2, prompts=(1, 30), lengths=(30, 300, 3000), tokens_per_length=300_000),
    "convergence": ConvergenceConfig(
        points=17, sampled_lengths=(1, 10, 30, 100, 300), fitted=(10, 300), replicas=1000, bootstraps=100
    ),
    "exponent": ExponentConfig(squares=(0.3, 1.0, 2.0), dims=(1, 4), decades=(2, 9, 10)),
    "phase_diagram": PhaseDiagramConfig(variances=17, lengths=13),
    "sharpness": SharpnessConfig(points=11),
    "drift": DriftConfig(lengths=(30.0, 100.0, math.inf), until=400.0, times=31, points=128),
    "anisotropy": AnisotropyConfig(
        dim=6,
        spectra=("condition 1", "condition 1e4", "spike 0.5"),
        points=17,
        sampled_lengths=(10, 100),
        spikes=(0.2, 0.75),
        decades=(2, 9, 10),
    ),
    "shortcontext": ShortContextConfig(
        dims=(1, 4),
        score_variances=(0.5, 2.0),
        conditions=(1e4,),
        condition_dim=4,
        regression_dim=2,
        regression_conditions=(1.0, 1e4),
        per_decade=4,
        regression_per_decade=2,
        points=256,
    ),
}


@functools.cache
def dataset(name):
    """The study's dataset in the small setting; copy before changing it."""
    return study(name).run(CONFIGS[name])
