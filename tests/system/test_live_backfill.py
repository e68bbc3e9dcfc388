"""A new segment over a long past on the whole platform: Spark gathers it beside the traffic, and the segment has all of it."""

import uuid
from collections.abc import Sequence

import pytest

from starling_local.stack.parts.services import BACKFILL_FROM_RECORDS
from tests.system.conftest import Platform
from tests.system.live import members, starling, track

BATCH = 1_000


def happened(platform: Platform, name: str, users: Sequence[str]) -> None:
    for first in range(0, len(users), BATCH):
        batch = [{"type": "track", "userId": user, "event": name} for user in users[first : first + BATCH]]
        answer = platform.ingest.post("/v1/batch", json={"batch": batch})
        assert (answer.status_code, answer.json()["success"]) == (200, True)


@pytest.mark.long
def test_a_segment_over_a_long_past_waits_for_spark_and_has_it_all(live: Platform) -> None:
    starling(live, "up", "--backfill", "--detach")
    name = f"Visit {uuid.uuid4().hex}"
    busy, twice, once, never = (f"{name}-{user}" for user in ("busy", "twice", "once", "never"))
    happened(live, name, [busy] * BACKFILL_FROM_RECORDS + [twice, twice, once])
    live.settle()
    key = f"s{uuid.uuid4().hex[:10]}"
    where = {"event": name, "op": "gte", "value": 2, "within": "30d"}
    made = live.api.post("/v1/segments", json={"key": key, "name": key, "where": where})
    assert (made.status_code, made.json()["status"]) == (201, "backfilling")
    assert members(live, key) == set()
    for user in (once, never):  # while its past is gathered
        track(live, user, name)
    live.settle()  # which waits for segments too
    assert live.api.get(f"/v1/segments/{key}").json()["status"] == "active"
    assert members(live, key) == {busy, twice, once}
    (run,) = (one for one in live.api.get("/v1/backfills").json()["items"] if key in one["segments"])
    assert (run["state"], run["percent"]) == ("done", 100)
    assert run["records_done"] == run["records_total"] > BACKFILL_FROM_RECORDS
    assert run["run"] in starling(live, "segments", "backfill", "list")
