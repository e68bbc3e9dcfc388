"""The fold of accepted items, the comparison of counts and webhooks, and the checkpoint."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.faults.findings import Findings
from tests.faults.log import Logged
from tests.faults.provenance import Provenance
from tests.faults_platform.checking import PlatformCheck
from tests.faults_platform.processes import Finding, Injected
from tests.faults_platform.report import Checkpoint, read_checkpoint, table
from tests.faults_platform.schedule import Fault
from tests.faults_platform.truth import Accepted, accepted
from tests.faults_platform.webhooks import Arrived, check_webhooks


class Given:
    """A codec whose bytes are JSON."""

    def decode(self, value: bytes) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(value)
        return found


def record(offset: int, message_id: str, kind: str, received_at: int, appended_ms: int = 0, **body: Any) -> Logged:
    item = {"timestamp": "2024-01-01T00:00:00.000Z", **body}
    fields = {"user_id": "u1", "message_id": message_id, "kind": kind, "received_at": received_at, "item": json.dumps(item)}
    return Logged(f"ingest.{kind}", 0, offset, appended_ms, b"default/u1", json.dumps(fields).encode())


def folded(*records: Logged) -> Accepted:
    log: dict[str, dict[int, list[Logged]]] = {}
    for one in records:
        log.setdefault(one.topic, {0: []})[0].append(one)
    codec: Any = Given()
    return accepted(log, codec, log.keys())


def order(offset: int, message_id: str, received_at: int, revenue: int) -> Logged:
    return record(offset, message_id, "track", received_at, event="Order Completed", properties={"revenue": revenue})


def test_an_item_that_was_taken_twice_counts_once() -> None:
    found = folded(order(0, "m1", 5, 7), order(1, "m2", 6, 11), order(2, "m1", 7, 7))
    user = found.users["u1"]
    assert (user.spent, user.orders, found.repeats, sorted(user.events)) == (18, 2, 1, ["m1", "m2"])
    assert [item.origin[2] for item in found.items] == [0, 1, 2]


def test_traits_are_those_of_the_order_of_arrival() -> None:
    late = record(0, "m2", "identify", 9, traits={"plan": "pro"})
    early = record(1, "m1", "identify", 8, traits={"plan": "free", "score": 1})
    assert folded(late, early).users["u1"].traits == {"plan": "pro", "score": 1}


def test_an_item_that_the_broker_appended_late_is_ordered_by_the_append() -> None:
    late = record(1, "m1", "identify", 1_000_000, appended_ms=60_000, traits={"plan": "pro"})
    early = record(0, "m2", "identify", 5_000_000, appended_ms=5_000, traits={"plan": "free"})
    assert folded(late, early).users["u1"].traits == {"plan": "pro"}


CHANGE = {"event_id": "e1", "user_id": "u1", "segment_key": "buyers", "segment_version": 1, "status": "ENTERED", "sequence": 1}
NEXT = {**CHANGE, "event_id": "e2", "status": "EXITED", "sequence": 2}


def message(change: dict[str, Any], **other: Any) -> Arrived:
    return Arrived(change["event_id"], json.dumps({"data": change | {"decided_at": "2024-01-01T00:00:00.000Z"} | other}))


@pytest.mark.parametrize(
    ("arrived", "kinds"),
    [
        ([message(CHANGE), message(NEXT)], (0, 0, 0)),
        ([message(CHANGE), message(NEXT), message(CHANGE)], (0, 0, 0)),
        ([message(CHANGE)], (1, 0, 0)),
        ([message(CHANGE), message(NEXT), message(NEXT | {"event_id": "e3"})], (0, 1, 1)),
        ([message(CHANGE), message(NEXT), message(NEXT | {"event_id": "e3", "sequence": 3})], (0, 0, 1)),
        ([message(CHANGE), message(NEXT), message(NEXT, decided_at="2024-01-01T00:00:01.000Z")], (0, 0, 1)),
        ([message(CHANGE), message(NEXT, user_id="u2")], (0, 0, 1)),
        ([message(CHANGE), Arrived("e2", message(CHANGE).body)], (0, 1, 1)),
    ],
    ids=["right", "repeated", "missing", "another-id", "invented", "another-body", "another-user", "body-of-another"],
)
def test_webhooks_are_compared(arrived: list[Arrived], kinds: tuple[int, int, int]) -> None:
    findings = Findings()
    check_webhooks([CHANGE, NEXT], arrived, findings)
    assert (findings.lost, findings.doubled, findings.wrong) == kinds, findings.examples


def test_a_checkpoint_of_a_run_that_was_killed_has_its_table(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.write("run", Provenance(7, "2026-01-01 10:00", "abc", "2 cores, 8 GB"))
    hung = Injected(Fault("hang", ("api",)), 1, 3.0, recovery_seconds={"api": 61.0}, restarts={"api": "answered no liveness check"})
    for one in (hung, Injected(Fault("kill", ("kafka",)), 1, 4.0, never=["kafka"])):
        checkpoint.write("fault", one)
    checkpoint.write("finding", Finding("kafka stayed away", 9.0, "findings/00-kafka"))
    report = read_checkpoint(checkpoint.file)
    assert (len(report.injected), report.unhealed, report.good) == (2, [], False)
    assert report.late == ["hang api: api after 61 s", "kill kafka: never ready: kafka"]
    assert "finding at 9 s: kafka stayed away findings/00-kafka" in table(report)
    assert table(report).endswith(
        "seed 7, commit abc, 2 cores, 8 GB, 2 faults, 0 s, load average 0.0: not compared, 2 late, 1 findings"
    )


@pytest.mark.parametrize(
    ("found", "kinds"),
    [
        ({"a": 1, "b": 1}, (0, 0, 0)),
        ({"a": 1}, (1, 0, 0)),
        ({"a": 2, "b": 1}, (0, 1, 0)),
        ({"a": 1, "b": 1, "c": 1}, (0, 0, 1)),
    ],
)
def test_counts_are_compared(found: dict[str, int], kinds: tuple[int, int, int]) -> None:
    check = object.__new__(PlatformCheck)
    check.findings = Findings()
    check._counted("event", Counter({"a": 1, "b": 1}), Counter(found))
    assert (check.findings.lost, check.findings.doubled, check.findings.wrong) == kinds
