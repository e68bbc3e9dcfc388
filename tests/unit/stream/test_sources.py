"""The live sources: a watermark is in force until its lease ends or its source retires."""

from time import monotonic
from typing import Any, cast

import pytest

from starling_common.kafka import source_watermarks
from starling_common.kafka.source_watermarks import LONGEST_LEASE_MS
from starling_common.time.instants import wall_clock_micros, wall_clock_ms
from starling_common.wire import Codec
from starling_stream.worker import sources as module
from starling_stream.worker.sources import SourceFollower, SourceFollowerDependencies, Sources

CODEC = Codec("SourceWatermark", 1, lambda _id: "")
NOW = wall_clock_micros() - 3_600_000_000


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module may have been imported long before its tests run."""
    monkeypatch.setattr(source_watermarks, "wall_clock_ms", lambda: NOW // 1000)


class Written:
    """A record of the topic as the client returns it. `low`: microseconds after `NOW`; None: a tombstone."""

    def __init__(self, key: bytes, low: int | None, age_ms: int = 0, lease_ms: int = 10_000) -> None:
        record = {"low": NOW + (low or 0), "edge": key.decode(), "started_at": 0, "lease_ms": lease_ms}
        self._key, self._value = key, None if low is None else CODEC.encode(record)
        self._at_ms = wall_clock_ms() - age_ms

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def offset(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return 1, self._at_ms


def _after(*written: Any, is_old: bool = False) -> Sources:
    sources = Sources(CODEC)
    for one in written:
        sources.take(one, is_old=is_old)
    return sources


def test_the_slowest_source_gives_the_bound_until_it_retires() -> None:
    sources = _after(Written(b"a", 10), Written(b"b", 5), Written(b"b", 7))
    assert sources.low() == NOW + 7
    sources.take(Written(b"b", None), is_old=False)  # type: ignore[arg-type]
    assert sources.low() == NOW + 10
    sources.take(Written(b"a", None), is_old=False)  # type: ignore[arg-type]
    assert sources.low() is None


def test_a_source_is_dropped_when_its_own_lease_has_ended() -> None:
    sources = _after(Written(b"a", 10, lease_ms=20_000), Written(b"b", 5))
    sources.expire(monotonic() + 9)
    assert sources.low() == NOW + 5
    sources.expire(monotonic() + 11)
    assert sources.low() == NOW + 10
    assert set(sources.behind_seconds()) == {"a"}


def test_a_watermark_from_before_the_start_is_as_old_as_its_record() -> None:
    sources = _after(Written(b"a", 10, age_ms=11_000), Written(b"b", 5, age_ms=5_000), is_old=True)
    sources.expire(monotonic())
    assert sources.low() == NOW + 5


def test_a_clock_difference_does_not_end_the_lease_of_a_live_source() -> None:
    sources = _after(Written(b"a", 10, age_ms=60_000))
    sources.expire(monotonic())
    assert sources.low() == NOW + 10


def test_bytes_that_are_no_watermark_change_nothing() -> None:
    broken = Written(b"a", 5)
    broken._value = b"broken"
    assert _after(Written(b"a", 10), broken).low() == NOW + 10


def test_a_watermark_that_no_process_publishes_stops_no_record() -> None:
    hour = 3_600_000_000
    good, early, late = Written(b"a", 10), Written(b"early", -hour), Written(b"late", hour)
    assert _after(good, early, Written(b"b", 5, lease_ms=-1), Written(b"b", 5, lease_ms=LONGEST_LEASE_MS + 1)).low() == NOW + 10
    assert _after(late).low() is None


class Asked:
    """The client that is asked for the ends of the topics. While others write, each answer is greater than the last."""

    def __init__(self) -> None:
        self.end = 10

    def ends(self, _consumer: Any, places: Any, *_rest: Any) -> dict[Any, int]:
        self.end += 10
        return dict.fromkeys(places, self.end)


def test_a_lease_ends_although_other_sources_write_at_every_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, wake = Asked(), SourceFollowerDependencies(list, lambda: None, lambda _cause: None)
    monkeypatch.setattr(module, "offsets", asked.ends)
    follower = SourceFollower("127.0.0.1:1", CODEC, ["t"], 50, wake)
    follower.sources = _after(Written(b"gone", 5, lease_ms=0), Written(b"live", 10))
    for _ in range(3):
        follower._requested_at = 0.0
        follower._position = asked.end  # behind the present end, which the next request finds
        follower._expire()
        follower._bound(cast("Any", None))
    assert follower.sources.low() == NOW + 10
