"""Adapter for tests: the segmenter on a `MemoryTask`, with events, profiles and definitions as inputs.

segmenter = MemorySegmenter()
segmenter.define("buyers", {"event": "Order Completed"})
segmenter.track("u1", "Order Completed", at_ms=1000)
assert segmenter.changes() == [("u1", "buyers", "ENTERED", 1, 1000, "EVENT")]
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry

from starling_common.cassandra.read_models import BACKFILL
from starling_common.failpoints.raising import Raising
from starling_common.kafka.topics import (
    ACCOUNT_ANSWERS,
    ACCOUNT_TALLIES,
    BACKFILL_STATES,
    BEHAVIOUR,
    CLOCK,
    DELIVERY,
    LIST_MEMBERSHIP,
    MEMBERSHIP,
    PROFILE,
    load_catalogue,
)  # fmt: skip
from starling_common.outcome import Refused
from starling_common.settings import Clock
from starling_common.telemetry.metrics import Metrics
from starling_common.values import record_key
from starling_common.wire import Codec, Record
from starling_rules.backfills import EVERYWHERE, Backfill, to_json
from starling_segmenter.agents import Segmenter, describe
from starling_segmenter.counts import Counts
from starling_segmenter.records.formats import build_formats
from starling_segmenter.state.states import State
from starling_segmenter.switching.definition_log import DefinitionLog
from starling_segments import WRITTEN_FORMAT, UserState, encode_state, state_encoder
from starling_stream.testing import Fed, MemoryTask

NOW_MICROS: Final = 1_900_000_000_000_000
"""The wall clock of every test."""


class FeedEntry(NamedTuple):
    """A membership record in short."""

    user: str
    segment: str
    status: str
    sequence: int
    effective_at: int
    cause: str


class MemorySegmenter:
    """One task. Users and segments belong to `workspace` unless a call names another one."""

    def __init__(self, clock: Clock = Clock.EVENT, workspace: str = "default", armed: Raising | None = None) -> None:
        self.workspace = workspace
        self.armed = armed
        self.delivers = True
        self.state_format = WRITTEN_FORMAT
        """That of the next process."""
        self.refused: list[Refused] = []
        self.metrics = Metrics(CollectorRegistry())
        self.log = DefinitionLog()
        self.stream_clock = clock
        self.task: MemoryTask[State] = MemoryTask(describe(self._processor()))
        self._numbers = count(1)

    def define(
        self, key: str, where: object, *, version: int = 1, action: str = "DEFINED", awaits_backfill: bool = False, **more: Any
    ) -> None:
        """One `DefinitionChanged`; `more` are fields of the segment's document."""
        document = {"key": key, "name": key.title(), "where": where, **more}
        self.record_definition(key, json.dumps(document), version=version, action=action, awaits_backfill=awaits_backfill)
        self.task.settle()

    def record_definition(
        self, key: str, document: str, *, version: int = 1, action: str = "DEFINED", awaits_backfill: bool = False
    ) -> None:
        """One `DefinitionChanged` with that text. It takes effect with the next record, or when the task settles."""
        self.append(
            {
                "kind": "segment",
                "workspace": self.workspace,
                "key": key,
                "version": version,
                "action": action,
                "document": document,
                "correlation_id": f"definition-{key}-{version}-{action}",
                "awaits_backfill": awaits_backfill,
            }
        )

    def append(self, record: Record) -> None:
        """Append one `DefinitionChanged` to the log."""
        outcome = self.log.append(record)
        if isinstance(outcome, Refused):
            self.refused.append(outcome)

    def backfilled(self, backfill: Backfill, states: Mapping[bytes, UserState]) -> None:
        """Write the states of a run, then its end."""
        codec = CODECS[BACKFILL_STATES]
        fields = {"recorded_at": NOW_MICROS, "run": backfill.run}
        values = [
            Fed(BACKFILL_STATES, key, codec.encode({**fields, "state": encode_state(state)})) for key, state in states.items()
        ]
        self.task.put_aside(values)
        self.append({"kind": BACKFILL, "workspace": EVERYWHERE, "key": backfill.run, "document": to_json(backfill)})
        self.task.settle()

    def archive(self, key: str, version: int = 1) -> None:
        """Archive the segment."""
        self.record_definition(key, "{}", version=version, action="ARCHIVED")
        self.task.settle()

    def track(self, user: str, name: str, at_ms: int, properties: object = None, **more: Any) -> None:
        """One `BehaviourEvent`; `more` are fields of the record. A text is used as JSON unchanged."""
        record = self._record(user, at_ms) | {
            "message_id": f"message-{next(self._numbers)}",
            "kind": "track",
            "name": name,
            "properties": properties if isinstance(properties, str) else json.dumps(properties or {}),
            "context": "{}",
            "traits": "{}",
        }
        self._feed(BEHAVIOUR, user, record | more)

    def identify(self, user: str, traits: object, at_ms: int, **more: Any) -> None:
        """One `ProfileChanged` with that snapshot."""
        record = self._record(user, at_ms) | {
            "change": "TRAITS",
            "traits": traits if isinstance(traits, str) else json.dumps(traits),
            "group_traits": "{}",
            "context": "{}",
        }
        self._feed(PROFILE, user, record | more)

    def listed(self, user: str, key: str, *, is_on: bool = True, **more: Any) -> None:
        """One `ListMembershipChanged`; under the wall clock at `NOW_MICROS`."""
        record = self._record(user, 0) | {"list_key": key, "on_list": is_on} | more
        headers = [("traceparent", f"trace-of-{record['correlation_id']}".encode())]
        state_key = record_key(self.workspace, user)
        self.task.feed(LIST_MEMBERSHIP, b"%b/%b" % (state_key, key.encode()), CODECS[LIST_MEMBERSHIP].encode(record), list(headers))

    def report(self, user: str, outcome: str, at_ms: int = NOW_MICROS // 1000, **more: Any) -> None:
        """One `DeliveryReported`; `at_ms` is by the channel's wall clock, a minute after the item behind it was received."""
        record = self._record(user, at_ms) | {
            "received_at": at_ms * 1000 - 60_000_000,
            "delivery_id": f"delivery-{next(self._numbers)}",
            "channel": "webhook",
            "target_key": "crm",
            "outcome": outcome,
            "attempt": 1,
        }
        self._feed(DELIVERY, user, record | more)

    def clock(self, instant_ms: int, **more: Any) -> None:
        """One `ClockAdvanced`."""
        record = {"received_at": NOW_MICROS + next(self._numbers), "instant": instant_ms, "correlation_id": "clock"} | more
        self.task.feed(CLOCK, None, CODECS[CLOCK].encode(record))

    def restart(self) -> None:
        """Start a new process: states are decoded from their bytes, definitions are read again, only written records remain."""
        written = self.task.outputs
        self.task = self.task.restart(describe(self._processor()))
        self.task.outputs = written

    def records(self, topic: str = MEMBERSHIP) -> list[dict[str, Any]]:
        """Return the records written to a topic since the last call."""
        return [CODECS[topic].decode(output.value) for output in self.task.take_outputs(topic)]

    def changes(self) -> list[FeedEntry]:
        """Return the membership feed since the last call."""
        if self.delivers:
            self.deliver()
        return [_seen(record) for record in self.records()]

    def user_states(self) -> dict[bytes, UserState]:
        """Return the states of users as stored."""
        return {key: state for key, state in self.task.states().items() if isinstance(state, UserState)}

    def members(self, segment: str) -> set[str]:
        """Return the members, according to the stored states."""
        return {
            key.decode().partition("/")[2]
            for key, state in self.user_states().items()
            if segment in state.memberships and state.memberships[segment].member
        }

    def deliver(self) -> None:
        """Process the records between users and accounts until there are none."""
        while outputs := [*self.task.take_outputs(ACCOUNT_ANSWERS), *self.task.take_outputs(ACCOUNT_TALLIES)]:
            for output in outputs:
                self.task.feed(output.topic, output.key, output.value, output.headers)

    def _processor(self) -> Segmenter:
        formats = replace(_FORMATS, encode_user=state_encoder(self.state_format))
        return Segmenter(formats, self.log, Counts(self.metrics), self.stream_clock, lambda: NOW_MICROS, self.armed)

    def _record(self, user: str, at_ms: int) -> dict[str, Any]:
        number = next(self._numbers)
        return {
            "received_at": NOW_MICROS + number,
            "workspace": self.workspace,
            "user_id": user,
            "event_id": f"event-{number}",
            "event_time": at_ms,
            "correlation_id": f"request-{number}",
        }

    def _feed(self, topic: str, user: str, record: Mapping[str, Any]) -> None:
        headers = [("traceparent", f"trace-of-{record['correlation_id']}".encode())]
        self.task.feed(topic, record_key(self.workspace, user), CODECS[topic].encode(record), list(headers))


def _seen(record: Mapping[str, Any]) -> FeedEntry:
    return FeedEntry(
        record["user_id"],
        record["segment_key"],
        record["status"],
        record["sequence"],
        record["effective_at"],
        record["cause"]["kind"],
    )


def _unknown(schema_id: int) -> str:
    raise LookupError(schema_id)


CODECS: Final = {topic: Codec(entry.schema, 1, _unknown) for topic, entry in load_catalogue().topics.items()}
_FORMATS: Final = build_formats(lambda topic, _schema: CODECS[topic])
