"""An endpoint that is dead for as long as its messages live, with a day of seconds, while the process of the channels is killed."""

import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from starling_common.testing import free_port
from starling_common.time.instants import wall_clock_ms
from tests.campaign_documents import campaign
from tests.conftest import Stack
from tests.contract.delivery.endpoint import Endpoint, answering
from tests.integration.delivery.mail_world import MailWorld
from tests.integration.delivery.world import wait_for
from tests.unit.delivery.making import SECRET

DAY_SECONDS = 8
"""The time limit of an attempted message. One that was never attempted, because the circuit was open, ends at its expiry."""
EXPIRY_SECONDS = 30
KILLS = 3
TO_DEAD = [f"dead-{number}" for number in range(60)]
TO_ALIVE = [f"alive-{number}" for number in range(60)]


@pytest.fixture
def world(stack: Stack) -> Iterator[MailWorld]:
    made = MailWorld(stack, f"dead{uuid.uuid4().hex[:10]}")
    topics = made.make_topics()
    yield made
    admin = AdminClient({"bootstrap.servers": stack.brokers})
    for pending in admin.delete_topics(topics).values():
        pending.result()


def webhook_campaign(target: str) -> dict[str, Any]:
    content = {"body": '{"user": {{ user_id|tojson }}}'}
    return campaign("webhook", key=f"to-{target}", target=target, variants=[{"key": "a", "weight": 100, "content": content}])


@pytest.mark.long
def test_messages_to_an_endpoint_that_is_dead_for_a_day_end_once_and_hold_up_no_other(world: MailWorld) -> None:
    alive = Endpoint()
    alive.respond = answering(204, b"")
    for name, url in (("dead", f"http://127.0.0.1:{free_port()}/hook"), ("alive", f"{alive.url}/hook")):
        world.define("target", {"key": name, "channel": "webhook", "url": url, "secret": SECRET})
        world.define("campaign", webhook_campaign(name), "ACTIVATED")
    expires_at = wall_clock_ms() + EXPIRY_SECONDS * 1000
    world.ask(TO_DEAD, "webhook", address="", campaign="to-dead", expires_at=expires_at)
    world.ask(TO_ALIVE[:20], "webhook", address="", campaign="to-alive")
    settings = {
        "STARLING_ALLOW_PRIVATE_ADDRESSES": "true",
        "STARLING_WEBHOOK__GIVE_UP_AFTER_SECONDS": str(DAY_SECONDS),
        "STARLING_PROBE_SECONDS": "0.5",
    }
    try:
        for kill in range(1, KILLS + 1):
            with world.process(**settings) as process:
                wait_for(lambda: len(world.outcomes(*TO_DEAD)) >= len(TO_DEAD) // 2)
                world.ask(TO_ALIVE[kill * 10 + 10 : kill * 10 + 20], "webhook", address="", campaign="to-alive")
                time.sleep(0.5)  # sleep: attempts and postponements are under way at the kill
                process.kill()
                assert process.wait(30) == -signal.SIGKILL
            world.end_transactions()
        world.ask(TO_ALIVE[50:], "webhook", address="", campaign="to-alive")
        with world.process(**settings):
            wait_for(lambda: set(finals(world, TO_ALIVE)) == set(TO_ALIVE))
            wait_for(lambda: set(finals(world, TO_DEAD)) == set(TO_DEAD))
    finally:
        alive.close()

    assert finals(world, TO_ALIVE) == {user: ["DELIVERED"] for user in TO_ALIVE}
    assert {request.headers["webhook-id"] for request in alive.requests} == {f"delivery-of-{user}" for user in TO_ALIVE}

    ended = finals(world, TO_DEAD)
    expired = {user for user, outcomes in ended.items() if outcomes == ["FAILED expired"]}
    decode = world.registry.codec(world.topic("retry"), "DeliveryRequested").decode
    letters = Counter(decode(letter["value"])["user_id"] for letter in world.records("dead_letter"))
    assert {len(outcomes) for outcomes in ended.values()} == {1}
    assert letters == Counter(set(TO_DEAD) - expired)
    assert letters
    assert {letter["code"] for letter in world.records("dead_letter")} == {"not_delivered"}


def finals(world: MailWorld, users: list[str]) -> dict[str, list[str]]:
    """User -> the outcomes that end a message."""
    found = {user: [one for one in outcomes if one != "RETRYING"] for user, outcomes in world.outcomes(*users).items()}
    return {user: outcomes for user, outcomes in found.items() if outcomes}
