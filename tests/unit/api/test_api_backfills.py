"""What the API has to do with backfills: who waits for one, how far it is, what is asked of it, and where it runs."""

import json
from dataclasses import replace

import pytest

from starling_api.backfills.backfills import BackfillPolicy, is_needed
from starling_api.definitions.definition import Author
from starling_api.definitions.in_force import Definitions as Known
from starling_api.definitions.kinds.kinds import SEGMENTS
from starling_api.ports import ReportedProgress
from starling_common.values import Workspace
from starling_rules.definitions import Definitions, fold
from starling_rules.ledger import CANCELLED, DONE, PAUSED, RUNNING, Run, Share, applied, report
from tests.unit.api.calls import call
from tests.unit.api.memory import World

BUYERS = {"key": "buyers", "name": "Buyers", "where": {"event": "Order Completed"}}
LATELY = {"event": "Order Completed", "within": "5d"}


def run_of(*shares: Share, state: str = RUNNING, **definitions: int) -> Run:
    named = {f"acme/{key}": version for key, version in definitions.items()}
    return Run("run-1", state, 1_000_000_000, 1_000_000_000, named, {"acme": ["leaf"]}, {share.number: share for share in shares})


ADMIN = Author(Workspace("acme"), "admin", "request-1")
HALF = (Share(0, RUNNING, {}, 0, 60, 100), Share(1, "planned", {}, 0, 0, 20))


def test_a_waiting_segment_states_the_progress_of_its_backfill() -> None:
    world = World()
    world.commands.define(SEGMENTS, ADMIN, BUYERS)
    world.runs["run-1"] = run_of(*HALF, buyers=1)
    world.micros += 60_000_000
    shown = call(world, "GET", "/v1/segments/buyers").json()
    backfill = shown["backfill"]
    assert (shown["status"], backfill["state"], backfill["percent"]) == ("backfilling", "running", 50.0)
    assert (backfill["records_done"], backfill["records_total"], backfill["started_at"]) == (60, 120, "1970-01-01T00:16:40.000Z")
    assert backfill["estimated_end"] == "1970-01-01T00:18:40.000Z"
    world.audience.reported = {number: ReportedProgress(0, {"acme/buyers": 1}) for number in range(2)}
    assert "backfill" not in call(world, "GET", "/v1/segments/buyers").json()


def test_runs_are_listed_and_controlled_by_an_admin_of_their_workspace() -> None:
    world = World()
    world.runs["run-1"] = run_of(*HALF, buyers=1)
    (listed,) = call(world, "GET", "/v1/backfills", role="see").json()["items"]
    assert (listed["run"], listed["segments"], listed["asked"]) == ("run-1", {"buyers": 1}, "running")
    assert call(world, "POST", "/v1/backfills/run-1/pause", role="make").status_code == 403
    assert call(world, "POST", "/v1/backfills/run-1/pause").json()["asked"] == "paused"
    assert [(one["run"], one["kind"], one["state"]) for one in world.backfill_requests] == [("run-1", "asked", PAUSED)]
    assert call(world, "POST", "/v1/backfills/run-1/stop").status_code == 400
    assert call(world, "POST", "/v1/backfills/run-2/pause").json()["code"] == "unknown_backfill"
    world.runs["run-1"] = replace(run_of(state=DONE), definitions={"acme/buyers": 1})
    assert call(world, "POST", "/v1/backfills/run-1/pause").json()["code"] == "backfill_ended"
    world.runs["run-1"] = replace(run_of(), definitions={"other/buyers": 1})
    assert call(world, "GET", "/v1/backfills").json()["items"] == []
    assert call(world, "POST", "/v1/backfills/run-1/pause").status_code == 404


def test_a_run_is_controlled_once_for_one_idempotency_key() -> None:
    world = World()
    world.runs["run-1"] = run_of(*HALF, buyers=1)
    first, again = (call(world, "POST", "/v1/backfills/run-1/pause", headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert (first.status_code, again.content) == (200, first.content)
    assert len(world.backfill_requests) == 1
    other = call(world, "POST", "/v1/backfills/run-1/cancel", headers={"Idempotency-Key": "k"})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


def waits(world: World, from_records: int, past: int) -> BackfillPolicy:
    return BackfillPolicy(from_records, lambda: past, Known(world.reader), world.audience, 2)


@pytest.mark.parametrize(("from_records", "past", "awaits"), [(0, 9, False), (10, 9, False), (10, 10, True)])
def test_only_a_long_history_needs_a_backfill(from_records: int, past: int, awaits: bool) -> None:
    world = World()
    world.commands.define(SEGMENTS, ADMIN, BUYERS)
    assert waits(world, from_records, past).awaits_backfill(world.published[0]) is awaits


def test_aggregates_of_all_states_need_no_backfill() -> None:
    world = World()
    world.commands.define(SEGMENTS, ADMIN, BUYERS)
    world.commands.define(SEGMENTS, ADMIN, {"key": "often", "name": "Often", "where": {**BUYERS["where"], "op": "gte", "value": 2}})  # type: ignore[dict-item]
    world.commands.define(SEGMENTS, ADMIN, {"key": "lately", "name": "Lately", "where": LATELY})
    often, lately = world.published[1:]
    decide = waits(world, 1, 1)
    assert decide.awaits_backfill(often)  # no partition applies the buyers yet
    world.audience.reported = {number: ReportedProgress(0, {"acme/buyers": 1}) for number in range(2)}
    assert not decide.awaits_backfill(often)
    assert decide.awaits_backfill(lately)
    world.commands.pause(SEGMENTS, ADMIN, "lately", None)
    assert not decide.awaits_backfill(world.published[-1])


def test_a_partition_that_reported_an_old_version_needs_a_backfill() -> None:
    run = run_of(*HALF, buyers=1)
    done = {**report(run, "partition", DONE, 2, replace(HALF[0], records_done=100)), "users": 7, "first": 3, "end": 10}
    late = report(run, "partition", RUNNING, 3, HALF[0])
    runs = applied(applied(applied({}, report(run, "run", RUNNING, 1)), done), late)
    part = runs["run-1"].shares[0].part
    assert part is not None
    assert (part.users, part.first, part.end) == (7, 3, 10)


def waiting() -> Definitions:
    record = {"kind": "segment", "workspace": "acme", "key": "buyers", "version": 1, "action": "DEFINED", "correlation_id": "c"}
    outcome = fold(Definitions(), {**record, "document": json.dumps(BUYERS), "awaits_backfill": True})
    return outcome.value  # type: ignore[union-attr]


def test_no_job_is_started_without_a_waiting_segment_or_after_a_cancellation() -> None:
    assert is_needed(waiting(), None)
    assert not is_needed(Definitions(), None)
    assert not is_needed(waiting(), replace(run_of(buyers=1), requested=CANCELLED))
    assert is_needed(waiting(), replace(run_of(buyers=2), requested=CANCELLED))
