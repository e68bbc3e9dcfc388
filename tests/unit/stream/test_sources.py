"""The live sources: a watermark is in force until its lease ends or its source retires."""

from time import monotonic
from typing import Any

from starling_common.time.instants import wall_clock_ms
from starling_common.wire import Codec
from starling_stream.worker.sources import Sources

CODEC = Codec("SourceWatermark", 1, lambda _id: "")


class Written:
    """A record of the topic as the client returns it."""

    def __init__(self, key: bytes, low: int | None, age_ms: int = 0, lease_ms: int = 10_000) -> None:
        record = {"low": low, "edge": key.decode(), "started_at": 0, "lease_ms": lease_ms}
        self._key, self._value = key, None if low is None else CODEC.encode(record)
        self._at_ms = wall_clock_ms() - age_ms

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, self._at_ms


def _after(*written: Any, is_old: bool = False) -> Sources:
    sources = Sources(CODEC)
    for one in written:
        sources.take(one, is_old=is_old)
    return sources


def test_the_slowest_source_gives_the_bound_until_it_retires() -> None:
    sources = _after(Written(b"a", 10), Written(b"b", 5), Written(b"b", 7))
    assert sources.low() == 7
    sources.take(Written(b"b", None), is_old=False)  # type: ignore[arg-type]
    assert sources.low() == 10
    sources.take(Written(b"a", None), is_old=False)  # type: ignore[arg-type]
    assert sources.low() is None


def test_a_source_is_dropped_when_its_own_lease_has_ended() -> None:
    sources = _after(Written(b"a", 10, lease_ms=20_000), Written(b"b", 5))
    sources.expire(monotonic() + 9)
    assert sources.low() == 5
    sources.expire(monotonic() + 11)
    assert sources.low() == 10
    assert set(sources.behind_seconds()) == {"a"}


def test_a_watermark_from_before_the_start_is_as_old_as_its_record() -> None:
    sources = _after(Written(b"a", 10, age_ms=11_000), Written(b"b", 5, age_ms=5_000), is_old=True)
    sources.expire(monotonic())
    assert sources.low() == 5


def test_a_clock_difference_does_not_end_the_lease_of_a_live_source() -> None:
    sources = _after(Written(b"a", 10, age_ms=60_000))
    sources.expire(monotonic())
    assert sources.low() == 10


def test_bytes_that_are_no_watermark_change_nothing() -> None:
    broken = Written(b"a", 5)
    broken._value = b"broken"
    assert _after(Written(b"a", 10), broken).low() == 10
