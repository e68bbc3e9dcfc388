"""How many decisions a second the messenger makes, and what an event costs that no campaign wants, without a broker.

    python benchmarks/messenger.py [--records 40000]      prints one JSON document; `make bench-delivery` writes it

Each case runs on the fold of the stream layer with states in memory, three times; the median counts. The empty processor decodes
the fields that every service needs and does nothing else.
"""

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

from starling_common.kafka.topics import (
    BEHAVIOUR,
    CAMPAIGN_PROGRESS,
    DELIVERY,
    MEMBERSHIP_STATE,
    MESSENGER_PROGRESS,
    SUPPRESSIONS,
    load_catalogue,
)
from starling_common.outcome import Done
from starling_common.settings import Clock
from starling_common.wire import Codec, FieldReader
from starling_messages.campaigns import Campaigns, fold_definition
from starling_messenger.agents import Messenger, Sources, describe
from starling_messenger.progress import ProgressReporter
from starling_messenger.records import REQUEST_TOPICS, Emitter, Formats
from starling_stream.model.processor import Decoded, Inbound, Service, Unit, WithoutPlan
from starling_stream.testing import Fed, MemoryTask

START_MS = 1_767_225_600_000
USERS = 10_000
UNIT = 500
ROUNDS = 3
TRAITS = json.dumps({"email": "ada@example.com", "name": "Ada", "consent": {"email": True}, "plan": "pro", "city": "Berlin"})


class Empty(WithoutPlan[None]):
    """Decodes an event and does nothing."""

    def __init__(self, codec: Codec) -> None:
        self._read = FieldReader(codec, ("received_at", "event_time", "order", "previous_order"))

    def decode(self, _topic: str, value: bytes) -> Decoded:
        received_at, event_time, order, previous = self._read(value)
        return Decoded(None, order or received_at, event_time, None, previous if order else None)

    def encode_state(self, _state: None) -> bytes:
        return b""

    def decode_state(self, _data: bytes) -> None:
        return None

    def process(self, record: Inbound, unit: Unit[None]) -> None:
        pass

    def fire(self, key: bytes, unit: Unit[None]) -> None:
        pass


def codec(topic: str) -> Codec:
    return Codec(load_catalogue().topics[topic].schema, 7, lambda _id: "")


def campaigns(purpose: str) -> Campaigns:
    """Return twenty campaigns on entries, one of them on the segment of the benchmark, and three on events."""
    found = Campaigns()
    for number in range(23):
        trigger = {"enter": f"segment-{number}"} if number < 20 else {"event": {"event": f"Event {number}"}}
        document = {
            "key": f"campaign-{number}", "name": "x", "trigger": trigger, "channel": "email", "target": "smtp", "purpose": purpose,
            "variants": [{"key": "a", "weight": 100, "content": {"subject": "x", "text": "x"}}],
        }  # fmt: skip
        record = {"workspace": "acme", "kind": "campaign", "key": document["key"], "version": 1, "action": "ACTIVATED"}
        outcome = fold_definition(found, {**record, "document": json.dumps(document), "recorded_at": 0})
        assert isinstance(outcome, Done)
        found = outcome.value
    policy = {"quiet_hours": {"from": "21:00", "to": "08:00"}, "caps": [{"limit": 100, "per": "7d"}], "timezone": "UTC"}
    record = {"workspace": "acme", "kind": "policy", "key": "policy", "version": 1, "action": "REVISED", "recorded_at": 0}
    outcome = fold_definition(found, {**record, "document": json.dumps(policy)})
    assert isinstance(outcome, Done)
    return outcome.value


def messenger(purpose: str) -> Service[Any]:
    formats = Formats(codec(REQUEST_TOPICS["email"]), codec(DELIVERY), codec(CAMPAIGN_PROGRESS), codec(SUPPRESSIONS))
    sources = Sources(lambda: (known, 0), lambda *_address: None)
    known = campaigns(purpose)
    reporter = ProgressReporter(codec(MESSENGER_PROGRESS), lambda: 0)
    return describe(Messenger(codec, sources, Emitter(formats), reporter, Clock.WALL, lambda: START_MS * 1000))


def empty(_purpose: str) -> Service[Any]:
    return Service("empty", (BEHAVIOUR,), Empty(codec(BEHAVIOUR)), 20, Clock.WALL)


