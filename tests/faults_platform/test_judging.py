"""The fold of accepted items, and the comparison of counts."""

import json
from collections import Counter
from typing import Any

import pytest

from tests.faults.log import Logged
from tests.faults.verdict import Verdict
from tests.faults_platform.judging import Judge
from tests.faults_platform.truth import Accepted, accepted


class Given:
    """A codec whose bytes are JSON."""

    def decode(self, value: bytes) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(value)
        return found


def record(offset: int, message_id: str, kind: str, received_at: int, **body: Any) -> Logged:
    item = {"timestamp": "2024-01-01T00:00:00.000Z", **body}
    fields = {"user_id": "u1", "message_id": message_id, "kind": kind, "received_at": received_at, "item": json.dumps(item)}
    return Logged(f"ingest.{kind}", 0, offset, 0, b"default/u1", json.dumps(fields).encode())


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


@pytest.mark.parametrize(
    ("found", "kinds"),
    [
        ({"a": 1, "b": 1}, (0, 0, 0)),
        ({"a": 1}, (1, 0, 0)),
        ({"a": 2, "b": 1}, (0, 1, 0)),
        ({"a": 1, "b": 1, "c": 1}, (0, 0, 1)),
    ],
)
def test_counts_are_judged(found: dict[str, int], kinds: tuple[int, int, int]) -> None:
    judge = object.__new__(Judge)
    judge.verdict = Verdict()
    judge._counted("event", Counter({"a": 1, "b": 1}), Counter(found))
    assert (judge.verdict.lost, judge.verdict.doubled, judge.verdict.wrong) == kinds
