"""Messages are sent concurrently, in order for one user and webhook, and a dead endpoint does not delay others."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from starling_common.kafka.clients import BrokerUnavailable
from starling_common.time.instants import wall_clock_ms
from starling_delivery.channel import Again, Answer, Channel, Delivered, Gone, Message
from starling_delivery.item import Item
from starling_delivery.policy import Step
from tests.unit.delivery.making import Recorded, Scripted, definition, dispatcher, request, send_all, targets


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
        def record(self, item: Item, step: Step, stored: Callable[[], None]) -> None:
            self.steps.append((item.request["delivery_id"], step))
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


def test_a_target_that_asks_for_a_pause_gets_it_and_no_other_message_costs_an_attempt() -> None:
    channel = Scripted({"hook": Again("the endpoint answered 429", 429, 60.0)})
    requests = [request(user=f"u{n}", delivery_id=f"d{n}", first_attempt_at=wall_clock_ms()) for n in range(9)]
    published = Recorded([])
    sender = dispatcher(channel, targets(), published, slots=1)
    before_ms = wall_clock_ms()
    asyncio.run(send_all(sender, [one | {"first_attempt_at": before_ms + 3_600_000} for one in requests]))
    assert len(channel.sent) == 1
    [attempted] = [step.retry for _, step in published.steps if not step.postponed]
    others = [step.retry for _, step in published.steps if step.postponed]
    assert (attempted or {})["attempt"] == 2
    assert [(one or {})["attempt"] for one in others] == [1] * 8
    assert {step.detail for _, step in published.steps if step.postponed} == {
        "postponed: the target asked for a pause (429 with Retry-After)"
    }
    dues_ms = [(one or {})["not_before"] - before_ms for one in others]
    assert min(dues_ms) >= 59_000


def test_a_pause_of_one_target_is_none_of_another_and_ends() -> None:
    channel = Scripted({"hook": Again("the endpoint answered 429", 429, 0.05)})
    known, published = targets(definition(), definition("other")), Recorded([])
    sender = dispatcher(channel, known, published, slots=1)
    first = [request(user=f"u{n}", first_attempt_at=wall_clock_ms()) for n in range(3)]
    second = [request(user=f"u{n}", target_key="other", delivery_id=f"o{n}") for n in range(3)]

    async def sending() -> None:
        await send_all(sender, [*first, *second])
        assert channel.sent.count(first[0]["delivery_id"]) == 1
        assert {"o0", "o1", "o2"} <= set(channel.sent)
        await asyncio.sleep(0.06)  # sleep: the pause
        channel.answers.clear()
        sender._stopping = False
        await send_all(sender, [one | {"delivery_id": "again"} for one in first[:1]])

    asyncio.run(sending())
    assert channel.sent[-1] == "again"


BATCHES = {"max_items": 100, "max_wait_ms": 50}


class Batches(Scripted):
    """A channel that keeps the users of each batch, and refuses those with a bad user."""

    def __init__(self, bad: set[str], answer: Answer | Exception | None = None) -> None:
        super().__init__()
        self.bad = bad
        self.answer = answer or Again("the endpoint answered 422", 422)
        self.batches: list[list[str]] = []

    async def send(self, message: Message) -> Answer:
        users = [one["data"]["user_id"] for one in json.loads(message.payload)["data"]]
        self.batches.append(users)
        await super().send(message)
        if not self.bad & set(users):
            return Delivered(200)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def requests_of(count: int) -> list[dict[str, Any]]:
    return [request(user=f"u{n}", first_attempt_at=wall_clock_ms()) for n in range(count)]


def test_changes_of_one_target_share_a_request() -> None:
    channel = Batches(set())
    steps = send(channel, requests_of(250), targets(definition(batch=BATCHES)))
    assert [len(batch) for batch in channel.batches] == [100, 100, 50]
    assert len(steps) == len({name for name, _ in steps}) == 250
    assert {step.outcome for _, step in steps} == {"DELIVERED"}


def test_one_refused_change_costs_the_others_no_retry() -> None:
    channel = Batches({"u37"})
    steps = send(channel, requests_of(100), targets(definition(batch=BATCHES)))
    assert len(channel.batches) <= 1 + 2 * 7
    failed = [step for _, step in steps if step.outcome != "DELIVERED"]
    assert (len(steps), len(failed)) == (100, 1)
    assert failed[0].retry is not None
    assert (failed[0].retry["user_id"], failed[0].retry["attempt"], failed[0].retry["batch_limit"]) == ("u37", 2, 1)


def test_a_change_that_no_channel_can_send_is_the_only_dead_letter_of_its_batch() -> None:
    steps = send(Batches({"u3"}, UnicodeError("no text")), requests_of(40), targets(definition(batch=BATCHES)))
    dead = [step for _, step in steps if step.dead]
    assert (len(steps), len(dead)) == (40, 1)
    assert dead[0].dead == "the channel failed with UnicodeError: no text"


def test_a_failed_batch_is_due_together_again_and_a_quarter_as_large() -> None:
    steps = send(Batches({"u3"}, Again("down", 503)), requests_of(40), targets(definition(batch=BATCHES)))
    retries = [step.retry for _, step in steps if step.retry]
    assert (len(retries), {one["batch_limit"] for one in retries}, {one["attempt"] for one in retries}) == (40, {10}, {2})
    assert len({one["not_before"] for one in retries}) == 1


def test_an_endpoint_that_refuses_everything_opens_its_circuit_and_the_parts_are_postponed() -> None:
    users = {f"u{n}" for n in range(100)}
    channel = Batches(users, Again("the endpoint answered 401", 401))
    steps = send(channel, requests_of(100), targets(definition(batch=BATCHES)))
    assert len(channel.batches) < 20
    assert (len(steps), {step.outcome for _, step in steps}) == (100, {"RETRYING"})
    postponed = [step.retry for _, step in steps if step.postponed and step.retry]
    assert {one["attempt"] for one in postponed} == {1}
    assert max(one["batch_limit"] for one in postponed) < 100


def test_the_changes_of_a_webhook_that_went_are_all_suppressed_or_dead() -> None:
    known = targets(definition(batch=BATCHES))
    steps = send(Batches({"u0"}, Gone("the endpoint answered 410 Gone", 410)), requests_of(30), known)
    assert [(step.outcome, step.disable) for _, step in steps] == [("FAILED", True)] * 30


def test_a_single_change_does_not_wait_longer_than_the_target_allows() -> None:
    channel = Batches(set())
    [(_, step)] = send(channel, requests_of(1), targets(definition(batch={"max_items": 100, "max_wait_ms": 1000})))
    assert (step.outcome, channel.batches) == ("DELIVERED", [["u0"]])


def test_while_the_process_stops_the_parts_of_a_batch_stay_uncommitted() -> None:
    async def sending() -> None:
        stopping, published = asyncio.Event(), Recorded([])
        channel = Batches({"u0"})
        sender = dispatcher(channel, targets(definition(batch=BATCHES)), published)
        running = asyncio.create_task(sender.run(stopping))
        await asyncio.sleep(0)
        items = [Item(made, lambda: None) for made in requests_of(100)]
        assert all(sender.offer(item) for item in items)
        await asyncio.sleep(0)
        stopping.set()
        await sender.drained()
        await running
        assert len(channel.batches) == 1
        assert published.steps == []

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
