"""What fails the liveness of the edge: a client that gets no answer beside one that does, and a background task that has ended."""

import asyncio
from typing import Any

import pytest

from starling_common.headers import record_headers
from starling_common.kafka.clients import BrokerUnavailable
from starling_ingest.publishing.watermarks import Watermarks
from starling_ingest.wiring import Service


class Healthy:
    """A client without an error."""

    problem: str | None = None
    client_failure: str | None = None


def lapsed(monkeypatch: pytest.MonkeyPatch, seconds: float, *, answers_new: bool) -> Watermarks:
    """Watermarks without an acknowledgement for so long. `answers_new`: the broker acknowledges a new client's."""

    def produce(*_: Any, **__: Any) -> None:
        if not answers_new:
            raise BrokerUnavailable("no acknowledgement")

    watermarks = object.__new__(Watermarks)
    watermarks._brokers, watermarks._key = "127.0.0.1:9", b"k"
    watermarks._headers = record_headers("c", "ingest")
    watermarks._lapsed_at, watermarks.client_failure, watermarks._other_answered = 0.0, None, False
    monkeypatch.setattr("starling_ingest.publishing.watermarks.produce_and_wait", produce)
    monkeypatch.setattr("starling_ingest.publishing.watermarks.monotonic", lambda: seconds)
    watermarks._compare_with_new_client(b"v")
    assert watermarks.client_failure is None  # the broker may have come back after the client's own request
    watermarks._compare_with_new_client(b"v")
    return watermarks


def test_a_client_without_an_acknowledgement_that_a_new_one_gets_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = "no watermark acknowledged for 61 s, but a new client's was: restart this process"
    assert lapsed(monkeypatch, 61.0, answers_new=True).client_failure == expected


@pytest.mark.parametrize(("seconds", "answers_new"), [(61.0, False), (59.0, True)])
def test_a_broker_that_is_away_or_slow_fails_no_client(monkeypatch: pytest.MonkeyPatch, seconds: float, answers_new: bool) -> None:
    assert lapsed(monkeypatch, seconds, answers_new=answers_new).client_failure is None


def test_a_background_task_that_has_ended_fails_the_liveness() -> None:
    async def ends(error: Exception | None) -> None:
        if error is not None:
            raise error

    async def checks(error: Exception | None) -> str | None:
        service = object.__new__(Service)
        service._publisher = service._watermarks = Healthy()  # type: ignore[assignment]
        service._background = [asyncio.ensure_future(ends(None)), asyncio.ensure_future(ends(error))]
        await asyncio.wait(service._background)
        return service._alive()["background"]

    assert asyncio.run(checks(None)) is None
    assert asyncio.run(checks(ValueError("defect"))) == "ValueError('defect')"
