"""Pure core: panes, in which a window keeps the matches that are too many to be kept one by one, and how much room they take.

A pane is (time of its last match, what it keeps); they stand ascending, and all of a pane leaves with its last match.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

MAX_BYTES = 192 << 10
"""How many bytes a leaf's panes may take. One user can have hundreds of leaves, and a state is stored as a whole."""
TARGET_BYTES = MAX_BYTES * 7 // 8
"""To how many bytes they are brought, so that it is not done at each match anew."""
MAX_PANES = 1_024
"""How many panes there may be. A window has 256 of them, or a few more."""
Panes: TypeAlias = list[Any]

_SMALL = MAX_BYTES // 256
_DOUBLINGS = 40  # from milliseconds to more than there is time
_encode = msgspec.msgpack.Encoder().encode


def spill(panes: Panes, time: int, pane_ms: int, grown: Callable[[Any], Any]) -> Any:
    """Put a match into its pane; `grown(what the pane keeps, or None)` is what it keeps then, and is returned."""
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
    """As `thin_panes`, of sketches, after one has grown: as long as all are small there is no need to look."""
    if len(grown) > _SMALL:
        thin_panes(panes, pane_ms, put_together)


def thin_panes(panes: Panes, pane_ms: int, put_together: Callable[[Any, Any], Any], most: int = MAX_PANES) -> None:
    """Put neighbours together, twice as wide each time, where there are more than `most` panes or they take too much room.

    Whatever is in a wider pane leaves later: with full sketches, of 4 to 7 KB, by a sixteenth of the window at most.
    """
    if len(panes) <= most and encoded_size(panes) <= MAX_BYTES:
        return
    for i in range(1, _DOUBLINGS):
        panes[:] = _joined(panes, pane_ms << i, put_together)
        if len(panes) <= most * 7 // 8 and encoded_size(panes) <= TARGET_BYTES:
            return


def merged(older: Any, younger: Any) -> Any:
    """One of two that are alike."""
    older.merge(younger)
    return older


def encoded_size(kept: Any) -> int:
    """How many bytes it takes in a state."""
    return len(_encode(kept))


def _joined(panes: Panes, width_ms: int, put_together: Callable[[Any, Any], Any]) -> Panes:
    found: Panes = []
    for last, kept in panes:
        if found and found[-1][0] // width_ms == last // width_ms:
            found[-1] = (last, put_together(found[-1][1], kept))
        else:
            found.append((last, kept))
    return found
