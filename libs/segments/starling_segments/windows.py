"""Pure core: the window fields of a leaf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starling_segments.faults import Place
from starling_segments.operators import operands

WINDOW_FIELDS = frozenset({"within"})
LATER_WINDOW_FIELDS = frozenset({"between_ago", "after", "before", "calendar"})
_FORMS = ({"within"}, {"between_ago"}, {"after", "before"}, {"calendar"})


def read_window(node: Mapping[str, Any], place: Place) -> int | None:
    """The length of `within` in ms; None without one, or after saying what is wrong with it."""
    if sum(1 for form in _FORMS if form & node.keys()) > 1:
        place.refuse("bad_window", "a leaf has one window", "one of within, between_ago, after and before, calendar")
    if "within" not in node:
        return None
    length: int | None = operands.DURATION.read(node["within"], place.at("within"))
    return length
