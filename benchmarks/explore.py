"""The explorer's first tab: processor time from a moved control to all six pictures."""

import itertools
import time

from largeprompt.explore import law_page, numbers
from largeprompt.explore.state import DIRECTIONS, LAWS, LawState

KNOWN = ("problem", "curve", "drawn", "densities", "_scores", "read_outs", "enough")
CACHES = [getattr(numbers, name).__wrapped__ for name in KNOWN]
ASKED = 0.2


def seconds(state: LawState) -> float:
    """With nothing known beforehand of this state or any other; the sentence comes later."""
    for cache in CACHES:
        cache.cache_clear()
    start = time.process_time()
    law_page.stages(state)[0]()
    return time.process_time() - start


def rows() -> list[tuple[str, str, str]]:
    seconds(LawState())  # the backdrop of the phase diagram is made once
    table = []
    for law in LAWS:
        choices = itertools.product((1, 8, 32), DIRECTIONS, (1.0, 1.4, 1.5, 4.0))
        asked = (
            {"law": law, "dim": dim, "direction": way, "strength": size}
            for dim, way, size in choices
        )
        states = list(dict.fromkeys(map(LawState.of, asked)))
        found = {state: seconds(state) for state in states}
        again = {
            state: min(seconds(state) for _ in range(3))
            for state in sorted(states, key=found.__getitem__)[-4:]
        }
        slowest = max(again, key=again.__getitem__)
        worst, middle = again[slowest], sorted(found.values())[len(found) // 2]
        where = (
            f"d = {slowest.dim}, strength {slowest.strength:g}, query along "
            f"{DIRECTIONS[slowest.direction]}"
        )
        table.append(
            (
                f"explorer, tokens {LAWS[law]}: all pictures, slowest of {len(states)} positions "
                "of the controls",
                f"{worst / ASKED:.2f} x the time asked",
                f"{worst * 1e3:.0f} ms of processor time (asked: {ASKED * 1e3:g}): {where}; half "
                f"within {middle * 1e3:.0f} ms",
            )
        )
    return table
