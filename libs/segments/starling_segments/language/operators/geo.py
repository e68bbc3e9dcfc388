"""Pure core: operators on coordinates, `{"lat": degrees, "lon": degrees}`. A value out of range is a missing value."""

from __future__ import annotations

from collections.abc import Mapping
from math import asin, cos, radians, sin, sqrt
from typing import Any
from zoneinfo import ZoneInfo

from starling_segments.language.operators import operands
from starling_segments.language.operators.table import NUMBER_TYPES, OBJECT, Operator, Test, constant_work

EARTH_RADIUS_KM = 6_371.0088
"""Mean radius (IUGG); distances are great circles on this sphere."""

_OBJECT_KIND = frozenset({OBJECT})
_WORK = constant_work(3)


def _coordinates(value: Any) -> tuple[float, float] | None:
    if type(value) is not dict:
        return None
    lat: Any = value.get("lat")
    lon: Any = value.get("lon")
    if type(lat) not in NUMBER_TYPES or type(lon) not in NUMBER_TYPES:
        return None
    return (lat, lon) if -90 <= lat <= 90 and -180 <= lon <= 180 else None


def _distance_km(here: tuple[float, float], child: tuple[float, float]) -> float:
    lat1, lon1, lat2, lon2 = map(radians, (*here, *child))
    half_chord = sin((lat2 - lat1) / 2) ** 2 + cos(lat1) * cos(lat2) * sin((lon2 - lon1) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * asin(min(1.0, sqrt(half_chord)))


def _within_km(circle: dict[str, float], _zone: ZoneInfo) -> Test:
    centre, km = (circle["lat"], circle["lon"]), circle["km"]

    def holds(value: Any, _now: int) -> bool:
        found = _coordinates(value)
        return found is not None and _distance_km(centre, found) <= km

    return holds


def _in_box(box: dict[str, float], _zone: ZoneInfo) -> Test:
    """The edges belong to the box. A box with west > east crosses the date line."""
    north, south, east, west = box["north"], box["south"], box["east"], box["west"]

    def holds(value: Any, _now: int) -> bool:
        found = _coordinates(value)
        if found is None or not south <= found[0] <= north:
            return False
        return west <= found[1] <= east if west <= east else found[1] >= west or found[1] <= east

    return holds


OPERATORS: Mapping[str, Operator] = {
    "within_km": Operator(_OBJECT_KIND, operands.CIRCLE, _within_km, work=_WORK),
    "in_box": Operator(_OBJECT_KIND, operands.BOX, _in_box, work=_WORK),
}
