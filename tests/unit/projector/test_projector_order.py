"""One place knows the order of effects: rows, counts, dead letters, and only then the offsets."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from confluent_kafka import Message
from prometheus_client import CollectorRegistry

from starling_common.cassandra.sessions import ConnectionsLost, DatabaseUnavailable, StatementRefused
from starling_common.kafka.topics import load_catalogue
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import DecodeError, Record
from starling_projector.agents import Limits, Parts, Projector
from starling_projector.dead_letters import DeadLetters
from starling_projector.decoder import Decoder
from starling_projector.projection.destinations import Destination
from starling_projector.projection.steps import StepKey, StepTally
from starling_projector.projection.tallies import Tally, TallyKey
from starling_projector.source import ClientFailed, Polled, Source
from starling_projector.store import Store

ENTRY = {
    "workspace": "acme",
    "user_id": "ada",
    "segment_key": "vip",
    "segment_version": 1,
    "status": "ENTERED",
    "sequence": 1,
    "effective_at": 0,
    "received_at": 1_000_000,
}


class Read:
    """A message as the consumer gives it; only what the edge asks for."""

    def __init__(self, topic: str, offset: int, value: bytes) -> None:
        self._topic, self._offset, self._value = topic, offset, value

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"acme/ada"

    def value(self) -> bytes:
        return self._value

    def headers(self) -> list[tuple[str, bytes]]:
        return []

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000


class World:
    """Every effect, in order, in one list; and a place to pull the plug."""

    def __init__(self, messages: Sequence[Read], away: Sequence[str] = (), stop_at: str = "commit") -> None:
        self.journal: list[str] = []
        self.messages = [cast("Message", message) for message in messages]
        self.away = list(away)
        self.outage: type[DatabaseUnavailable] = DatabaseUnavailable
        self.stop_at = stop_at
        self.was_away = ""
        self.client_failed = False
        self.problem: str | None = None
        self.problems: list[str | None] = []
        self.poison: set[int] = set()
        """Offsets whose rows cannot be written; -1: nothing can be written."""
        self.left = 1_000
        self.checks: list[bool] = []
        """Whether the database passes each of its next checks; it passes all later ones."""
        self.error: Exception = ZeroDivisionError("division by zero")
        self.written: set[int] = set()
        self.buried: list[tuple[int, str]] = []
        self.counted: dict[TallyKey, Tally] | None = None
        self.registry = CollectorRegistry()
        parts = Parts(
            cast("Source", self),
            cast("Decoder", self),
            cast("Store", self),
            cast("DeadLetters", self),
            Metrics(self.registry),
        )
        self.projector = Projector(parts, Limits(100, 0.0), "projector")

    def happens(self, what: str) -> None:
        if self.was_away == what:
            self.problems.append(self.projector.problems()["stores"])
        if what in self.away:
            self.away.remove(what)
            self.was_away = what
            raise self.outage(f"{what} does not answer")
        self.journal.append(what)

    def start(self) -> None:
        """Of the source and of the decoder."""

    def topic_ids(self) -> dict[str, str]:
        """Of the source."""
        return dict.fromkeys(load_catalogue().topics, "id")

    def partitions(self, _topic: str) -> int:
        """Of the source."""
        return 8

    def incarnations(self, ids: Mapping[str, str]) -> dict[str, int]:
        """Of the store."""
        return dict.fromkeys(ids, 0)

    def check(self, _stage: str = "") -> None:
        """Of the source, and of the store: raises if the database has not all tables."""
        if not _stage and self.checks and not self.checks.pop(0):
            raise StatementRefused("table does not exist")

    def stop_if(self, here: str) -> None:
        if here == self.stop_at:
            self.projector.stop()

    def poll(self, _wait_seconds: float, _most: int, _linger_seconds: float) -> Polled:
        self.stop_if("take")
        return Polled(self.messages)

    def commit(self, limits: dict[tuple[str, int], int]) -> None:
        self.happens(f"committed{sorted(limits.values()) or ''}")
        self.problems.append(self.projector.problems()["stores"])
        self.stop_if("commit")

    def rewind(self) -> None:
        self.happens("rewound")

    def committed(self, _topic: str, numbers: Sequence[int]) -> dict[int, int]:
        return dict.fromkeys(numbers, 0)

    def ends(self, _topic: str, numbers: set[int]) -> dict[int, int]:
        if self.client_failed:
            raise ClientFailed
        return dict.fromkeys(numbers, 1)

    def close(self) -> None:
        self.happens("closed")

    def decode(self, topic: str, value: bytes) -> Record:
        if value == b"?":
            raise DecodeError("broken_avro", "no record")
        if topic == "segments.progress":
            return {"partition": 0, "stream_time": 1, "definitions": {}, "recorded_at": 1}
        return ENTRY if value == b"!" else {**ENTRY, "sequence": int(value)}

    def write_rows(self, rows: Sequence[Any]) -> dict[str, int]:
        offsets = {row.written for row in rows if row.destination is Destination.USER_MEMBERSHIP}
        if self.left and (-1 in self.poison or self.poison & offsets):
            self.left -= 1
            raise self.error
        self.written |= offsets
        self.happens(f"rows {len(rows)}")
        return {}

    def tallies(self, keys: Sequence[TallyKey]) -> dict[TallyKey, Tally]:
        return {key: (self.counted or {}).get(key, Tally()) for key in keys}

    def write_tallies(self, tallies: dict[TallyKey, Tally]) -> None:
        if self.counted is not None:
            self.counted |= tallies
        self.happens(f"counts {sorted(tally.entered for tally in tallies.values())}")

    def step_tallies(self, keys: Sequence[StepKey]) -> dict[StepKey, StepTally]:
        return {key: StepTally() for key in keys}

    def write_step_tallies(self, tallies: dict[StepKey, StepTally]) -> None:
        if tallies:
            self.happens(f"steps {len(tallies)}")

    def write_progress(self, shown: Sequence[Any]) -> None:
        self.happens(f"progress {len(shown)}")

    def bury(self, refused: Sequence[Any]) -> None:
        self.buried += [(source.offset, reason.code) for source, reason in refused]
        self.happens(f"buried {len(refused)}")


def test_offsets_are_committed_last() -> None:
    world = World([Read("segments.membership", 0, b"!"), Read("segments.membership", 1, b"?")])
    world.projector.run()
    assert world.journal == ["rows 2", "counts [1, 1]", "buried 1", "committed", "closed"]


def test_the_freshness_of_each_change_is_observed_once_it_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("starling_projector.agents.wall_clock_micros", lambda: 1_250_000)
    read = [Read("segments.membership", offset, b"!") for offset in range(3)]
    world = World([*read, Read("segments.membership", 3, b"?")])
    world.projector.run()
    assert world.registry.get_sample_value("starling_projector_freshness_seconds_sum") == pytest.approx(0.75)
    assert world.registry.get_sample_value("starling_projector_freshness_seconds_bucket", {"le": "0.2"}) == 0
    assert world.registry.get_sample_value("starling_projector_freshness_seconds_bucket", {"le": "0.3"}) == 3


@pytest.mark.parametrize("away", ["rows 2", "counts [1, 1]", "buried 0"])
def test_what_is_away_is_waited_for_and_nothing_is_counted_twice(away: str) -> None:
    world = World([Read("segments.membership", 0, b"!")], away=[away])
    world.projector.run()
    assert world.journal == ["rows 2", "counts [1, 1]", "buried 0", "committed", "closed"]
    assert world.problems == [f"{away} does not answer", None]


@pytest.mark.parametrize("away", ["rows 2", "counts [1, 1]"])
def test_after_lost_connections_the_records_since_the_last_commit_are_written_again(away: str) -> None:
    world = World([Read("segments.membership", 0, b"!")], away=[away])
    world.outage = ConnectionsLost
    world.projector.run()
    written = ["rows 2", "counts [1, 1]", "buried 0"]
    assert world.journal == [*written, "rewound", *written, "committed", "closed"]


def test_asked_to_stop_while_a_store_is_away_it_leaves_without_committing() -> None:
    world = World([Read("segments.membership", 0, b"!")], away=["rows 2"], stop_at="take")
    world.projector.run()
    assert world.journal == ["closed"]


def test_progress_holds_its_own_offset_back_until_membership_is_there() -> None:
    world = World([Read("segments.progress", 8, b"!")])
    world.projector.run()
    assert world.journal == ["rows 0", "counts []", "buried 0", "committed[8]", "progress 0", "committed[8]", "closed"]


def test_a_failed_client_ends_it_without_a_commit() -> None:
    world = World([Read("segments.progress", 8, b"!")])
    world.client_failed = True
    with pytest.raises(ClientFailed):
        world.projector.run()
    assert world.journal == ["rows 0", "counts []", "closed"]


@pytest.mark.parametrize("poison", [{2}, {0}, {1, 4}, {0, 1, 2, 3, 4}])
def test_only_the_records_that_fail_become_dead_letters(poison: set[int]) -> None:
    world = World([Read("segments.membership", offset, b"%d" % offset) for offset in range(5)])
    world.poison, world.counted = poison, {}
    world.projector.run()
    assert world.buried == [(offset, "poison") for offset in sorted(poison)]
    assert world.written == set(range(5)) - poison
    assert {tally.entered for tally in world.counted.values()} == ({5 - len(poison)} if len(poison) < 5 else set())
    assert world.journal[-2:] == ["committed", "closed"]


def test_a_failure_that_is_not_repeated_refuses_nothing() -> None:
    world = World([Read("segments.membership", 0, b"0")])
    world.poison, world.left = {0}, 1
    world.projector.run()
    assert (world.buried, world.written) == ([], {0})


def test_a_full_disk_ends_the_process_and_refuses_nothing() -> None:
    world = World([Read("segments.membership", 0, b"0")])
    world.poison, world.error = {0}, OSError("no space left on device")
    with pytest.raises(OSError, match="no space left"):
        world.projector.run()
    assert (world.buried, world.journal) == ([], ["closed"])


def test_a_failure_without_any_record_ends_the_process_and_refuses_nothing() -> None:
    world = World([Read("segments.membership", 0, b"0")])
    world.poison = {-1}
    with pytest.raises(ZeroDivisionError):
        world.projector.run()
    assert world.buried == []


def test_a_record_whose_row_the_database_refuses_becomes_a_dead_letter() -> None:
    world = World([Read("segments.membership", offset, b"%d" % offset) for offset in range(5)])
    world.poison, world.error = {2}, StatementRefused("the key is too long")
    world.projector.run()
    assert (world.buried, world.written) == ([(2, "poison")], {0, 1, 3, 4})


def test_a_database_without_a_table_is_waited_for_and_no_record_is_refused() -> None:
    world = World([Read("segments.membership", 0, b"0")])
    world.poison, world.error, world.left, world.checks = {-1}, StatementRefused("table does not exist"), 2, [False] * 2
    world.projector.run()
    assert (world.buried, world.written) == ([], {0})


def test_a_row_that_is_refused_just_before_a_table_is_dropped_does_not_end_the_process() -> None:
    world = World([Read("segments.membership", offset, b"%d" % offset) for offset in range(3)])
    world.poison, world.error, world.checks = {1}, StatementRefused("the key is too long"), [True, False, True]
    world.projector.run()
    assert (world.buried, world.written) == ([(1, "poison")], {0, 2})


def test_asked_to_stop_while_a_table_is_missing_it_refuses_no_record() -> None:
    world = World([Read("segments.membership", 0, b"0")], stop_at="take")
    world.poison, world.error, world.checks = {-1}, StatementRefused("table does not exist"), [False] * 1_000
    world.projector.run()
    assert (world.buried, world.journal) == ([], ["closed"])
