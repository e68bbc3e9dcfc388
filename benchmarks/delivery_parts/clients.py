"""The bare loops that the processes of delivery are compared with: `python -m delivery_parts.clients LOOP …`.

    decode TOPIC COUNT          reads and decodes so many records, and awaits a channel that does nothing
    report TOPIC COUNT          the same, and publishes an outcome for each record, without waiting for the broker
    httpx URL COUNT             POSTs so many prepared bodies, 64 at a time, with a client for each
    httpx_shared URL COUNT      the same with one client, whose pool all of them share
    aiohttp URL COUNT           the same with one client of aiohttp
    smtp PORT COUNT             sends so many prepared mails through 32 connections

Prints a JSON list: requests after the warm-up, their seconds, and the CPU seconds of the process. No loop signs, retries, limits or
commits anything.
"""

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, Final

import aiosmtplib
import httpx
from common.bench import Rate
from confluent_kafka import Consumer, Producer

from delivery_parts import records
from delivery_parts.processes import WARM_UP
from starling_common.kafka.clients import bounded_queue, consumer_config, producer_config
from starling_common.kafka.topics import DELIVERY, MEMBERSHIP, load_catalogue
from starling_common.records.membership_json import membership_json
from starling_common.values import deterministic_id, record_key
from starling_common.wire import Record, RecordReader, Registry
from starling_delivery.channel import Delivered, Message
from starling_delivery.channels.email.rendering import Mail, mail_of
from starling_delivery.policy import standard_body

AT_ONCE: Final = 64
"""As many as the kit allows to one target: a quarter of 256."""
CONNECTIONS: Final = 32
"""As many as the channel `email` opens to one target."""
_BODIES: Final = 500
_QUEUE_KBYTES: Final = 1_024
"""What is read ahead before the measured records costs them nothing: less than two thousand records."""


