"""The messenger on the fold of the stream layer, with states in memory."""

import json
from typing import Any

import pytest

from starling_common.kafka.topics import (
    BEHAVIOUR,
    BROADCASTS,
    CAMPAIGN_PROGRESS,
    CONSENT,
    DELIVERY,
    MEMBERSHIP_STATE,
    MESSENGER_PROGRESS,
    PROFILE,
    SEGMENT_CLOCK,
    SUPPRESSIONS,
    load_catalogue,
)
from starling_common.settings import Clock
from starling_common.wire import Codec
from starling_messages.campaigns import Campaigns, fold_definition
from starling_messages.details import MACHINE
from starling_messenger.agents import Messenger, Sources, describe
from starling_messenger.progress import ProgressReporter
from starling_messenger.records import BULK_TOPICS, REQUEST_TOPICS, Emitter, Formats
from starling_stream.testing import Fed, MemoryTask
from tests.unit.messages.stories import HOUR_MS, NOW, campaign

KEY = b"default/ada"
TRAITS = json.dumps({"email": "ada@example.com"})
CODECS = {name: Codec(topic.schema, 7, lambda _id: "") for name, topic in load_catalogue().topics.items()}


def filled(topic: str, **given: Any) -> bytes:
    plain = {"string": "x", "long": 0, "int": 0}
    fields = json.loads(CODECS[topic].schema)["fields"]
    rest: dict[str, Any] = {"cause": {"kind": "EVENT", "message_id": None, "event_name": None}, "status": "ENTERED"}
    for field in fields:
        kind = field["type"]["type"] if isinstance(field["type"], dict) else field["type"]
        rest.setdefault(field["name"], [] if kind == "array" else plain.get(kind) if isinstance(kind, str) else None)
    return CODECS[topic].encode({**rest, "workspace": "default", "user_id": "ada", **given})


def task(**document: Any) -> MemoryTask[Any]:
    record = {"workspace": "default", "kind": "campaign", "key": "hello", "version": 1, "action": "ACTIVATED", "recorded_at": 0}
    outcome: Any = fold_definition(Campaigns(), {**record, "document": json.dumps(campaign(**document or {"delay": "1h"}))})
    formats = Formats(CODECS[REQUEST_TOPICS["email"]], CODECS[DELIVERY], CODECS[CAMPAIGN_PROGRESS], CODECS[SUPPRESSIONS])
    progress = ProgressReporter(CODECS[MESSENGER_PROGRESS], lambda: 0)
    sources = Sources(lambda: (outcome.value, 1), lambda *_address: None)
    made = MemoryTask(describe(Messenger(CODECS.__getitem__, sources, Emitter(formats), progress, Clock.WALL, lambda: NOW * 1000)))
    made.feed(PROFILE, KEY, filled(PROFILE, change="TRAITS", traits=TRAITS, event_time=NOW))
    change = filled(MEMBERSHIP_STATE, segment_key="vip", sequence=1, effective_at=NOW, received_at=NOW * 1000)
    made.feed(MEMBERSHIP_STATE, KEY + b"/vip", change)
    return made


@pytest.mark.parametrize(
    "record",
    [
        pytest.param((PROFILE, {"change": "TRAITS", "traits": TRAITS, "event_time": NOW}), id="the same traits again"),
        pytest.param((BEHAVIOUR, {"context": '{"device":{"token":"t"}}', "properties": "{}", "name": "Opened"}), id="a device"),
    ],
)
def test_a_record_that_changes_nothing_loses_no_message_that_is_due_in_its_unit(record: tuple[str, dict[str, Any]]) -> None:
    found, (topic, given) = task(), record
    if topic == BEHAVIOUR:
        found.feed(topic, KEY, filled(topic, **given))  # the device is known from here on
    tick = Fed(SEGMENT_CLOCK, None, filled(SEGMENT_CLOCK, instant=NOW + 2 * HOUR_MS))
    found.feed_all([tick, Fed(topic, KEY, filled(topic, **given))])
    assert len(found.take_outputs(REQUEST_TOPICS["email"])) == 1
    assert found.take_outputs(REQUEST_TOPICS["email"]) == []


def test_what_a_program_opened_does_not_count_and_does_not_hide_the_person() -> None:
    found = task()
    found.feed_all([Fed(SEGMENT_CLOCK, None, filled(SEGMENT_CLOCK, instant=NOW + 2 * HOUR_MS))])
    (requested,) = found.take_outputs(REQUEST_TOPICS["email"])
    message = CODECS[REQUEST_TOPICS["email"]].decode(requested.value)
    found.take_outputs(CAMPAIGN_PROGRESS)
    steps = []
    for detail in (MACHINE, None, None):
        report = {"delivery_id": message["delivery_id"], "campaign": message["campaign"], "outcome": "OPENED", "detail": detail}
        found.feed(DELIVERY, KEY, filled(DELIVERY, event_time=NOW + 3 * HOUR_MS, **report))
        steps.append(len(found.take_outputs(CAMPAIGN_PROGRESS)))
    assert steps == [0, 1, 0]


