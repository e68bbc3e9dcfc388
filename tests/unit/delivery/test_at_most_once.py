"""An attempt of a message to a person: looked at, claimed, and only then sent."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from starling_common.cassandra.read_models import TARGET, WEBHOOK
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.outcome import Done
from starling_common.records.definitions import Disabled, disabled_record
from starling_common.telemetry.metrics import Metrics
from starling_delivery.channel import Again, Answer, Delivered, Message, Park, Unknown
from starling_delivery.item import Item
from starling_delivery.messages.definitions import Definitions, fold_definition
from starling_delivery.messages.last_look import CAMPAIGN_PAUSED
from starling_delivery.policy import Request, Schedule, Step
from starling_delivery.sending.circuit import CircuitRule, Circuits
from starling_delivery.sending.dispatch import Dispatcher, Traffic
from starling_delivery.sending.lanes import Lanes
from starling_delivery.sending.semantics import AtMostOnce
from tests.unit.delivery.making import Recorded, send_all
from tests.unit.delivery.messages import definition, definitions, mail_request, message, smtp_target


class Journal(Recorded):
    """Keeps claims, sent messages and steps in one order."""

    name = "email"

    def __init__(self, *, granted: bool = True, error: Exception | None = None) -> None:
        super().__init__([])
        self.granted = granted
        self.failure = error
        self.lines: list[str] = []

    async def claim(self, item: Item) -> bool:
        self.lines.append(f"claim {item.request['user_id']}")
        await asyncio.sleep(0)
        if not self.granted:
            item.settled()  # the test waits for each item
        return self.granted

    async def send(self, sent: Message) -> Answer:
        self.lines.append(f"send {sent.user_id}")
        if self.failure is not None:
            raise self.failure
        return Delivered(250)

    async def close(self) -> None:
        """Nothing to close."""

    def record(self, item: Item, step: Step, stored: Callable[[], None]) -> None:
        self.lines.append(f"{step.outcome} {item.request['user_id']} {step.detail or ''}".strip())
        super().record(item, step, stored)


def run(
    journal: Journal,
    look: Callable[[Request, int], Message | Step | Park],
    *users: str,
    known: Definitions | None = None,
    **more: Any,
) -> list[str]:
    traffic = Traffic(Lanes(8, 64_000_000, 1000), Circuits(CircuitRule(5, 30.0)), AtMostOnce(look, journal))
    sender = Dispatcher(journal, known or definitions(), Schedule((1.0,), 3600.0), traffic, journal, Metrics(CollectorRegistry()))
    asyncio.run(send_all(sender, [mail_request(user, **more) for user in users or ("ada",)]))
    return journal.lines


def sent(request: Request, _now_ms: int) -> Message:
    return message(user_id=request["user_id"])


class Ended(Journal):
    """The transactions end with the first claims: none is ever decided."""

    ended = False

    async def claim(self, item: Item) -> bool:
        self.lines.append(f"claim {item.request['user_id']}")
        await asyncio.Future()
        return False

    def check(self) -> None:
        if self.lines:
            self.ended = True
            raise BrokerUnavailable("the transactions have ended")


def test_no_attempt_begins_after_the_transactions_have_ended() -> None:
    """Messages are still offered while the attempts in progress are cancelled. An attempt of them would never end."""
    journal, number = Ended(), 0
    traffic = Traffic(Lanes(8, 64_000_000, 1000), Circuits(CircuitRule(5, 30.0)), AtMostOnce(sent, journal))
    sender = Dispatcher(journal, definitions(), Schedule((1.0,), 3600.0), traffic, journal, Metrics(CollectorRegistry()))

    async def sending() -> None:
        nonlocal number
        running = asyncio.create_task(sender.run(asyncio.Event()))
        async with asyncio.timeout(30):
            while not running.done():
                if number < 8 or journal.ended:
                    number += sender.offer(Item(mail_request(f"u{number}"), lambda: None))
                await asyncio.sleep(0)
            await running

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(sending())
    assert raised.group_contains(BrokerUnavailable)
    assert 0 < len(journal.lines) < number


def test_an_attempt_ends_whose_channel_swallows_the_cancellation() -> None:
    class Swallowing(Journal):
        async def send(self, sent: Message) -> Answer:
            self.lines.append(f"send {sent.user_id}")
            with suppress(asyncio.CancelledError):
                await asyncio.Future()
            return Delivered(250)

        def check(self) -> None:
            if self.lines:
                raise BrokerUnavailable("the transactions have ended")

    journal = Swallowing()
    with pytest.raises(ExceptionGroup) as raised:
        run(journal, sent)
    assert raised.group_contains(BrokerUnavailable)
    assert journal.lines == ["claim ada", "send ada"]


def test_a_message_is_claimed_before_it_is_sent() -> None:
    assert run(Journal(), sent) == ["claim ada", "send ada", "SENT ada"]


def test_what_another_process_has_is_neither_sent_nor_published() -> None:
    assert run(Journal(granted=False), sent) == ["claim ada"]


def test_an_exception_of_the_channel_is_unknown_and_not_repeated() -> None:
    assert run(Journal(error=RuntimeError("lost")), sent) == ["claim ada", "send ada", "FAILED ada unknown"]


@pytest.mark.parametrize(
    ("looked", "line"),
    [
        (Step("SUPPRESSED", "archived"), "SUPPRESSED ada archived"),
        (CAMPAIGN_PAUSED, "RETRYING ada postponed: the campaign is paused"),
    ],
)
def test_what_is_not_sent_costs_no_claim(looked: Step | Park, line: str) -> None:
    journal = Journal()
    assert run(journal, lambda _request, _now_ms: looked) == [line]
    [(_, step)] = journal.steps
    assert step.retry is None or step.retry["attempt"] == 1


def disabled_targets() -> Definitions:
    """Return the definitions after the target has answered 410."""
    known = definitions()
    target = known.find("default", "main-smtp")
    stored = Disabled(TARGET, target.workspace, target.key, target.version, json.loads(target.document))
    assert isinstance(fold_definition(known, disabled_record(stored, "410 Gone", "c", "delivery", 1)), Done)
    return known


@pytest.mark.parametrize(
    ("more", "line"), [({}, "FAILED ada target_disabled"), ({"campaign": None}, "SUPPRESSED ada the target is disabled")]
)
def test_a_message_of_a_disabled_target_fails_and_is_not_sent(more: dict[str, Any], line: str) -> None:
    journal = Journal()
    assert run(journal, sent, known=disabled_targets(), **more) == [line]
    [(_, step)] = journal.steps
    assert (step.retry, step.dead) == (None, None)


def test_a_test_message_reaches_a_disabled_target() -> None:
    assert run(Journal(), sent, known=disabled_targets(), is_test=True) == ["claim ada", "send ada", "SENT ada"]


def test_a_target_that_is_disabled_in_this_process_gets_nothing_before_its_record_is_read() -> None:
    known = definitions()
    known.disable("default", "main-smtp")
    assert run(Journal(), sent, known=known) == ["FAILED ada target_disabled"]


def test_an_enabled_target_gets_messages_again() -> None:
    known = disabled_targets()
    assert (known.find("default", "main-smtp").disabled, known.problems()) == (True, [])
    fold_definition(known, definition("target", smtp_target(), "REVISED"))
    assert run(Journal(), sent, known=known) == ["claim ada", "send ada", "SENT ada"]


def test_the_record_of_a_disabled_target_is_the_stored_document_with_the_reason() -> None:
    sealed = {**smtp_target(), "username": "shop", "password": "sealed:v1:key:AAAA"}
    stored = Disabled(TARGET, "default", "main-smtp", 3, sealed)
    first, second = disabled_record(stored, "410 Gone", "c", "delivery", 1), disabled_record(stored, "another", "d", "delivery", 2)
    assert (first["kind"], first["key"], first["version"], first["action"]) == ("target", "main-smtp", 3, "DISABLED")
    assert json.loads(first["document"]) == {**sealed, "disabled": True, "disabled_because": "410 Gone"}
    assert first["event_id"] == second["event_id"]
    assert first["event_id"] != disabled_record(stored._replace(kind=WEBHOOK), "410 Gone", "c", "delivery", 1)["event_id"]


def test_a_request_that_makes_the_look_raise_fails_alone() -> None:
    def look(request: Request, now_ms: int) -> Message:
        if request["user_id"] == "bad":
            raise KeyError("variant")
        return sent(request, now_ms)

    lines = run(Journal(), look, "bad", "ada")
    assert "SENT ada" in lines
    assert any(line.startswith("FAILED bad the channel failed with KeyError") for line in lines)
    assert "claim bad" not in lines


@pytest.mark.parametrize(
    ("answer", "paused", "opened"),
    [
        (Again("429", 429, 60.0), True, False),
        (Again("429", 429, 60.0, is_of_target=False), False, False),
        (Unknown("lost"), False, True),
        (Unknown("lost", is_of_target=False), False, False),
    ],
)
def test_a_failure_of_one_address_neither_pauses_nor_opens_its_target(answer: Answer, paused: bool, opened: bool) -> None:
    class Failing(Journal):
        async def send(self, _sent: Message) -> Answer:
            return answer

    journal, circuits = Failing(), Circuits(CircuitRule(1, 30.0))
    traffic = Traffic(Lanes(1, 64_000_000, 1000), circuits, AtMostOnce(sent, journal))
    sender = Dispatcher(journal, definitions(), Schedule((1.0,), 3600.0), traffic, journal, Metrics(CollectorRegistry()))
    asyncio.run(send_all(sender, [mail_request("ada")]))
    circuit = circuits.of(definitions().find("default", "main-smtp"))
    assert (bool(circuit.paused_seconds(time.monotonic())), circuit.is_open) == (paused, opened)
