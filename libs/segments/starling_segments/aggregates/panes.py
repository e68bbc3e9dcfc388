"""Pure core: panes, which contain the matches of a window that are too many to be stored one by one, and their size limits.

A pane is (time of its last match, content). Panes are ascending, and a pane leaves as a whole, with its last match.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

MAX_BYTES = 192 << 10
"""Maximum size of the panes of a leaf node. A user can have hundreds of leaf nodes, and a state is stored as a whole."""
TARGET_BYTES = MAX_BYTES * 7 // 8
"""Size to which panes are reduced, so that the next matches need no reduction."""
MAX_PANES = 1_024
"""Maximum number of panes. A window has 256, or a few more."""
Panes: TypeAlias = list[Any]

_SMALL = MAX_BYTES // 256
_DOUBLINGS = 40  # from milliseconds to beyond all times
_encode = msgspec.msgpack.Encoder().encode


def spill(panes: Panes, time: int, pane_ms: int, grown: Callable[[Any], Any]) -> Any:
    """Add a match to its pane; `grown(content or None)` returns the new content, which is returned."""
    number = time // pane_ms
    place = bisect_right(panes, number, key=lambda pane: pane[0] // pane_ms)
    if place and panes[place - 1][0] // pane_ms == number:
        last, kept = panes[place - 1]
        kept = grown(kept)
        panes[place - 1] = (max(last, time), kept)
    else:
        kept = grown(None)
        panes.insert(place, (time, kept))
    return kept


def thin_sketches(panes: Panes, pane_ms: int, grown: bytes, put_together: Callable[[Any, Any], Any]) -> None:
    """Run `thin_panes` for sketches, after one has grown; skipped while it is small."""
    if len(grown) > _SMALL:
        thin_panes(panes, pane_ms, put_together)


def thin_panes(panes: Panes, pane_ms: int, put_together: Callable[[Any, Any], Any], most: int = MAX_PANES) -> None:
    """Merge neighbours, twice as wide each time, while there are more than `most` panes or they are too large.

    Matches in a wider pane leave later: with full sketches, of 4 to 7 KB, by a sixteenth of the window at most.
    """
    if len(panes) <= most and encoded_size(panes) <= MAX_BYTES:
        return
    for i in range(1, _DOUBLINGS):
        panes[:] = _joined(panes, pane_ms << i, put_together)
        if len(panes) <= most * 7 // 8 and encoded_size(panes) <= TARGET_BYTES:
            return


def merged(older: Any, younger: Any) -> Any:
    """Merge two accumulators of one type."""
    older.merge(younger)
    return older


def encoded_size(kept: Any) -> int:
    """Return the encoded size in bytes."""
    return len(_encode(kept))


def _joined(panes: Panes, width_ms: int, put_together: Callable[[Any, Any], Any]) -> Panes:
    found: Panes = []
    for last, kept in panes:
        if found and found[-1][0] // width_ms == last // width_ms:
            found[-1] = (last, put_together(found[-1][1], kept))
        else:
            found.append((last, kept))
    return found
