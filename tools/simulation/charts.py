"""Pure core: lines over time as SVG, one panel above the other."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 760
_PANEL, _LEFT, _RIGHT, _TOP, _GAP = 150, 84, 16, 34, 46
_COLOURS: Final = ("#1565c0", "#c62828", "#2e7d32", "#6a1b9a")
_TICKS: Final = 4


class Panel(NamedTuple):
    """Lines with one scale. `step`: s between two values of a line; the first is of the time 0."""

    title: str
    step: float
    lines: Mapping[str, Sequence[float]]


def chart(title: str, panels: Sequence[Panel], marks: Mapping[str, float]) -> str:
    """Return the panels as one SVG with a common time axis in s. `marks`: vertical lines by name. A line has two values or more."""
    end = max(panel.step * (len(values) - 1) for panel in panels for values in panel.lines.values())
    height = _TOP + len(panels) * (_PANEL + _GAP)
    parts = [f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>', _text(_LEFT, 16, title, "start", "bold")]
    for number, panel in enumerate(panels):
        parts += _panel(panel, _TOP + 14 + number * (_PANEL + _GAP), end, marks)
    parts.append(f"<title>{escape(title)}</title>")
    shape = f'viewBox="0 0 {WIDTH} {height}" role="img" font-family="sans-serif" font-size="11"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {shape}>\n' + "\n".join(parts) + "\n</svg>\n"


def _panel(panel: Panel, top: float, end: float, marks: Mapping[str, float]) -> list[str]:
    step = _round_step(max(1.0, *(max(values) for values in panel.lines.values())))
    most, bottom = step * _TICKS, top + _PANEL
    parts = [_text(_LEFT, top - 4, panel.title, "start")]
    for tick in range(_TICKS + 1):
        y = bottom - _PANEL * tick / _TICKS
        parts.append(f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e0e0e0"/>')
        parts.append(_text(_LEFT - 6, y + 4, f"{step * tick:,.0f}", "end"))
    second = 0.0
    while second <= end:
        parts.append(_text(_x(second, end), bottom + 14, f"{second:,.0f} s", "middle"))
        second += _round_step(end)
    for name, time in marks.items():
        x = _x(time, end)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" stroke="#757575" stroke-dasharray="4 3"/>')
        parts.append(_text(x + 3, top + 11, name, "start"))
    for number, (name, values) in enumerate(panel.lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(
            f"{_x(place * panel.step, end):.1f},{bottom - _PANEL * value / most:.1f}" for place, value in enumerate(values)
        )
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>')
        parts.append(
            f'<text x="{WIDTH - _RIGHT - 70 * number}" y="{top - 4}" text-anchor="end" fill="{colour}">{escape(name)}</text>'
        )
    return parts


def _round_step(most: float) -> float:
    """Return the least of 1, 2, 2.5, 5 and their multiples by ten of which `_TICKS` reach a value."""
    power = 10.0 ** math.floor(math.log10(most / _TICKS))
    return next(step for step in (power, 2 * power, 2.5 * power, 5 * power, 10 * power) if step * _TICKS >= most)


def _x(time: float, end: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * time / end


def _text(x: float, y: float, text: str, anchor: str, weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="#212121">{escape(text)}</text>'
