"""Pure core: property values as payloads of measures."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

from starling_segments.aggregates.panes import encoded_size
from starling_segments.language.operators.table import NUMBER_TYPES

MAX_MAGNITUDE = 1e290
"""Larger numbers are ignored: a sum of many could exceed a double."""
SMALL_BYTES = 512
"""Values up to this size need no size check."""
_LONGEST_KEPT = 64
_LEAST_KEPT, _MOST_KEPT = -(2**63), 2**64 - 1


def amount(value: Any) -> float | None:
    """Return a finite number as a float; None for anything else."""
    if type(value) in NUMBER_TYPES and -MAX_MAGNITUDE <= value <= MAX_MAGNITUDE:
        return float(value)
    return None


def distinct_key(value: Any) -> str | None:
    """Return a text that is equal for equal values only: `1` and `1.0` are one value, `1`, `"1"` and `true` are three."""
    if type(value) is str:
        text = "t" + value
    elif value is None:
        return None
    else:
        text = "j" + json.dumps(_normal(value), sort_keys=True, separators=(",", ":"))
    if len(text) <= _LONGEST_KEPT:
        return text
    return "h" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def is_large(value: Any) -> bool:
    """Return whether the value needs a size check: 256 values that do not take 128 KB, or a little more."""
    kind = type(value)
    if kind is str:
        return len(value) > (SMALL_BYTES if value.isascii() else SMALL_BYTES // 4)
    return (kind is list or kind is dict) and encoded_size(value) > SMALL_BYTES


def _normal(value: Any) -> Any:
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is list:
        return [_normal(item) for item in value]
    if type(value) is dict:
        return {key: _normal(item) for key, item in value.items()}
    return value


def storable(value: Any) -> Any:
    """Return the value in a form that can be stored: an integer beyond 64 bits as a float."""
    kind = type(value)
    if kind is str or kind is float or kind is bool or value is None:
        return value
    if kind is int:
        return value if _LEAST_KEPT <= value <= _MOST_KEPT else _as_float(value)
    if kind is list:
        return [storable(item) for item in value]
    return {key: storable(item) for key, item in value.items()} if kind is dict else value


def _as_float(value: int) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None
