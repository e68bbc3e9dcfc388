"""Pure core: merges the matches of two accumulators of sliding windows: of matches that arrived earlier and later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from starling_segments.aggregates.lifetime import EXACT
from starling_segments.aggregates.panes import MAX_BYTES, Panes, encoded_size, merged, spill
from starling_segments.aggregates.values import is_large

Grown = Callable[[Any, int, Any], Any]
"""(content of a pane, None for a new one; time of a match; its payload) -> the content with the match."""


class Matches(Protocol):
    """The newest matches one by one, ascending, with their payloads; the older ones in panes."""

    times: list[int]
    payloads: list[Any]
    panes: Panes


def interleaved(
    times: list[int], payloads: list[Any], later_times: list[int], later_payloads: list[Any]
) -> tuple[list[int], list[Any], list[bool]]:
    """Return the times and payloads of both sides by time, then by arrival, and whether each is of the later side."""
    all_times, all_payloads = [*times, *later_times], [*payloads, *later_payloads]
    n = len(times)
    order = sorted(range(len(all_times)), key=all_times.__getitem__)  # stable
    return [all_times[i] for i in order], [all_payloads[i] for i in order], [i >= n for i in order]


def merge_matches(own: Matches, other: Matches, pane_ms: int, grown: Grown, *, bulky: bool) -> bool:
    """Merge the matches of `other`, which arrived later, into `own`; return whether a pane has changed.

    A pane takes up its matches in the order of arrival: first those of `own`, then the pane of `other`, then the matches of
    `other` that do not fit any more. `bulky`: payloads can be large.
    """
    times, payloads, is_later = interleaved(own.times, own.payloads, other.times, other.payloads)
    gone = max(0, len(times) - EXACT)
    if bulky and any(map(is_large, payloads)):
        while gone < len(times) - 1 and encoded_size(payloads[gone:]) > MAX_BYTES:
            gone += 1
    spilled = list(zip(times[:gone], payloads[:gone], is_later[:gone], strict=True))
    own.times, own.payloads = times[gone:], payloads[gone:]
    for time, payload, later in spilled:
        if not later:
            _spill_match(own.panes, time, payload, pane_ms, grown)
    for last, content in other.panes:
        spill_pane(own.panes, last, content, pane_ms)
    for time, payload, later in spilled:
        if later:
            _spill_match(own.panes, time, payload, pane_ms, grown)
    return bool(spilled or other.panes)


def spill_pane(panes: Panes, last: int, content: Any, pane_ms: int) -> None:
    """Merge an accumulator into its pane. `last`: the time of its last match."""
    spill(panes, last, pane_ms, lambda kept: content if kept is None else merged(kept, content))


def _spill_match(panes: Panes, time: int, payload: Any, pane_ms: int, grown: Grown) -> None:
    spill(panes, time, pane_ms, lambda kept: grown(kept, time, payload))
