"""Small plots as SVG; colors come from the page's style sheet, for light and dark.

A log-log plot of Matplotlib takes a quarter of a second, too long for one that follows a slider.
"""

import dataclasses
import html
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from largeprompt.explore.text import figure, power_of_ten

WIDTH, HEIGHT = 340, 228
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 8, 36
Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Scale:
    """From numbers to places between ``start`` and ``end``."""

    low: float
    high: float
    log: bool = False
    start: float = 0.0
    end: float = 1.0

    def __call__(self, values: Any) -> Array:
        """Places of these numbers; NaN or infinity for what a logarithm does not take."""
        numbers = [np.asarray(each, dtype=np.float64) for each in (self.low, self.high, values)]
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high, wanted = (np.log10(each) if self.log else each for each in numbers)
        return np.asarray(self.start + (self.end - self.start) * (wanted - low) / (high - low))

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """About five round numbers with their labels."""
        if self.log:
            first = math.ceil(math.log10(self.low) - 1e-9)
            last = math.floor(math.log10(self.high) + 1e-9)
            step = max(1, math.ceil((last - first) / 5))
            return [(10.0**k, power_of_ten(k)) for k in range(first, last + 1, step)]
        places = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(self.low, self.high)
        inside = [float(place) for place in places if self.low <= place <= self.high]
        return [(place, f"{place:.6g}".replace("-", "−")) for place in inside]


