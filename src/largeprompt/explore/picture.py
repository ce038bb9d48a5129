"""Small plots as SVG, drawn in a few milliseconds; colours come from the page's style sheet, for
light and dark.

A log-log plot of Matplotlib takes a quarter of a second as SVG, which is too long for a picture
that follows a slider.
"""

import dataclasses
import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 340, 228
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 8, 36
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
Array = NDArray[np.float64]


def power_of_ten(exponent: int) -> str:
    """1, 10 or 10ⁿ."""
    return {0: "1", 1: "10"}.get(exponent, "10" + str(exponent).translate(SUPERSCRIPTS))


def in_words(value: float, digits: int = 3) -> str:
    """A number as one reads it: 0.0231, 1,240, 3.2·10⁹, ∞."""
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return "∞"
    size = abs(value)
    if size and not 1e-3 <= size < 1e7:
        exponent = math.floor(math.log10(size))
        return f"{value / 10.0**exponent:.{digits - 1}f}·{power_of_ten(exponent)}"
    places = max(0, digits - 1 - math.floor(math.log10(size))) if size else 0
    return f"{round(value, digits - 1 - math.floor(math.log10(size))) if size else 0:,.{places}f}"


@dataclasses.dataclass(frozen=True)
class Scale:
    """From numbers to places between ``start`` and ``end``."""

    low: float
    high: float
    log: bool = False
    start: float = 0.0
    end: float = 1.0

    def __call__(self, values: Any) -> Array:
        """Places of these numbers; NaN for what a logarithm does not take."""
        numbers = [np.asarray(each, dtype=np.float64) for each in (self.low, self.high, values)]
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high, wanted = (np.log10(each) if self.log else each for each in numbers)
        return np.asarray(self.start + (self.end - self.start) * (wanted - low) / (high - low))

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """About five round numbers with their labels."""
        if self.log:
            first, last = (
                math.ceil(math.log10(self.low) - 1e-9),
                math.floor(math.log10(self.high) + 1e-9),
            )
            step = max(1, math.ceil((last - first) / 5))
            return [(10.0**k, power_of_ten(k)) for k in range(first, last + 1, step)]
        rough = (self.high - self.low) / 5
        spacing = next(
            one
            for one in (m * 10.0 ** math.floor(math.log10(rough)) for m in (1, 2, 5, 10))
            if one >= rough * 0.999
        )
        places = (
            np.arange(
                math.ceil(self.low / spacing - 1e-9), math.floor(self.high / spacing + 1e-9) + 1
            )
            * spacing
        )
        return [(float(place), f"{place:.6g}".replace("-", "−")) for place in places]