class Meter:
    """Counts requests; the rate is that of those after the warm-up."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._first = int(count * WARM_UP)
        self._done = 0
        self._began = self._cpu = 0.0

    def done(self) -> None:
        self._done += 1
        if self._done == self._first:
            self._began, self._cpu = time.monotonic(), time.process_time()

    def rate(self) -> Rate:
        assert self._done == self._count, f"{self._done} of {self._count} requests"
        return Rate(self._done - self._first, time.monotonic() - self._began, time.process_time() - self._cpu)


async def decode(topic: str, count: int, *, reports: bool = False) -> Rate:
    registry = Registry(os.environ["STARLING_REGISTRY__URL"])
    codec = registry.codec(topic, load_catalogue().topics[topic].schema)
    publish = Outcomes(registry).publish if reports else None
    # The same readers as in the product.
    read: Callable[[bytes], Record] = RecordReader(codec) if topic == MEMBERSHIP else codec.decode
    config = consumer_config(os.environ["STARLING_KAFKA__BROKERS"], f"bare-{os.getpid()}", **bounded_queue(_QUEUE_KBYTES))
    consumer, meter, left = Consumer(config), Meter(count), count
    consumer.subscribe([topic])
    while left:
        first = consumer.poll(1.0)
        for message in [] if first is None else [first, *consumer.consume(min(499, left - 1), 0)]:
            assert message.error() is None, message.error()
            record = read(message.value() or b"")
            await send_nothing(record)
            if publish is not None:
                publish(record)
            meter.done()
            left -= 1
    found = meter.rate()
    consumer.close()
    return found


class Outcomes:
    """Publishes an outcome of a record, as the kit does."""

    def __init__(self, registry: Registry) -> None:
        self._encode = registry.codec(DELIVERY, load_catalogue().topics[DELIVERY].schema).encode
        self._producer = Producer(producer_config(os.environ["STARLING_KAFKA__BROKERS"]))

    def publish(self, record: Record) -> None:
        delivery_id, now_ns = deterministic_id("delivery", record["correlation_id"], "sink"), time.time_ns()
        value = self._encode({
            "received_at": now_ns // 1_000, "workspace": record["workspace"], "user_id": record["user_id"],
            "event_id": deterministic_id(delivery_id, "DELIVERED", 1), "delivery_id": delivery_id, "channel": "webhook",
            "target_key": "sink", "outcome": "DELIVERED", "attempt": 1, "status_code": 204, "detail": None,
            "segment_key": record["segment_key"], "event_time": now_ns // 1_000_000, "correlation_id": record["correlation_id"],
            "campaign": None, "soft_bounce": None,
        })  # fmt: skip
        self._producer.produce(DELIVERY, value, record_key(record["workspace"], record["user_id"]))
        self._producer.poll(0)


async def send_nothing(_record: Record) -> Delivered:
    return Delivered()


async def at_once(count: int, workers: int, made: Callable[[Iterator[int]], Coroutine[Any, Any, None]]) -> None:
    """Run so many workers over one iterator of numbers."""
    numbers = iter(range(count))
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(made(numbers))


def bodies() -> list[bytes]:
    """Return bodies as the webhook sends them."""
    found = (change for _, change in records.changes(_BODIES, _BODIES))
    return [json.dumps(standard_body(membership_json(one)), separators=(",", ":")).encode() for one in found]


async def by_httpx(url: str, count: int, clients: int = AT_ONCE) -> Rate:
    """`clients`: of how many the workers take one each in turn."""
    meter, made = Meter(count), bodies()
    limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
    async with AsyncExitStack() as ends:
        opened = [await ends.enter_async_context(httpx.AsyncClient(limits=limits, trust_env=False)) for _ in range(clients)]
        next_client = itertools.cycle(opened)

        async def worker(numbers: Iterator[int]) -> None:
            client = next(next_client)
            for number in numbers:
                answer = await client.post(url, content=made[number % _BODIES], headers={"content-type": "application/json"})
                assert answer.status_code == 204
                meter.done()

        await at_once(count, AT_ONCE, worker)
        return meter.rate()


async def by_aiohttp(url: str, count: int) -> Rate:
    import aiohttp  # noqa: PLC0415 - no dependency of the product

    meter, made = Meter(count), bodies()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)) as client:

        async def worker(numbers: Iterator[int]) -> None:
            for number in numbers:
                async with client.post(url, data=made[number % _BODIES], headers={"content-type": "application/json"}) as answer:
                    await answer.read()
                    assert answer.status == 204
                meter.done()

        await at_once(count, AT_ONCE, worker)
        return meter.rate()


def mails(signer: Any = None) -> list[Mail]:
    """Return mails as the channel `email` sends them."""
    at, found = datetime.now(UTC), []
    for _, request in itertools.islice(records.requests(_BODIES, _BODIES), _BODIES):
        message = Message(
            workspace=request["workspace"], user_id=request["user_id"], delivery_id=request["delivery_id"],
            message_id=request["delivery_id"], target_key=request["target_key"], address=request["address"], payload="", attempt=1,
            purpose="transactional", content=plain_content(),
        )  # fmt: skip
        found.append(mail_of(message, "Shop <shop@example.com>", None, at, signer))
    return found


def plain_content() -> dict[str, str]:
    """Return the rendered parts of a mail."""
    values = {"{{ traits.name }}": "Ada", "{{ traits.city }}": "Berlin"}
    found = dict(records.CONTENT)
    for mark, value in values.items():
        found = {name: text.replace(mark, value) for name, text in found.items()}
    return found


async def by_smtp(port: int, count: int) -> Rate:
    meter, made = Meter(count), mails()

    async def worker(numbers: Iterator[int]) -> None:
        async with aiosmtplib.SMTP(
            hostname="127.0.0.1", port=port, use_tls=False, start_tls=False, local_hostname="localhost"
        ) as smtp:
            for number in numbers:
                mail = made[number % _BODIES]
                await smtp.sendmail(mail.sender, [mail.recipient], mail.data)
                meter.done()

    await at_once(count, CONNECTIONS, worker)
    return meter.rate()


LOOPS: Final[dict[str, Callable[[str, int], Awaitable[Rate]]]] = {
    "decode": decode,
    "report": lambda topic, count: decode(topic, count, reports=True),
    "httpx": by_httpx,
    "httpx_shared": lambda url, count: by_httpx(url, count, 1),
    "aiohttp": by_aiohttp,
    "smtp": lambda port, count: by_smtp(int(port), count),
}


async def measure(name: str, where: str, count: int) -> Rate:
    return await LOOPS[name](where, count)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
