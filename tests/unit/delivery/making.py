"""Records as the tests of delivery need them."""

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from confluent_kafka import Consumer, TopicPartition
from prometheus_client import CollectorRegistry

from starling_common.outcome import Refused
from starling_common.security.sealing import Sealer
from starling_common.telemetry.metrics import Metrics
from starling_delivery.agents import Agent, Input
from starling_delivery.channel import Answer, Channel, Delivered, Message
from starling_delivery.item import Item
from starling_delivery.outbox import Outbox
from starling_delivery.policy import Request, Schedule, Step, requests_for
from starling_delivery.sending.circuit import CircuitRule, Circuits
from starling_delivery.sending.dispatch import Dispatcher, Traffic
from starling_delivery.sending.lanes import Lanes
from starling_delivery.sending.rates import Rates
from starling_delivery.sending.results import Steps
from starling_delivery.targets import Targets

SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"


def definition(key: str = "hook", action: str = "DEFINED", **document: Any) -> dict[str, Any]:
    body = {"key": key, "url": "https://example.com/hook", "secret": SECRET} | document
    return {"workspace": "default", "key": key, "version": 1, "action": action, "document": json.dumps(body)}


def targets(*definitions: dict[str, Any], sealer: Sealer | None = None) -> Targets:
    found = Targets(sealer)
    for record in definitions or (definition(),):
        found.apply(record)
    return found


def change(user: str = "ada", status: str = "ENTERED", segment: str = "vip", **more: Any) -> dict[str, Any]:
    record = {
        "event_id": f"event-of-{user}-{segment}-{status}",
        "workspace": "default",
        "user_id": user,
        "anonymous_ids": [],
        "segment_key": segment,
        "segment_name": "VIP",
        "segment_version": 1,
        "status": status,
        "sequence": 1 if status == "ENTERED" else 2,
        "effective_at": 1_000,
        "decided_at": 2_000,
        "cause": {"kind": "EVENT", "message_id": "m1", "event_name": "Order Completed"},
        "correlation_id": "c1",
        "traits": '{"plan":"pro"}',
        "memberships": [segment],
        "received_at": 1_500_000,
    }
    return record | more


def request(attempt: int = 1, first_attempt_at: int = 0, user: str = "ada", **more: Any) -> dict[str, Any]:
    [made] = requests_for(change(user), targets(), "webhook", first_attempt_at)
    return made | {"attempt": attempt} | more


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


class Recorded:
    """Keeps the steps; that of one user cannot be published."""

    def __init__(self, steps: list[tuple[str, Step]], unpublishable: str = "", error: Exception | None = None) -> None:
        self.steps = steps
        self.unpublishable = unpublishable
        self.error = error or UnicodeEncodeError("utf-8", "?", 0, 1, "surrogates not allowed")
        self.refused: list[tuple[str, str]] = []
        self.tries = 0

    def record(self, item: Item, step: Step, stored: Callable[[], None]) -> None:
        made = item.request
        if made["user_id"] == self.unpublishable:
            self.tries += 1
            raise self.error
        self.steps.append((made["delivery_id"], step))
        stored()

    def refuse(self, item: Item, why: Refused, stored: Callable[[], None]) -> None:
        self.refused.append((item.request["delivery_id"], why.code))
        stored()

    def check(self) -> None:
        """Nothing is outstanding."""


def dispatcher(
    channel: Channel,
    known: Targets,
    steps: Steps,
    *,
    slots: int = 64,
    failures: int = 5,
    lane_messages: int = 1000,
    rates: Rates | None = None,
) -> Dispatcher:
    traffic = Traffic(Lanes(slots, 64_000_000, lane_messages, rates), Circuits(CircuitRule(failures, 30.0)))
    return Dispatcher(channel, known, Schedule((1.0,), 60.0), traffic, steps, Metrics(CollectorRegistry()))


async def send_all(sender: Dispatcher, requests: Sequence[Request]) -> list[Item]:
    """Offer all requests in order, each until it is taken, and return them when their steps are stored."""
    stopping, left = asyncio.Event(), len(requests)
    if not requests:
        stopping.set()

    def settled() -> None:
        nonlocal left
        left -= 1
        if not left:
            stopping.set()

    items = [Item(one, settled) for one in requests]
    running = asyncio.create_task(sender.run(stopping))
    try:
        await asyncio.sleep(0)
        for item in items:
            while not sender.offer(item) and not running.done():  # noqa: ASYNC110 - as the agent does
                await asyncio.sleep(0.001)  # sleep: a lane is full until an attempt ends
        await running
    finally:
        running.cancel()
    return items


class MemoryConsumer:
    """A consumer of a group with one partition and these records."""

    def __init__(self, messages: Sequence[Any]) -> None:
        self.messages = list(messages)
        self.first = self.messages[0].offset()
        self.end = self.messages[-1].offset() + 1
        self.position = -1
        self._on_assign: Any = None

    def subscribe(self, topics: list[str], *, on_assign: Any, **_more: object) -> None:
        self._on_assign = partial(on_assign, self, [TopicPartition(topics[0], self.messages[0].partition())])

    def poll(self, _seconds: float) -> Any:
        if self._on_assign is not None:
            self._on_assign()
            self._on_assign = None
        return self.messages.pop(0) if self.messages else None

    def consume(self, _most: int, _seconds: float) -> list[Any]:
        messages, self.messages = self.messages, []
        return messages

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return places

    def get_watermark_offsets(self, _place: TopicPartition, timeout: float, *, cached: bool) -> tuple[int, int]:
        return self.first, self.end

    def commit(self, offsets: list[TopicPartition], **_more: object) -> None:
        self.position = offsets[-1].offset

    def close(self) -> None:
        """Nothing to close."""


async def run_agent(source: Input, consumer: MemoryConsumer, sender: Dispatcher, outbox: Outbox) -> None:
    """Run an agent until it has committed the last record, or has failed."""
    stopping = asyncio.Event()
    agent = Agent(source, cast("Consumer", consumer), sender, outbox)
    running = [asyncio.create_task(part.run(stopping)) for part in (sender, agent)]
    while consumer.position < consumer.end and not any(task.done() for task in running):  # noqa: ASYNC110 - fakes have no events
        await asyncio.sleep(0.001)  # sleep: the agent polls
    stopping.set()
    for task in reversed(running):
        await task
