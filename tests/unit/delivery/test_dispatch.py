"""Messages are sent concurrently, in order for one user and webhook, and a dead endpoint does not delay others."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from starling_common.kafka.clients import BrokerUnavailable
from starling_common.time.instants import wall_clock_ms
from starling_delivery.channel import Again, Answer, Channel, Delivered, Message
from starling_delivery.policy import Request, Step
from starling_delivery.sending.lanes import Item
from tests.unit.delivery.making import Recorded, definition, dispatcher, request, send_all, targets


class Scripted:
    """A channel with scripted results that records concurrent attempts."""

    name = "scripted"

    def __init__(self, answers: dict[str, Answer] | None = None) -> None:
        self.answers = answers or {}
        self.sent: list[str] = []
        self.under_way = 0
        self.most_under_way = 0

    async def send(self, message: Message) -> Answer:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0.001)  # sleep: the duration of an attempt
        self.under_way -= 1
        self.sent.append(message.delivery_id)
        return self.answers.get(message.target_key, Delivered(200))

    async def close(self) -> None:
        return None


def send(channel: Channel, requests: list[dict[str, Any]], known: Any = None, slots: int = 64) -> list[tuple[str, Step]]:
    steps: list[tuple[str, Step]] = []
    asyncio.run(send_all(dispatcher(channel, known or targets(), Recorded(steps), slots=slots, failures=3), requests))
    return steps


def test_every_request_gets_one_step() -> None:
    requests = [request(user=f"u{n % 7}", delivery_id=f"d{n}") for n in range(50)]
    steps = send(Scripted(), requests)
    assert sorted(name for name, _ in steps) == sorted(made["delivery_id"] for made in requests)
    assert {step.outcome for _, step in steps} == {"DELIVERED"}


def test_one_persons_messages_go_out_in_order() -> None:
    channel = Scripted()
    send(channel, [request(delivery_id=f"d{n}") for n in range(20)])
    assert channel.sent == [f"d{n}" for n in range(20)]
    assert channel.most_under_way == 1


def test_different_people_do_not_wait_for_one_another_but_for_a_slot() -> None:
    channel = Scripted()
    send(channel, [request(user=f"u{n}", delivery_id=f"d{n}") for n in range(40)], slots=20)
    assert channel.most_under_way == 5


def test_the_circuit_of_a_dead_endpoint_opens_and_its_messages_cost_no_attempt() -> None:
    channel = Scripted({"hook": Again("down")})
    requests = [request(user=f"u{n}", delivery_id=f"d{n}", first_attempt_at=wall_clock_ms()) for n in range(30)]
    steps = send(channel, requests, slots=1)
    assert len(channel.sent) == 3
    assert {step.outcome for _, step in steps} == {"RETRYING"}
    postponed = [step for _, step in steps if step.detail != "down"]
    assert {step.detail for step in postponed} == {"postponed: the circuit of the target is open: 3 attempts in a row failed"}
    assert [step.retry["attempt"] for step in postponed if step.retry] == [1] * 27


def test_the_circuit_outlives_the_messages_that_opened_it_and_a_new_version_closes_it() -> None:
    channel, published, known = Scripted({"hook": Again("down")}), Recorded([]), targets()
    sender = dispatcher(channel, known, published, failures=3)
    requests = [request(user=f"u{n}", delivery_id=f"d{n}", first_attempt_at=wall_clock_ms()) for n in range(5)]

    async def sending() -> None:
        await send_all(sender, requests[:3])
        assert len(channel.sent) == 3
        assert sender.offer(Item(requests[3], lambda: None))
        assert len(channel.sent) == 3
        known.apply(definition() | {"version": 2})
        sender._stopping = False
        await send_all(sender, requests[4:])

    asyncio.run(sending())
    assert channel.sent == ["d0", "d1", "d2", "d4"]


def test_a_message_in_a_lane_is_stored_before_its_record_counts_as_processed() -> None:
    class Unstored(Recorded):
        def record(self, made: Request, step: Step, stored: Callable[[], None]) -> None:
            self.steps.append((made["delivery_id"], step))
            callbacks.append(stored)

    callbacks: list[Callable[[], None]] = []
    settled: list[str] = []

    async def sending() -> None:
        stopping = asyncio.Event()
        sender = dispatcher(Scripted(), targets(), Unstored([]))
        running = asyncio.create_task(sender.run(stopping))
        await asyncio.sleep(0)
        assert sender.offer(Item(request(), lambda: settled.append("ada")))
        await sender.drained()
        assert settled == []
        callbacks.pop()()
        assert settled == ["ada"]
        stopping.set()
        await running

    asyncio.run(sending())


def test_nothing_is_sent_to_a_webhook_that_is_off_or_gone() -> None:
    channel = Scripted()
    known = targets(definition("off", disabled=True))
    steps = send(channel, [request(target_key="off"), request(target_key="gone", user="bob")], known)
    assert [step.outcome for _, step in steps] == ["SUPPRESSED", "SUPPRESSED"]
    assert channel.sent == []


class Raising(Scripted):
    """A channel with a defect that one target brings out."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def send(self, message: Message) -> Answer:
        if message.target_key == "bad":
            raise self.error
        return await super().send(message)


@pytest.mark.parametrize("error", [UnicodeError("label too long"), KeyError("x"), ExceptionGroup("two", [OSError(), OSError()])])
def test_a_channel_that_raises_makes_one_dead_letter(error: Exception) -> None:
    requests = [request(user=f"u{n}", delivery_id=f"d{n}", target_key="bad" if n == 0 else "hook") for n in range(5)]
    steps = dict(send(Raising(error), requests, targets(definition(), definition("bad"))))
    assert {name: step.outcome for name, step in steps.items()} == {
        "d0": "FAILED", "d1": "DELIVERED", "d2": "DELIVERED", "d3": "DELIVERED", "d4": "DELIVERED"
    }  # fmt: skip
    assert steps["d0"].dead == f"the channel failed with {type(error).__name__}: {error}"


class Endless(Scripted):
    """A channel whose other side never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    async def send(self, message: Message) -> Answer:
        self.begun.set()
        return await asyncio.Future[Answer]()


def test_a_cancellation_is_no_outcome() -> None:
    steps: list[tuple[str, Step]] = []

    async def cancelled() -> None:
        channel = Endless()
        sending = asyncio.create_task(send_all(dispatcher(channel, targets(), Recorded(steps)), [request()]))
        await channel.begun.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending

    asyncio.run(cancelled())
    assert steps == []


def test_a_step_that_cannot_be_published_is_a_dead_letter_and_stops_no_other() -> None:
    published = Recorded([], "u3")
    requests = [request(user=f"u{n}", delivery_id=f"d{n}") for n in range(9)]
    asyncio.run(send_all(dispatcher(Scripted(), targets(), published), requests))
    assert sorted(name for name, _ in published.steps) == [f"d{n}" for n in range(9) if n != 3]
    assert (published.refused, published.tries) == ([("d3", "poison")], 2)


def test_a_broker_away_is_no_failure_of_a_request() -> None:
    published = Recorded([], "u3", BrokerUnavailable("away"))
    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        asyncio.run(send_all(dispatcher(Scripted(), targets(), published), [request(user="u3")]))
    assert published.refused == []
