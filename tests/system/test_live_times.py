"""Timestamps in the year 9999 and before 1970, posted to the running platform: they concern their own user only."""

import uuid
from typing import Any

import httpx
import pytest

from starling_common.kafka.topics import load_catalogue
from starling_common.partitioning import partition_of
from starling_common.time.instants import format_instant, parse_instant, wall_clock_ms
from starling_common.values import record_key
from starling_local.instance import PartReport
from starling_local.stack.parts.services import WORKSPACE
from tests.integration.stream.rig import wait_until
from tests.system.conftest import Platform
from tests.system.live import define, members

WINDOW_SECONDS = 15
AHEAD_MS = 60_000
"""Stream time follows the wall clock. A delay of the test itself is far below."""

EXTREME: tuple[dict[str, str], ...] = (
    {"timestamp": "9999-12-31T23:59:59.999Z"},
    {"timestamp": "9999-12-31T23:59:59.999Z", "sentAt": "9999-12-31T23:59:59.999Z"},
    {"timestamp": "2026-01-01T00:00:00Z", "sentAt": "1970-01-01T00:00:00Z"},
    {"timestamp": "1969-12-31T23:59:59Z"},
    {"timestamp": "0001-01-01T00:00:00Z"},
)
DOORS = ("/v1/batch", pytest.param("/v1/import", marks=pytest.mark.long))


def users_of_one_partition() -> tuple[str, str]:
    """A hostile user and a bystander, whose records one task processes."""
    hostile, count = f"eve-{uuid.uuid4().hex}", load_catalogue().profile_partitions
    while True:
        bystander = f"ada-{uuid.uuid4().hex}"
        if partition_of(record_key(WORKSPACE, bystander), count) == partition_of(record_key(WORKSPACE, hostile), count):
            return hostile, bystander


def stream_times(platform: Platform, service: str) -> list[float]:
    """The stream time of each partition, epoch milliseconds."""
    text = httpx.get(f"http://127.0.0.1:{platform.at.ports.worker(service, 0)}/metrics", trust_env=False).text
    return [float(line.split()[-1]) for line in text.splitlines() if line.startswith("starling_stream_time_ms{")]


def track_at_present(platform: Platform, user: str, event: str) -> int:
    """Return the event time, which does not depend on the receipt."""
    now_ms = wall_clock_ms()
    body = {"userId": user, "event": event, "timestamp": format_instant(now_ms)}
    answer = platform.ingest.post("/v1/track", json=body)
    assert (answer.status_code, answer.json()["success"]) == (200, True)
    return now_ms


def parts(platform: Platform) -> tuple[PartReport, ...]:
    report = platform.instance.report()
    assert report is not None
    return tuple(report.parts)


def changes(platform: Platform, segment: str, user: str) -> list[dict[str, Any]]:
    items = platform.api.get("/v1/feed", params={"segment": segment, "limit": 100}).json()["items"]
    return [item for item in items if item["user_id"] == user]


@pytest.mark.long
@pytest.mark.parametrize("door", DOORS)
def test_an_extreme_timestamp_concerns_its_own_user_only(live: Platform, door: str) -> None:
    event = f"Ordered {uuid.uuid4().hex}"
    recent = define(live, {"event": event, "within": f"{WINDOW_SECONDS}s"})
    ever = define(live, {"event": event})
    hostile, bystander = users_of_one_partition()

    tracked_ms = track_at_present(live, bystander, event)
    wait_until(lambda: bystander in members(live, recent), "the bystander to enter")
    items = [{"type": "track", "userId": hostile, "event": event, **times} for times in EXTREME]
    answer = live.ingest.post(door, json={"batch": items})
    assert (answer.status_code, answer.json()["success"]) == (200, True), answer.text
    live.settle()

    # Stream time has not moved beyond the wall clock, and time goes on: the bystander leaves at the end of its own window.
    for service in ("normalizer", "segmenter"):
        times = stream_times(live, service)
        assert times, service
        assert max(times) < wall_clock_ms() + AHEAD_MS, (service, format_instant(int(max(times))))
    wait_until(lambda: [change["status"] for change in changes(live, recent, bystander)] == ["ENTERED", "EXITED"], "the exit")
    assert parse_instant(changes(live, recent, bystander)[-1]["effective_at"]) == tracked_ms + WINDOW_SECONDS * 1000
    assert bystander in members(live, ever)

    # The effect on the hostile user is bounded: no window is open for longer than it lasts, and its next event counts.
    assert hostile in members(live, ever)
    wait_until(lambda: hostile not in members(live, recent), "the windows of the hostile user to end")
    tracked_ms = track_at_present(live, hostile, event)
    wait_until(lambda: hostile in members(live, recent), "the next event to count")
    wait_until(lambda: hostile not in members(live, recent), "its window to end in time")
    assert parse_instant(changes(live, recent, hostile)[-1]["effective_at"]) == tracked_ms + WINDOW_SECONDS * 1000
    every = [parse_instant(change["effective_at"]) for key in (recent, ever) for change in changes(live, key, hostile)]
    assert 0 < max(every) < wall_clock_ms() + AHEAD_MS
    assert not any(part.restarts for part in parts(live))
