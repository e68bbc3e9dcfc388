"""Messages are sent concurrently, in order for one user and webhook, and a dead endpoint does not delay others."""

import asyncio
from typing import Any

import pytest

from starling_common.kafka.clients import BrokerUnavailable
from starling_common.time.instants import wall_clock_ms
from starling_delivery.channel import Again, Answer, Channel, Delivered, Message
from starling_delivery.dispatch import Dispatcher
from starling_delivery.policy import Schedule, Step
from tests.unit.delivery.making import Recorded, definition, request, targets


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


def send(channel: Channel, requests: list[dict[str, Any]], known: Any = None, in_flight: int = 8) -> list[tuple[str, Step]]:
    steps: list[tuple[str, Step]] = []
    dispatcher = Dispatcher(channel, known or targets(), Schedule((1.0,), 60.0), in_flight, failures_before_pause=3)
    asyncio.run(dispatcher.send(requests, Recorded(steps)))
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


def test_different_people_do_not_wait_for_one_another_but_for_a_place() -> None:
    channel = Scripted()
    send(channel, [request(user=f"u{n}", delivery_id=f"d{n}") for n in range(40)], in_flight=5)
    assert channel.most_under_way == 5


def test_a_dead_endpoint_is_asked_a_few_times_only() -> None:
    channel = Scripted({"hook": Again("down")})
    requests = [request(user=f"u{n}", delivery_id=f"d{n}", first_attempt_at=wall_clock_ms()) for n in range(30)]
    steps = send(channel, requests, in_flight=1)
    assert len(channel.sent) == 3
    assert {step.outcome for _, step in steps} == {"RETRYING"}
    assert sum("postponed" in (step.detail or "") for _, step in steps) == 27


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
        dispatcher = Dispatcher(channel, targets(), Schedule((1.0,), 60.0), 8, failures_before_pause=3)
        sending = asyncio.create_task(dispatcher.send([request()], Recorded(steps)))
        await channel.begun.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending

    asyncio.run(cancelled())
    assert steps == []


def test_a_step_that_cannot_be_published_is_a_dead_letter_and_stops_no_other() -> None:
    published = Recorded([], "u3")
    dispatcher = Dispatcher(Scripted(), targets(), Schedule((1.0,), 60.0), 8, failures_before_pause=3)
    asyncio.run(dispatcher.send([request(user=f"u{n}", delivery_id=f"d{n}") for n in range(9)], published))
    assert sorted(name for name, _ in published.steps) == [f"d{n}" for n in range(9) if n != 3]
    assert (published.refused, published.tries) == ([("d3", "poison")], 2)


def test_a_broker_away_is_no_failure_of_a_request() -> None:
    published = Recorded([], "u3", BrokerUnavailable("away"))
    dispatcher = Dispatcher(Scripted(), targets(), Schedule((1.0,), 60.0), 8, failures_before_pause=3)
    with pytest.raises(ExceptionGroup, match="unhandled errors"):
        asyncio.run(dispatcher.send([request(user="u3")], published))
    assert published.refused == []
