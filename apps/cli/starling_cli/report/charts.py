"""Pure core: numbers -> SVG. No chart library: the page is one file that loads nothing."""

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 760, 200
_LEFT, _TOP, _BAND, _GAP = 56, 8, 112, 12
"""Pixels: left margin for the axis labels, top margin, height of the curve, gap between the curve and the bars."""


def curve_with_bars(days: Sequence[str], sizes: Sequence[int], ups: Sequence[int], downs: Sequence[int]) -> str:
    """Return a curve of sizes above bars of entries (upwards) and exits (downwards), each with its own scale.

    Shape: one value a day in all four, at least one day.
    """
    bars_top = _TOP + _BAND + _GAP
    middle, reach = bars_top + 28, 28
    most, widest = max(*sizes, 1), max(*ups, *downs, 1)
    curve = " ".join(
        f"{x:.1f},{_TOP + _BAND - size * _BAND / most:.1f}" for x, size in zip(_x_positions(len(days)), sizes, strict=True)
    )
    corner = f"{_x_positions(len(days))[-1]:.1f},{_TOP + _BAND}"
    parts = [
        f'<polygon class="area" points="{_LEFT},{_TOP + _BAND} {curve} {corner}"/>',
        f'<polyline class="size" points="{curve}"/>',
        f'<path class="entries" d="{_bars(ups, middle, -reach / widest)}"/>',
        f'<path class="exits" d="{_bars(downs, middle, reach / widest)}"/>',
        f'<line class="axis" x1="{_LEFT}" x2="{WIDTH}" y1="{middle}" y2="{middle}"/>',
        _label(_LEFT - 6, _TOP + 10, f"{most:,}", "end"),
        _label(_LEFT - 6, _TOP + _BAND, "0", "end"),
        _label(_LEFT - 6, middle - reach + 8, f"+{widest:,}", "end"),
        _label(_LEFT - 6, middle + reach, f"-{widest:,}", "end"),
        _label(_LEFT, HEIGHT - 2, days[0], "start"),
        _label(WIDTH, HEIGHT - 2, days[-1], "end"),
    ]
    title = f"{sizes[-1]:,} on {days[-1]}; at most {max(sizes):,}"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{escape(title)}</title>{"".join(parts)}</svg>'


def _x_positions(count: int) -> list[float]:
    step = (WIDTH - _LEFT) / max(1, count - 1)
    return [_LEFT + number * step for number in range(count)]


def _bars(values: Sequence[int], middle: float, scale: float) -> str:
    return "".join(
        f"M{x:.1f} {middle}v{value * scale:.1f}" for x, value in zip(_x_positions(len(values)), values, strict=True) if value
    )


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
