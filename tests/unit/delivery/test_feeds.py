"""Feeds: targets as a fold, when a digest is sent, what is stored, and which lanes run."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from starling_common.outcome import Done, Refused
from starling_common.security.sealing import Place, Sealer
from starling_common.telemetry.metrics import Metrics
from starling_common.values import record_key
from starling_delivery.channel import Again, Answer, Delivered, Gone, Impossible, Unknown
from starling_delivery.feeds.digests import Planned, after
from starling_delivery.feeds.progress import Known, Stored, fold_progress, listed, progress_record
from starling_delivery.feeds.supervisor import Supervisor
from starling_delivery.feeds.targets import FeedTarget, FeedTargets, TargetPlace, fold_feed_target
from tests.unit.delivery.making import change

SLACK: dict[str, Any] = {"key": "sales", "channel": "slack", "url": "https://hooks.example.com/x", "segments": ["vip"]}
KEY = b"k" * 32


def record(document: Mapping[str, Any] = SLACK, action: str = "DEFINED", at_ms: int = 1_000, **more: Any) -> dict[str, Any]:
    return {
        "recorded_at": at_ms * 1000,
        "event_id": "e",
        "workspace": "default",
        "kind": "target",
        "key": document["key"],
        "version": 1,
        "action": action,
        "document": json.dumps(document),
        "actor": "a test",
        "correlation_id": "c",
        **more,
    }


def folded(*records: Mapping[str, Any], sealer: Sealer | None = None) -> FeedTargets:
    found = FeedTargets(frozenset({"slack", "kafka"}), sealer or Sealer())
    for one in records:
        assert isinstance(fold_feed_target(found, one), Done)
    return found


def the_target(*records: Mapping[str, Any], sealer: Sealer | None = None) -> FeedTarget:
    [found] = folded(*records, sealer=sealer).enabled()
    return found


def test_a_target_gets_the_changes_of_its_segments_alone() -> None:
    target = the_target(record())
    assert target.wants(change(segment="vip"))
    assert not target.wants(change(segment="new"))
    assert not target.wants(change(segment="vip", workspace="other"))


def test_other_channels_and_kinds_are_no_targets_of_feeds() -> None:
    found = folded(record({**SLACK, "channel": "teams"}), record(kind="campaign"), record({"key": "m", "channel": "email"}))
    assert found.enabled() == []


def test_a_target_gets_changes_since_its_creation_or_the_end_of_its_last_pause() -> None:
    assert the_target(record(at_ms=5)).since_ms == 5
    assert the_target(record(at_ms=5), record({**SLACK, "title": "New"}, "REVISED", 9)).since_ms == 5
    off = record({**SLACK, "disabled": True, "disabled_because": "410"}, "DISABLED", 7)
    assert folded(record(at_ms=5), off).enabled() == []
    again = the_target(record(at_ms=5), off, record(action="REVISED", at_ms=9))
    assert (again.since_ms, again.disabled) == (9, False)
    assert the_target(record(at_ms=5), record(action="ARCHIVED", at_ms=7), record(at_ms=9)).since_ms == 9


def test_secrets_are_decrypted_and_the_stored_document_keeps_them_encrypted() -> None:
    sealer = Sealer({"first": KEY})
    sealed = sealer.seal(SLACK["url"], Place("default", "target/sales", "url"))
    target = the_target(record({**SLACK, "url": sealed}), sealer=sealer)
    assert (target.settings["url"], target.document["url"], target.problem) == (SLACK["url"], sealed, None)
    found = folded(record({**SLACK, "url": sealed}))
    assert "'first'" in found.problems()[0]
    assert SLACK["url"] not in repr(target)


def test_a_document_of_an_earlier_version_is_refused_with_its_place() -> None:
    outcome = fold_feed_target(FeedTargets({"slack"}), record({name: SLACK[name] for name in ("key", "channel", "url")}))
    assert isinstance(outcome, Refused)
    assert "default/sales" in outcome.message


def test_the_newest_position_of_each_target_counts() -> None:
    target, known = the_target(record()), Known()
    for positions in ({0: 5, 2: 7}, {0: 9, 1: 3, 2: 7}):
        made = progress_record(target, "SENT", positions, "c", 1, sent_at=4)
        assert isinstance(fold_progress(known, record_key("default", "sales"), made), Done)
    assert known == {("default", "sales"): Stored({0: 9, 1: 3, 2: 7}, 4)}
    assert listed({0: 5, 2: 7}) == [5, -1, 7]
    assert listed({}) == []
    fold_progress(known, record_key("default", "sales"), None)
    assert known == {}


def test_a_digest_is_due_an_interval_after_its_first_change_and_after_the_last_digest() -> None:
    planned = Planned(60, 0)
    assert planned.due_ms(1_000) == 61_000
    planned.sent(50_000)
    assert planned.due_ms(51_000) == 111_000
    assert Planned(60, 50_000).due_ms(40_000) == 110_000


def test_a_failed_digest_waits_longer_each_time_and_at_least_as_long_as_the_endpoint_asks() -> None:
    planned, waits = Planned(10, 0), []
    for _ in range(10):
        planned.failed(1_000_000, None)
        waits.append(planned.due_ms(0) - 1_000_000)
    assert waits == [5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000, 600_000, 600_000]
    planned.sent(2_000_000)
    planned.failed(3_000_000, 120.0)
    assert planned.due_ms(0) == 3_120_000
    planned.failed(3_000_000, 1e9)
    assert planned.due_ms(0) == 3_000_000 + 3_600_000


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Delivered(200), ("SENT", None, 200)),
        (Again("busy", 429, 5.0), ("RETRYING", "busy", 429)),
        (Unknown("lost"), ("UNKNOWN", "lost", None)),
        (Impossible("no", 400), ("FAILED", "no", 400)),
        (Gone("gone", 410), ("FAILED", "gone", 410)),
    ],
)
def test_the_step_after_an_answer(answer: Answer, expected: tuple[str, str | None, int | None]) -> None:
    assert after(answer) == expected


class Ownership:
    """The share of a process, which a test sets."""

    def __init__(self) -> None:
        self.is_assigned = True
        self.places: set[TargetPlace] | None = None
        self.committed: list[Mapping[int, int]] = []

    def join(self) -> None: ...

    def turn(self, seconds: float) -> None: ...

    def has(self, place: TargetPlace) -> bool:
        return self.places is None or place in self.places

    def commit(self, positions: Mapping[int, int]) -> None:
        self.committed.append(positions)

    def leave(self) -> None: ...


class Lane:
    """Records what the supervisor does with it."""

    def __init__(self, target: FeedTarget, started: list[str], stopped: list[str]) -> None:
        self.target = target
        self.problem: str | None = None
        self.done: Mapping[int, int] = {0: 4, 1: 9}
        self.lag = 3
        self.stopping = self
        self._started, self._stopped = started, stopped

    def set(self) -> None: ...

    def start(self) -> None:
        self._started.append(self.target.key)

    def stop(self, _seconds: float) -> bool:
        self._stopped.append(self.target.key)
        return True


class Watched:
    """A supervisor with such lanes."""

    def __init__(self, targets: FeedTargets, most: int = 10) -> None:
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.lanes: dict[str, Lane] = {}
        self.ownership = Ownership()
        self.registry = CollectorRegistry()
        self.supervisor = Supervisor(targets, self._lane, lambda: {0: 5, 1: 8}, most, Metrics(self.registry))  # type: ignore[arg-type]
        self.supervisor.ownership = self.ownership

    def _lane(self, target: FeedTarget) -> Lane:
        self.lanes[target.key] = Lane(target, self.started, self.stopped)
        return self.lanes[target.key]

    def arrange(self) -> tuple[list[str], list[str]]:
        self.started.clear()
        self.stopped.clear()
        self.supervisor.arrange()
        return list(self.started), list(self.stopped)


def test_lanes_follow_the_definitions_and_the_share_of_the_process() -> None:
    targets = folded(record(), record({**SLACK, "key": "other"}))
    watched = Watched(targets)
    assert watched.arrange() == (["other", "sales"], [])
    assert watched.arrange() == ([], [])
    targets.apply(record({**SLACK, "segments": ["vip", "new"]}, "REVISED", 2_000))
    assert watched.arrange() == (["sales"], ["sales"])
    targets.apply(record({**SLACK, "key": "other"}, "ARCHIVED", 2_000))
    assert watched.arrange() == ([], ["other"])
    watched.ownership.places = set()
    assert watched.arrange() == ([], ["sales"])


def test_more_targets_than_a_process_may_have_wait_and_are_named() -> None:
    targets = folded(record(), record({**SLACK, "key": "b"}), record({**SLACK, "key": "c"}))
    watched = Watched(targets, most=2)
    assert watched.arrange() == (["b", "c"], [])
    assert "1 targets wait" in (watched.supervisor.problems()["room"] or "")
    targets.apply(record({**SLACK, "key": "b"}, "ARCHIVED", 2_000))
    assert watched.arrange() == (["sales"], ["b"])
    assert watched.supervisor.problems()["room"] is None


def test_a_failing_target_is_reported_and_the_process_stays_ready() -> None:
    watched = Watched(folded(record()))
    watched.arrange()
    assert watched.supervisor.problems()["targets"] is None
    watched.lanes["sales"].problem = "the endpoint answered 500"
    problem = watched.supervisor.problems()["targets"]
    assert problem == "1 fail, such as sales: the endpoint answered 500"
    assert type(problem).__name__ == "Degraded"


def test_the_group_has_the_lowest_position_of_any_target() -> None:
    watched = Watched(folded(record()))
    watched.supervisor._commit()
    watched.arrange()
    watched.supervisor._commit()
    watched.lanes["sales"].done = {}
    watched.supervisor._commit()
    assert watched.ownership.committed == [{0: 5, 1: 8}, {0: 4, 1: 8}]