def test_soft_bounces_suppress_the_address_in_its_own_topic() -> None:
    found = task()
    for number in range(5):
        at = NOW + number * 2 * HOUR_MS
        if number:
            change = {"sequence": 2 * number + 1, "effective_at": at, "received_at": at * 1000, "segment_key": "vip"}
            found.feed(MEMBERSHIP_STATE, KEY + b"/vip", filled(MEMBERSHIP_STATE, **change))
        found.feed(SEGMENT_CLOCK, None, filled(SEGMENT_CLOCK, instant=at + 2 * HOUR_MS - 1))
        [request] = found.take_outputs(REQUEST_TOPICS["email"])
        delivery = CODECS[REQUEST_TOPICS["email"]].decode(request.value)["delivery_id"]
        bounce = {"delivery_id": delivery, "outcome": "BOUNCED", "campaign": "hello", "soft_bounce": "d1", "event_time": at}
        found.feed(DELIVERY, KEY, filled(DELIVERY, **bounce, received_at=at * 1000))
    [output] = found.take_outputs(SUPPRESSIONS)
    record = CODECS[SUPPRESSIONS].decode(output.value)
    assert output.key == b"default/email/d1"
    assert {name: record[name] for name in ("workspace", "channel", "digest", "kind")} == {
        "workspace": "default", "channel": "email", "digest": "d1", "kind": "soft_bounces",
    }  # fmt: skip


def listed(at: int = NOW) -> bytes:
    return filled(BROADCASTS, campaign="hello", received_at=at * 1000)


def broadcast_task() -> MemoryTask[Any]:
    return task(trigger={"broadcast": "vip", "at": "2026-01-01T01:00:00Z"})


def tick(found: MemoryTask[Any], at: int) -> None:
    found.feed_all([Fed(SEGMENT_CLOCK, None, filled(SEGMENT_CLOCK, instant=at))])


def test_a_listed_member_gets_one_bulk_request() -> None:
    found = broadcast_task()
    tick(found, NOW + HOUR_MS)
    found.feed_all([Fed(BROADCASTS, KEY, listed())])
    found.feed_all([Fed(BROADCASTS, KEY, listed())])
    tick(found, NOW + 2 * HOUR_MS)
    assert len(found.take_outputs(BULK_TOPICS["email"])) == 1
    assert found.take_outputs(REQUEST_TOPICS["email"]) == []


def test_a_listed_user_who_has_left_gets_nothing() -> None:
    found = broadcast_task()
    tick(found, NOW + HOUR_MS)
    left = NOW + HOUR_MS + 1
    change = filled(MEMBERSHIP_STATE, segment_key="vip", status="EXITED", sequence=2, effective_at=left, received_at=left * 1000)
    found.feed(MEMBERSHIP_STATE, KEY + b"/vip", change)
    tick(found, left + 1)
    found.feed_all([Fed(BROADCASTS, KEY, listed(left + 1))])
    tick(found, NOW + 2 * HOUR_MS)
    assert found.take_outputs(BULK_TOPICS["email"]) == []
    [step] = found.take_outputs(CAMPAIGN_PROGRESS)
    assert CODECS[CAMPAIGN_PROGRESS].decode(step.value)["reason"] == "left_segment"


@pytest.mark.parametrize("unsubscribes", [True, False])
def test_an_unsubscribe_during_a_broadcast_drops_the_message_of_a_listed_member(unsubscribes: bool) -> None:
    """Other members are already written: the broadcast is due for an hour when the person unsubscribes."""
    found = task(trigger={"broadcast": "vip", "at": "2026-01-01T01:00:00Z"}, purpose="marketing")
    due, later = NOW + HOUR_MS, NOW + HOUR_MS + 60_000
    found.feed(CONSENT, KEY, consent(NOW, granted=True))
    tick(found, due)
    if unsubscribes:
        found.feed(CONSENT, KEY, consent(later, granted=False))
    tick(found, later + 1)
    found.feed_all([Fed(BROADCASTS, KEY, listed(later + 1))])
    tick(found, NOW + 2 * HOUR_MS)
    steps = [CODECS[CAMPAIGN_PROGRESS].decode(one.value) for one in found.take_outputs(CAMPAIGN_PROGRESS)]
    expected = ("DROPPED", "no_consent", 0) if unsubscribes else ("REQUESTED", None, 1)
    requests = len(found.take_outputs(BULK_TOPICS["email"]))
    assert [(one["step"], one["reason"], requests) for one in steps] == [expected]


def consent(at: int, *, granted: bool) -> bytes:
    given = {"channel": "email", "granted": granted, "source": "page", "changed_at": at}
    return filled(CONSENT, **given, received_at=at * 1000)
