"""N2: the predicted spread of SGD does not depend on what is drawn after it, and excess risks are
by one rule.
"""

import dataclasses

import torch

from largeprompt.runs.study import quiet
from largeprompt.studies.discrete.noise import _excess, batches
from largeprompt.studies.discrete.problem import problem


def test_predictions_do_not_depend_on_what_is_measured(small):
    """The same law whatever is drawn after it."""
    fewer = dataclasses.replace(small, batches=((0.05, 32, 8), (0.05, 64, 8)))
    more = dataclasses.replace(small, batches=((0.05, 32, 12), (0.05, 64, 8)))
    first, second = (batches(config, quiet) for config in (fewer, more))
    assert bool((first.predicted_spread == second.predicted_spread).all())
    assert float(first.sgd_spread[0]) != float(second.sgd_spread[0])


def test_a_run_that_has_hardly_moved_has_hardly_an_excess_risk(small):
    """The reference alone is in blocks, which have a rule of their own: the excess is a difference
    by one rule.
    """
    _, start = problem(small)
    reference = torch.cat([start.U.reshape(-1), start.V.reshape(-1)])
    near, far = reference.repeat(2, 1)
    near[-2] += 1e-4  # the read-out leaves the blocks
    far[-2] += 1.0
    excess = _excess(small, torch.stack([near, far]), reference)
    assert abs(float(excess[0])) < 1e-4
    assert float(excess[1]) > 0.1
