"""N2: Adam follows its flow with memory, at second order in the step size."""

import dataclasses
import math

from largeprompt.runs.study import quiet
from largeprompt.studies.discrete.adam import adam
from largeprompt.studies.discrete.study import STUDY


def test_adam_follows_its_flow_with_memory_at_second_order():
    config = dataclasses.replace(
        STUDY.quick, adam_until=0.2, adam_step_sizes=(0.01, 0.005), times=11, settled=100.0
    )
    found = adam(config, quiet)
    gaps = found.memory_gap.values
    assert gaps[1] < 2e-4
    assert math.log2(gaps[0] / gaps[1]) > 1.6
    assert abs(float(found.adam_gauge[1] - found.memory_gauge[1])) < 1e-3
    assert abs(float(found.flow_gauge)) < 1e-6
