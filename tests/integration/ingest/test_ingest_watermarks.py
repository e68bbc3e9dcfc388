"""The low watermarks of an edge process, on a real broker."""

import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from starling_common.kafka.source_watermarks import recent_watermarks
from starling_common.kafka.topics import WATERMARKS
from starling_common.wire import Registry
from tests.conftest import Stack
from tests.integration.ingest.edge_process import EdgeProcess, records, running

TRACK = {"userId": "u", "event": "E"}


def _own(stack: Stack, edge: EdgeProcess) -> list[dict[str, Any] | None]:
    """The watermarks of that process, in order; None for the final one."""
    codec = Registry(stack.registry_url).codec(WATERMARKS, "SourceWatermark")
    name = f"edge-{edge.url.rpartition(':')[2]}/"
    values = [
        message.value()
        for message in recent_watermarks(stack.brokers, 600_000, 30)
        if (message.key() or b"").startswith(name.encode())
    ]
    return [codec.decode(value) if value else None for value in values]


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold within a minute"
        time.sleep(0.05)


def test_watermarks_follow_the_acknowledged_records_and_the_last_one_retires_the_process(stack: Stack, tmp_path: Path) -> None:
    workspace = f"w{uuid.uuid4().hex[:8]}"
    with running(stack.environment() | {"STARLING_WRITE_KEYS": f"key={workspace}"}, tmp_path) as edge:
        first = _own(stack, edge)
        assert len(first) >= 1, "the process was ready before its first watermark"
        for _ in range(20):
            assert httpx.post(f"{edge.url}/v1/track", json=TRACK, headers={"x-write-key": "key"}).status_code == 200
        codec = Registry(stack.registry_url).codec("ingest.track", "IngestReceived")
        arrivals = [
            codec.decode(message.value() or b"")["received_at"] for message in records(stack.brokers, "ingest.track", workspace)
        ]
        assert first[-1] is not None
        assert first[0] is not None
        assert first[0]["low"] <= min(arrivals)
        _until(lambda: (_own(stack, edge)[-1] or {})["low"] > max(arrivals))
        assert edge.stop() == 0
        own = _own(stack, edge)
        assert own.pop() is None
        lows = [watermark["low"] for watermark in own if watermark is not None]
        assert len(lows) == len(own)
        assert lows == sorted(lows)


def test_a_process_that_was_stalled_beyond_its_margin_joins_again(stack: Stack, tmp_path: Path) -> None:
    with running(stack.environment() | {"STARLING_WRITE_KEYS": "key=w"}, tmp_path) as edge:
        edge.process.send_signal(signal.SIGSTOP)
        time.sleep(5.5)  # sleep: the stall; the margin is five seconds of the process's own clock
        edge.process.send_signal(signal.SIGCONT)
        _until(lambda: "group_rejoined" in edge.log.read_text())
        assert httpx.post(f"{edge.url}/v1/track", json=TRACK, headers={"x-write-key": "key"}, timeout=60).status_code == 200
        assert edge.stop() == 0
