"""Search for the smallest length from which an error is within a tolerance."""

import itertools
import math
from collections.abc import Callable

from largeprompt import validation
from largeprompt.errors import InvalidArgumentError

AT_ONCE = 8  # powers of two that are looked at together
SLACK = 1e-5  # relative: an error above the tolerance by less may go unnoticed


def smallest_length(
    errors: Callable[[list[int]], list[float]], tolerance: float, longest: int = validation.LONGEST
) -> tuple[float, float, str]:
    """Length, error there, and why.

    ``errors`` gives root mean squared errors at lengths. Intervals between powers of two are looked
    at from the longest, down to the first length outside the tolerance. Each is passed where
    nothing in it can exceed the tolerance, and else cut, down to two lengths.
    """
    known: dict[int, float] = {}

    def learn(lengths: list[int]) -> list[int]:
        known.update(zip(lengths, errors(lengths), strict=True))
        bad = next((one for one in lengths if math.isnan(known[one])), None)
        if bad is not None:
            given = f"an error that is NaN at length {bad}"
            raise InvalidArgumentError("z", given, "scores for which the error is a number")
        return lengths

    learn([longest])
    if known[longest] > tolerance:
        reason = f"not within 10^15 tokens: the error is still {known[longest]:.4g} there"
        return math.inf, known[longest], reason
    grid = [1 << k for k in range(longest.bit_length()) if 1 << k < longest]
    high = longest
    while grid:
        grid, part = grid[:-AT_ONCE], grid[-AT_ONCE:]
        intervals = list(itertools.pairwise([*learn(part), high]))
        high = part[0]
        while intervals:
            low, top = intervals.pop()
            if known[low] <= tolerance and _largest_between(low, top, known) <= tolerance * (
                1 + SLACK
            ):
                continue
            if top - low == 1:
                outside = f"{known[low]:.6g}"
                if float(outside) <= tolerance:  # rounded down to it
                    outside = f"just above {tolerance:.6g}"
                reason = f"error {known[top]:.6g} at L = {top:,}, {outside} at L = {low:,}"
                return top, known[top], reason
            inner = learn(_cuts(low, top, known, tolerance))
            intervals += itertools.pairwise([low, *inner, top])
    return 1, known[1], "one token is enough"


def _cuts(low: int, high: int, known: dict[int, float], tolerance: float) -> list[int]:
    """Lengths between two: near where a power law crosses the tolerance, else evenly spread."""
    below, above = known[low], known[high]
    width = math.log(high / low)
    if below > tolerance >= above > 0 and width > 0:
        share = math.log(below / tolerance) / math.log(below / above)
        places = [
            low * math.exp(share * width + shift)
            for shift in (-width / 8, -(width**2) / 32, width**2 / 32, width / 8)
        ]
        middle = low * math.exp(share * width)
        chosen = {math.floor(middle), math.floor(middle) + 1, *map(round, places)}
    else:
        chosen = {low + (high - low) * i // 8 for i in range(1, 8)}
    chosen.add((low + high) // 2)  # at worst half is left
    return sorted(one for one in chosen if low < one < high)


def _largest_between(low: int, high: int, known: dict[int, float]) -> float:
    """Upper bound (cert.15) of the error between two lengths."""
    if high - low == 1:
        return known[low]
    if low == 1:  # L(L-1) = 0
        return math.inf
    ends = [
        2 * math.log(max(known[one], 1e-150)) - math.log(one) - math.log(one - 1)
        for one in (low, high)
    ]
    fall = (ends[0] - ends[1]) / (high - low)
    peak = ((fall + 2) + math.sqrt(fall**2 + 4)) / (2 * fall) if fall > 0 else high
    peak = min(max(peak, low), high)
    return math.exp((ends[0] - fall * (peak - low) + math.log(peak) + math.log(peak - 1)) / 2)