def events(count: int) -> Iterable[Fed]:
    """Return events of a shop that no campaign selects."""
    encode = codec(BEHAVIOUR).encode
    properties = '{"revenue":29.9,"category":"shoes","product_id":"sku-1","quantity":2,"currency":"EUR"}'
    for number in range(count):
        user, at = f"user-{number % USERS}", START_MS + number
        value = {
            "received_at": at * 1000, "workspace": "acme", "user_id": user, "anonymous_ids": [], "event_id": f"e-{number}",
            "message_id": f"m-{number}", "kind": "track", "name": "Order Completed", "event_time": at, "raw_timestamp": None,
            "raw_sent_at": None, "properties": properties, "context": "{}", "traits": TRAITS, "products": [],
            "correlation_id": "c", "order": at * 1000, "previous_order": at * 1000 - 1000,
        }  # fmt: skip
        yield Fed(BEHAVIOUR, f"acme/{user}".encode(), encode(value))


def entries(count: int) -> Iterable[Fed]:
    """Return entries into the segment of one campaign, one for each person in turn."""
    encode = codec(MEMBERSHIP_STATE).encode
    for number in range(count):
        user, at = f"user-{number % USERS}", START_MS + 12 * 3_600_000 + number
        value = {
            "event_id": f"e-{number}", "workspace": "acme", "user_id": user, "anonymous_ids": [], "segment_key": "segment-7",
            "segment_name": "x", "segment_version": 1, "status": "ENTERED", "sequence": 2 * (number // USERS) + 1,
            "effective_at": at, "decided_at": at, "cause": {"kind": "EVENT", "message_id": "m", "event_name": "x"},
            "correlation_id": "c", "traits": TRAITS, "memberships": ["segment-7"], "received_at": at * 1000,
        }  # fmt: skip
        yield Fed(MEMBERSHIP_STATE, f"acme/{user}/segment-7".encode(), encode(value))


def profiles() -> Iterable[Fed]:
    encode = codec("events.profile").encode
    for number in range(USERS):
        value = {
            "received_at": START_MS * 1000 + number, "workspace": "acme", "user_id": f"user-{number}", "anonymous_ids": [],
            "event_id": "e", "message_id": "m", "change": "TRAITS", "event_time": START_MS, "changed": [], "traits": TRAITS,
            "group_id": None, "group_traits": "{}", "previous_id": None, "context": "{}", "correlation_id": "c",
            "order": START_MS * 1000 + number, "previous_order": 0,
        }  # fmt: skip
        yield Fed("events.profile", f"acme/user-{number}".encode(), encode(value))


def rate(service: Callable[[str], Service[Any]], purpose: str, warm_up: list[Fed], records: list[Fed]) -> tuple[float, int]:
    """Return records a CPU second, the median of the rounds, and the number of outputs of the last round."""
    found = []
    for _ in range(ROUNDS):
        task = MemoryTask(service(purpose))
        feed(task, warm_up)
        task.take_outputs()
        gc.collect()
        gc.disable()  # as in a worker
        started = time.process_time()
        feed(task, records)
        found.append(len(records) / (time.process_time() - started))
        gc.enable()
    return statistics.median(found), len(task.take_outputs())


def feed(task: MemoryTask[Any], records: list[Fed]) -> None:
    for start in range(0, len(records), UNIT):
        task.feed_all(records[start : start + UNIT])


def measured(count: int) -> dict[str, Any]:
    """Return the rates with so many records, in records a CPU second."""
    seen, entered, known = list(events(count)), list(entries(count)), list(profiles())
    nothing, _ = rate(empty, "", [], seen)
    unwanted, _ = rate(messenger, "transactional", [], seen)
    requested, outputs = rate(messenger, "transactional", known, entered)
    marketing, _ = rate(messenger, "marketing", known, entered)
    assert outputs == 2 * len(entered), f"{outputs} outputs of {len(entered)} entries"
    return {
        "records": count,
        "rounds": ROUNDS,
        "empty_processor_events_per_cpu_second": round(nothing),
        "unwanted_events_per_cpu_second": round(unwanted),
        "unwanted_of_empty": round(unwanted / nothing, 2),
        "decisions_per_cpu_second": round(requested),
        "marketing_decisions_per_cpu_second": round(marketing),
    }


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--records", type=int, default=40_000)
    print(json.dumps(measured(arguments.parse_args().records), indent=2))


if __name__ == "__main__":
    main()
