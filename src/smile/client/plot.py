"""Plots of knowledge as SVG: for each series a line of the current values, within the band of what is still possible.

The band narrows to the line where values are final. It reaches the edge of the plot where there is no bound.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, isfinite, log10

from smile.client.value_text import float_text

WIDTH, HEIGHT = 680, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 30, 34
COLORS = ("#1f6feb", "#d1571b", "#2a8a3e", "#8b3fc7", "#b8860b", "#0f8b8d")
LABELS_MAX = 5
BOUNDS_SPAN = 1.0
"""The y-axis has the values, and bounds that are not further from them than this many times their range."""
NEGLIGIBLE = 1e-290
"""Computing with smaller numbers loses their digits."""


@dataclass(frozen=True, slots=True)
class Point:
    """What is known of a value at `x`. None is no value, or no bound."""

    x: float
    value: float | None
    low: float | None
    high: float | None
    final: bool


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values from `low` to `high` to pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        clipped = min(max(value, self.low), self.high)
        return self.start + (clipped - self.low) / (self.high - self.low) * (self.end - self.start)


def plot_svg(title: str, series: Mapping[str, Sequence[Point]], x_text: Callable[[float], str]) -> str:
    """The points of a series are in the order of their x. `x_text` is the label of a position on the x-axis."""
    points = [point for of_series in series.values() for point in of_series]
    x = Scale(*_x_range(points), LEFT, WIDTH - RIGHT)
    y = Scale(*_y_range(points), HEIGHT - BOTTOM, TOP)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="11">'
    )
    parts = [
        head,
        f'<text x="{LEFT}" y="14" font-weight="bold" fill="currentColor">{escape(title)}</text>',
        *_axes(x, y, points, x_text),
    ]
    for number, (name, of_series) in enumerate(series.items()):
        color = COLORS[number % len(COLORS)]
        parts += _series(of_series, x, y, color)
        if len(series) > 1:
            at = LEFT + number * (WIDTH - LEFT - RIGHT) / len(series)
            parts.append(f'<text x="{at:.0f}" y="{TOP - 3}" fill="{color}">{escape(name)}</text>')
    return "".join([*parts, "</svg>"])


def _x_range(points: Sequence[Point]) -> tuple[float, float]:
    xs = [point.x for point in points] or [0.0]
    reach = max(1.0, abs(xs[0]) / 100)
    return (min(xs), max(xs)) if min(xs) < max(xs) else (xs[0] - reach, xs[0] + reach)


def _y_range(points: Iterable[Point]) -> tuple[float, float]:
    """Values, and bounds near them: a bound such as the greatest int would make everything else a line."""
    points = list(points)
    values = [p.value for p in points if p.value is not None and isfinite(p.value)]
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    reach = BOUNDS_SPAN * _spread(low, high)
    bounds = [b for p in points for b in (p.low, p.high) if b is not None and low - reach <= b <= high + reach]
    low, high = min([low, *bounds]), max([high, *bounds])
    margin = 0.08 * _spread(low, high)
    return low - margin, high + margin


def _spread(low: float, high: float) -> float:
    """The distance, or if the two are as good as equal one that suits their size."""
    size = max(abs(low), abs(high))
    if high - low > 1e-9 * size and size > NEGLIGIBLE:
        return high - low
    return size if size > NEGLIGIBLE else 1.0


def _axes(x: Scale, y: Scale, points: Sequence[Point], x_text: Callable[[float], str]) -> Iterable[str]:
    for value in _round_values(y.low, y.high):
        yield f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="currentColor" stroke-opacity=".15"/>'
        yield _label(LEFT - 6, y(value) + 4, "end", float_text(value))
    positions = sorted({point.x for point in points})
    step = max(1, -(-len(positions) // LABELS_MAX))
    for position in positions[::step]:
        yield _label(x(position), HEIGHT - BOTTOM + 18, "middle", x_text(position))


def _label(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor">{escape(text)}</text>'


def _round_values(low: float, high: float) -> Iterable[float]:
    """Up to five values between low and high, one, two or five times a power of ten apart."""
    rough = (high - low) / LABELS_MAX
    power = 10.0 ** floor(log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = -(-low // step)
    return [n * step for n in range(int(first), int(high // step) + 1)]


def _series(points: Sequence[Point], x: Scale, y: Scale, color: str) -> Iterable[str]:
    shown = [(x(p.x), y(p.value), p) for p in points if p.value is not None]
    tops = [f"{x(p.x):.1f} {y(y.high if p.high is None else p.high):.1f}" for p in points]
    bottoms = [f"{x(p.x):.1f} {y(y.low if p.low is None else p.low):.1f}" for p in points]
    if len(points) > 1:
        yield f'<path d="M{"L".join([*tops, *reversed(bottoms)])}Z" fill="{color}" fill-opacity=".14"/>'
    for top, bottom, point in zip(tops, bottoms, points, strict=True):
        if not point.final:
            yield f'<path d="M{top}L{bottom}" stroke="{color}" stroke-opacity=".35" stroke-width="5"/>'
    if shown:
        line = "L".join(f"{at:.1f} {height:.1f}" for at, height, _ in shown)
        yield f'<path d="M{line}" fill="none" stroke="{color}" stroke-width="1.5"/>'
    for at, height, point in shown:
        fill = color if point.final else "#fff"
        yield f'<circle cx="{at:.1f}" cy="{height:.1f}" r="3" stroke="{color}" fill="{fill}"/>'
