"""Pure core: Semantic Versioning 2.0.0 precedence."""

from __future__ import annotations

import re
from functools import lru_cache

_IDENTIFIER = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
SEMVER_PATTERN = (
    r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    rf"(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?$"
)
_SHAPE = re.compile(SEMVER_PATTERN[:-1] + r"\Z")
_MAX_CHARACTERS = 256

Precedence = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]


@lru_cache(maxsize=4096)
def precedence(text: str) -> Precedence | None:
    """Return a sort key with the precedence of a version (build metadata is ignored); None if it is not a version."""
    match = _SHAPE.match(text) if len(text) <= _MAX_CHARACTERS else None
    if match is None:
        return None
    major, minor, patch, pre_release = match.groups()
    identifiers = tuple(_identifier(part) for part in pre_release.split(".")) if pre_release else ()
    return int(major), int(minor), int(patch), pre_release is None, identifiers


def _identifier(part: str) -> tuple[bool, int, str]:
    """Return a sort key: numbers before words, by value; words by ASCII."""
    return (False, int(part), "") if part.isdigit() else (True, 0, part)