class Picture:
    """Axes with marks on them, cut off at the edge; ``svg`` is the whole.

    ``ticks`` are words along x, at 0, 1, 2, ..., in the place of numbers.
    """

    def __init__(
        self, x: Scale, y: Scale, xlabel: str, ylabel: str = "", *, ticks: Sequence[str] = ()
    ) -> None:
        self.x = dataclasses.replace(x, start=0.0, end=float(WIDTH - LEFT - RIGHT))
        self.y = dataclasses.replace(y, start=float(HEIGHT - TOP - BOTTOM), end=0.0)
        self.labels, self.ticks = (xlabel, ylabel), list(enumerate(ticks)) or self.x.ticks
        self.marks: list[str] = []

    def line(self, x: Any, y: Any, look: str) -> None:
        """A line; NaN breaks it. ``look`` is a class of the style sheet, such as 'c0' or 'c1
        dashed'.
        """
        path, pen = [], "M"
        for a, b in zip(*np.broadcast_arrays(self.x(x), self.y(y)), strict=True):
            if math.isfinite(a) and math.isfinite(b):
                path.append(f"{pen}{a:.1f} {min(max(b, -1e4), 1e4):.1f}")
                pen = "L"
            else:
                pen = "M"
        self.marks.append(f'<path class="line {look}" d="{"".join(path)}"/>')

    def area(self, x: Any, y: Any, look: str) -> None:
        """The area between a curve and the lower edge."""
        points = "".join(f"L{a:.1f} {b:.1f}" for a, b in zip(self.x(x), self.y(y), strict=True))
        self.marks.append(
            f'<path class="area {look}" d="M0 {self.y.start:.1f}{points}L{self.x.end:.1f} '
            f'{self.y.start:.1f}Z"/>'
        )

    def dots(
        self,
        x: Any,
        y: Any,
        look: str,
        *,
        radius: Any = 3.2,
        error: Any = None,
        names: Sequence[str] = (),
    ) -> None:
        """Discs, with error bars of ± ``error`` and a name each that shows under the pointer, where
        given.
        """
        across, down = np.broadcast_arrays(self.x(x), self.y(y))
        if error is not None:
            ends = [
                self.y(
                    np.maximum(
                        np.asarray(y) + sign * np.asarray(error),
                        self.y.low if self.y.log else -np.inf,
                    )
                )
                for sign in (-1, 1)
            ]
            bars = zip(across, *ends, strict=True)
            self.marks += [
                f'<path class="line {look}" d="M{a:.1f} {b:.1f}V{c:.1f}"/>'
                for a, b, c in bars
                if math.isfinite(b + c)
            ]
        for i, (a, b, r) in enumerate(
            zip(across, down, np.broadcast_to(radius, across.shape), strict=True)
        ):
            if math.isfinite(a) and math.isfinite(b):
                title = f"<title>{html.escape(names[i])}</title>" if names else ""
                self.marks.append(
                    f'<circle class="dot {look}" cx="{a:.1f}" cy="{b:.1f}" '
                    f'r="{r:.2f}">{title}</circle>'
                )

    def upright(self, x: float, look: str) -> None:
        """A vertical line over the whole height."""
        self.marks.append(
            f'<path class="line {look}" d="M{float(self.x(x)):.1f} 0V{self.y.start:.1f}"/>'
        )

    def level(self, y: float, look: str) -> None:
        """A horizontal line over the whole width."""
        self.marks.append(
            f'<path class="line {look}" d="M0 {float(self.y(y)):.1f}H{self.x.end:.1f}"/>'
        )

    def text(self, x: float, y: float, words: str, look: str = "") -> None:
        """Words at a place of the axes."""
        place = f'x="{float(self.x(x)):.1f}" y="{float(self.y(y)):.1f}" text-anchor="start"'
        self.marks.append(f'<text class="{look}" {place}>{html.escape(words)}</text>')

    def backdrop(self, png: str) -> None:
        """An image, as base64 of a PNG file, over the whole of the axes."""
        size = f'width="{self.x.end:.1f}" height="{self.y.start:.1f}" preserveAspectRatio="none"'
        self.marks.insert(0, f'<image {size} href="data:image/png;base64,{png}"/>')

    def svg(self, described: str) -> str:
        """The picture, with what it shows in words for those who do not see it."""
        width, height, (xlabel, ylabel) = WIDTH, HEIGHT, self.labels
        inner = f'x="{LEFT}" y="{TOP}" width="{self.x.end:.1f}" height="{self.y.start:.1f}"'
        ticks = []
        for value, label in self.ticks:
            a = LEFT + float(self.x(value))
            ticks.append(f'<path class="grid" d="M{a:.1f} {TOP}V{height - BOTTOM}"/>')
            ticks.append(
                f'<text class="tick" x="{a:.1f}" y="{height - BOTTOM + 13}" '
                f'text-anchor="middle">{html.escape(label)}</text>'
            )
        for value, label in self.y.ticks if ylabel else ():
            b = TOP + float(self.y(value))
            ticks.append(f'<path class="grid" d="M{LEFT} {b:.1f}H{width - RIGHT}"/>')
            ticks.append(
                f'<text class="tick" x="{LEFT - 4}" y="{b + 3.5:.1f}" '
                f'text-anchor="end">{label}</text>'
            )
        middle = LEFT + self.x.end / 2, TOP + self.y.start / 2
        return (
            f'<svg class="picture" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{html.escape(described)}">'
            f"{''.join(ticks)}<svg {inner}>{''.join(self.marks)}</svg>"
            f'<path class="frame" d="M{LEFT} {TOP}V{height - BOTTOM}H{width - RIGHT}"/><text '
            f'class="label" x="{middle[0]:.1f}" y="{height - 5}" '
            f'text-anchor="middle">{html.escape(xlabel)}</text><text class="label" '
            f'transform="translate(11 {middle[1]:.1f}) rotate(-90)" text-anchor="middle">'
            f"{html.escape(ylabel)}</text></svg>"
        )


def figure(name: str, title: str, svg: str, legend: Iterable[tuple[str, str]] = ()) -> str:
    """A picture with its title, and a legend of (look, words)."""
    keys = "".join(
        f'<span class="key"><i class="swatch {look}"></i>{html.escape(words)}</span>'
        for look, words in legend
    )
    caption = f"<figcaption>{html.escape(title)}</figcaption>"
    return (
        f'<figure class="card" id="{name}">{caption}{svg}<div class="legend">{keys}</div></figure>'
    )


def note(words: str) -> str:
    """A line of small print."""
    return f'<p class="foot">{html.escape(words)}</p>'


def decades(*values: Any) -> tuple[float, float]:
    """Powers of ten around all positive numbers among the values."""
    numbers = np.concatenate([np.ravel(np.asarray(each, dtype=np.float64)) for each in values])
    numbers = numbers[np.isfinite(numbers) & (numbers > 0)]
    if not len(numbers):
        return 0.1, 10.0
    low, high = math.floor(math.log10(numbers.min())), math.ceil(math.log10(numbers.max()))
    return 10.0**low, 10.0 ** max(high, low + 1)
