"""The time limit of bodies."""

import asyncio

import pytest

from starling_ingest.bodies import SlowBodies
from tests.unit.ingest.rig import DEFAULT_HEADERS, Edge, NeverSent, Request


def test_a_body_that_arrives_is_returned() -> None:
    async def body() -> bytes:
        return b"body"

    assert asyncio.run(SlowBodies(1).read(body())) == b"body"


def test_late_bodies_end_and_others_go_on() -> None:
    async def story() -> bytes:
        bodies, arrived = SlowBodies(10), asyncio.Event()

        async def body() -> bytes:
            await arrived.wait()
            return b"body"

        late = asyncio.create_task(bodies.read(asyncio.Event().wait()))
        await asyncio.sleep(0)
        between = asyncio.get_running_loop().time()
        other = asyncio.create_task(bodies.read(body()))
        await asyncio.sleep(0)
        bodies.end_late(between)
        with pytest.raises(TimeoutError):
            await late
        arrived.set()
        return await other

    assert asyncio.run(story()) == b"body"


def test_a_stop_stays_a_stop() -> None:
    async def story() -> None:
        reading = asyncio.create_task(SlowBodies(10).read(asyncio.Event().wait()))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(story())


@pytest.mark.parametrize("key", ["key", "unknown"])
def test_a_body_that_never_arrives_is_408_and_closes_the_connection(key: str) -> None:
    async def story() -> NeverSent:
        edge = Edge(bodies=SlowBodies(0.01)).open()
        watching = asyncio.create_task(edge.bodies.watch())
        exchange = NeverSent()
        await edge.app.__rsgi__(Request("POST", "/v1/track", headers={**DEFAULT_HEADERS, "x-write-key": key}), exchange)
        watching.cancel()
        return exchange

    exchange = asyncio.run(story())
    assert (exchange.status, exchange.json()["code"]) == (408, "body_timeout")
    assert exchange.headers["connection"] == "close"