class Picture:
    """Axes with marks on them, cut off at the edge; what is drawn with a name is in the legend.

    ``look`` is a class of the style sheet, such as 'c0' or 'c1 dashed'. ``ticks`` are words along
    x, at 0, 1, 2, ..., instead of numbers.
    """

    def __init__(
        self, x: Scale, y: Scale, xlabel: str, ylabel: str = "", *, ticks: Sequence[str] = ()
    ) -> None:
        self.x = dataclasses.replace(x, start=0.0, end=float(WIDTH - LEFT - RIGHT))
        self.y = dataclasses.replace(y, start=float(HEIGHT - TOP - BOTTOM), end=0.0)
        self.labels, self.ticks = (xlabel, ylabel), list(enumerate(ticks)) or self.x.ticks
        self.marks: list[str] = []
        self.legend: list[tuple[str, str]] = []

    def named(self, look: str, name: str) -> None:
        """Add a line to the legend."""
        self.legend += [(look, name)] if name else []

    def line(self, x: Any, y: Any, look: str, name: str = "") -> None:
        """A line; NaN breaks it."""
        path, pen = [], "M"
        for a, b in zip(*np.broadcast_arrays(self.x(x), self.y(y)), strict=True):
            known = math.isfinite(a) and math.isfinite(b)
            path += [f"{pen}{a:.1f} {min(max(b, -1e4), 1e4):.1f}"] if known else []
            pen = "L" if known else "M"
        self.marks.append(f'<path class="line {look}" d="{"".join(path)}"/>')
        self.named(look, name)

    def upright(self, x: float, look: str) -> None:
        """A vertical line over the whole height."""
        self.line([x, x], [self.y.low, self.y.high], look)

    def level(self, y: float, look: str, name: str = "") -> None:
        """A horizontal line over the whole width."""
        self.line([self.x.low, self.x.high], [y, y], look, name)

    def area(self, x: Any, y: Any, look: str, name: str = "") -> None:
        """A curve and the area between it and the lower edge."""
        points = "".join(f"L{a:.1f} {b:.1f}" for a, b in zip(self.x(x), self.y(y), strict=True))
        low = f"{self.y.start:.1f}"
        self.marks.append(
            f'<path class="area {look}" d="M0 {low}{points}L{self.x.end:.1f} {low}Z"/>'
        )
        self.line(x, y, look, name)

    def dots(
        self,
        x: Any,
        y: Any,
        look: str,
        name: str = "",
        *,
        radius: Any = 3.2,
        words: Sequence[str] = (),
    ) -> None:
        """Discs; ``words`` show under the pointer."""
        across, down = np.broadcast_arrays(self.x(x), self.y(y))
        sizes = np.broadcast_to(radius, across.shape)
        for i, (a, b, r) in enumerate(zip(across, down, sizes, strict=True)):
            if math.isfinite(a) and math.isfinite(b):
                title = f"<title>{html.escape(words[i])}</title>" if words else ""
                place = f'cx="{a:.1f}" cy="{b:.1f}" r="{r:.2f}"'
                self.marks.append(f'<circle class="dot {look}" {place}>{title}</circle>')
        self.named(look, name)

    def bars(self, x: Any, low: Any, high: Any, look: str) -> None:
        """Vertical lines between two heights, cut off at the lower edge."""
        for a, b, c in zip(x, np.maximum(low, self.y.low), high, strict=True):
            self.line([a, a], [b, c], look)

    def text(self, x: float, y: float, words: str, look: str) -> None:
        """Words at a place of the axes."""
        place = f'x="{float(self.x(x)):.1f}" y="{float(self.y(y)):.1f}"'
        self.marks.append(f'<text class="{look}" {place}>{html.escape(words)}</text>')

    def backdrop(self, png: str) -> None:
        """An image, as base64 of a PNG file, over the whole of the axes."""
        size = f'width="{self.x.end:.1f}" height="{self.y.start:.1f}" preserveAspectRatio="none"'
        self.marks.insert(0, f'<image {size} href="data:image/png;base64,{png}"/>')

    def card(self, name: str, title: str) -> str:
        """The picture with its title and legend, which also tell those who do not see it."""
        words = "; ".join([title, *(words for _, words in self.legend)])
        return figure(name, title, self.svg(words), self.legend)

    def svg(self, described: str) -> str:
        """The picture alone."""
        bottom, right, (xlabel, ylabel) = HEIGHT - BOTTOM, WIDTH - RIGHT, self.labels
        ticks = []
        for value, label in self.ticks:
            a = f"{LEFT + float(self.x(value)):.1f}"
            words = f'x="{a}" y="{bottom + 13}" text-anchor="middle">{html.escape(label)}'
            ticks.append(f'<path class="grid" d="M{a} {TOP}V{bottom}"/>')
            ticks.append(f'<text class="tick" {words}</text>')
        for value, label in self.y.ticks if ylabel else ():
            b = TOP + float(self.y(value))
            words = f'x="{LEFT - 4}" y="{b + 3.5:.1f}" text-anchor="end">{label}'
            ticks.append(f'<path class="grid" d="M{LEFT} {b:.1f}H{right}"/>')
            ticks.append(f'<text class="tick" {words}</text>')
        inner = f'x="{LEFT}" y="{TOP}" width="{self.x.end:.1f}" height="{self.y.start:.1f}"'
        below = f'x="{LEFT + self.x.end / 2:.1f}" y="{HEIGHT - 5}"'
        beside = f'transform="translate(11 {TOP + self.y.start / 2:.1f}) rotate(-90)"'
        labels = "".join(
            f'<text class="label" {place} text-anchor="middle">{html.escape(words)}</text>'
            for place, words in ((below, xlabel), (beside, ylabel))
        )
        return (
            f'<svg class="picture" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{html.escape(described)}">'
            f"{''.join(ticks)}<svg {inner}>{''.join(self.marks)}</svg>"
            f'<path class="frame" d="M{LEFT} {TOP}V{bottom}H{right}"/>{labels}</svg>'
        )


def decades(*values: Any) -> tuple[float, float]:
    """Powers of ten around all positive numbers among the values."""
    numbers = np.concatenate([np.ravel(np.asarray(each, dtype=np.float64)) for each in values])
    numbers = numbers[np.isfinite(numbers) & (numbers > 0)]
    if not len(numbers):
        return 0.1, 10.0
    low, high = math.floor(math.log10(numbers.min())), math.ceil(math.log10(numbers.max()))
    return 10.0**low, 10.0 ** max(high, low + 1)
