"""The low watermark of a publisher: it waits for records that a slow broker may still append."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from starling_common.headers import Headers
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.source_watermarks import LONGEST_LEASE_MS
from starling_common.time.instants import LONGEST_APPEND_MS, wall_clock_micros
from starling_common.wire import Codec
from starling_ingest.publishing import publish
from starling_ingest.publishing.intake import Outgoing
from starling_ingest.publishing.publish import Publisher
from starling_ingest.publishing.watermarks import plausible_low

HEADERS: Headers = []
CODEC = Codec("SourceWatermark", 1, lambda _id: "")
START = 1_700_000_000_000_000


class Silent:
    """A producer without a broker."""

    def __init__(self) -> None:
        self.reports: list[Any] = []

    def produce(self, *given: Any) -> None:
        self.reports.append(given[4])

    def poll(self, _seconds: float) -> int:
        return 0


@pytest.mark.parametrize(("code", "waits"), [(KafkaError._MSG_TIMED_OUT, True), (KafkaError.MSG_SIZE_TOO_LARGE, False)])
def test_the_watermark_waits_for_a_record_that_may_still_be_appended(
    monkeypatch: pytest.MonkeyPatch, code: int, *, waits: bool
) -> None:
    now = SimpleNamespace(micros=START)
    monkeypatch.setattr(publish, "wall_clock_micros", lambda: now.micros)

    async def scenario() -> None:
        publisher = Publisher("127.0.0.1:1", ack_timeout_ms=8_000, high_water_records=10, high_water_bytes=10_000)
        silent = Silent()
        publisher._producer = cast("Any", silent)
        failing = publisher.publish("w", [Outgoing("t", b"k", b"v", 0)], HEADERS, START)
        publisher.publish("w", [Outgoing("t", b"k", b"v", 0)], HEADERS, START + 1)
        assert publisher.oldest() == START
        silent.reports[0](KafkaError(code), None)
        with pytest.raises(BrokerUnavailable):
            await failing
        assert publisher.oldest() == (START if waits else START + 1)
        now.micros += (LONGEST_APPEND_MS + 500) * 1_000
        assert publisher.oldest() == START + 1
        silent.reports[1](None, None)
        assert publisher.oldest() is None

    asyncio.run(scenario())


@pytest.mark.parametrize(("low_seconds", "lease_ms"), [(-3_600, 1_000), (3_600, 1_000), (0, -1), (0, LONGEST_LEASE_MS + 1)])
def test_a_process_does_not_follow_a_watermark_that_no_process_publishes(low_seconds: int, lease_ms: int) -> None:
    now = wall_clock_micros()
    record = {"low": now + low_seconds * 1_000_000, "edge": "other", "started_at": now, "lease_ms": lease_ms}
    assert plausible_low(CODEC, CODEC.encode(record)) == 0
    assert plausible_low(CODEC, CODEC.encode(record | {"low": now, "lease_ms": 13_000})) == now


def test_a_process_joins_beside_bytes_that_are_no_watermark() -> None:
    assert plausible_low(CODEC, b"broken") == 0


def test_a_request_ends_the_pause_of_an_idle_publisher() -> None:
    async def scenario() -> None:
        publisher = Publisher("127.0.0.1:1", ack_timeout_ms=8_000, high_water_records=10, high_water_bytes=10_000)
        publisher._producer = cast("Any", Silent())
        pause = asyncio.create_task(publisher.begun(60))
        await asyncio.sleep(0)
        assert not pause.done()
        publisher.publish("w", [Outgoing("t", b"k", b"v", 0)], HEADERS, START)
        publisher.publish("w", [Outgoing("t", b"k", b"v", 0)], HEADERS, START + 1)
        await asyncio.wait_for(pause, 30)
        await publisher.begun(0.001)

    asyncio.run(scenario())


def test_a_publisher_is_finished_when_the_last_request_is_acknowledged() -> None:
    async def scenario() -> None:
        publisher = Publisher("127.0.0.1:1", ack_timeout_ms=8_000, high_water_records=10, high_water_bytes=10_000)
        silent = Silent()
        publisher._producer = cast("Any", silent)
        await publisher.finished(60)
        for number in range(2):
            publisher.publish("w", [Outgoing("t", b"k", b"v", 0)], HEADERS, START + number)
        await publisher.finished(0.001)
        waiting = asyncio.create_task(publisher.finished(60))
        await asyncio.sleep(0)
        silent.reports[1](None, None)
        await asyncio.sleep(0)
        assert not waiting.done()
        silent.reports[0](None, None)
        await asyncio.wait_for(waiting, 30)

    asyncio.run(scenario())
