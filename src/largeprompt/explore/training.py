"""Numbers of the training tab: flows at several lengths and at infinity."""

import dataclasses
import functools

from largeprompt.explore.code import executed, training_setup
from largeprompt.explore.picture import Array
from largeprompt.explore.state import TrainingState


@dataclasses.dataclass(frozen=True)
class Flows:
    """Risks, distances and envelopes, each by length and time; the infinite prompt's risk by time;
    Bayes risks by length.
    """

    lengths: tuple[int, ...]
    times: Array
    risks: Array
    limit_risks: Array
    distances: Array
    envelopes: Array
    bayes: tuple[float, ...]
    floor: float  # the Bayes risk of an infinite prompt


@functools.lru_cache(maxsize=32)
def flows(state: TrainingState) -> Flows:
    """What the code of the state makes; a second or two."""
    found = executed(training_setup(state))
    tube = found["tube"]
    return Flows(
        tuple(found["lengths"]),
        tube.times.numpy(),
        tube.flow.risk.numpy(),
        tube.limit.risk[0].numpy(),
        tube.distance.numpy(),
        tube.envelope.numpy(),
        tuple(found["bayes"]),
        found["task"].bayes_risk(float("inf")),
    )
