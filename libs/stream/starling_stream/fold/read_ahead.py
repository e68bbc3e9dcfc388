"""Pure core: what was read ahead of one input of a task, of which only the order of the records is kept."""

from collections.abc import Sequence
from typing import Final

from starling_common.time.instants import LONGEST_APPEND_MS
from starling_stream.fold.arrivals import Horizon, arrival_key

_BLOCK_RECORDS: Final = 250
"""A block is much shorter than the records that wait for one another, so that its last record is read while its first one waits."""

_HEADER_BYTES: Final = 5
"""The wire header of a value, before the first field."""


class LogAhead:
    """The least key of each block of a topic's records, from an offset up to `until`, the next one to read."""

    def __init__(self, start: int) -> None:
        self.until = start
        self._starts: list[int] = []
        self._lows: list[int] = []
        self._appended: list[int] = []
        """For each block the timestamp of its first record."""
        self._last_appended_ms = 0

    def add(self, records: Sequence[tuple[int, int, bytes]]) -> None:
        """Append the next records: offset, timestamp in milliseconds, and value."""
        for start in range(0, len(records), _BLOCK_RECORDS):
            block = records[start : start + _BLOCK_RECORDS]
            self._starts.append(self.until)
            self._lows.append(min([_least_key(value, appended_ms) for _, appended_ms, value in block]))
            self._appended.append(block[0][1])
            self._last_appended_ms = max([self._last_appended_ms, *[appended_ms for _, appended_ms, _ in block]])
            self.until = block[-1][0] + 1

    def is_far(self, margin_ms: int) -> bool:
        """Return whether the records are read further ahead than their order needs, by that margin."""
        return bool(self._appended) and self._last_appended_ms - self._appended[0] > LONGEST_APPEND_MS + margin_ms

    def horizon(self, reached: int, end: int, bound: int) -> Horizon:
        """Return the horizon of a task that has received the records before `reached`. Earlier blocks are dropped.

        `bound`: no record at the offset `end` or later has a lesser key.
        """
        passed = 0
        while passed + 1 < len(self._starts) and self._starts[passed + 1] <= reached:
            passed += 1
        if passed:
            self._starts, self._lows, self._appended = self._starts[passed:], self._lows[passed:], self._appended[passed:]
        # Timestamps are those of the appends, or earlier ones. A record that is appended after the longest time has a key after its
        # append.
        after = (self._last_appended_ms - LONGEST_APPEND_MS) * 1000
        if self.until >= end:
            after = max(after, bound)
        floors, least = [0] * len(self._lows), after
        for index in range(len(self._lows) - 1, -1, -1):
            least = min(least, self._lows[index])
            floors[index] = least
        return Horizon(tuple(self._starts), floors, self.until, after)


def _least_key(value: bytes, appended_ms: int) -> int:
    """Return a key that is at most that of the record, whose first field is `received_at`; an unreadable one has its timestamp."""
    return min(arrival_key(_leading_long(value), appended_ms), appended_ms * 1000)


def _leading_long(value: bytes) -> int:
    """Return the long in Avro's encoding after the wire header; any number if there is none."""
    bits = shift = 0
    for byte in value[_HEADER_BYTES : _HEADER_BYTES + 9]:
        bits |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return (bits >> 1) ^ -(bits & 1)
