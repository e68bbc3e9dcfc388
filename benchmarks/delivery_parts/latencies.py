"""Latencies at a light load: of the feed to an endpoint, beside an endpoint that hangs, and of an event to a mail.

The clock is monotonic. It starts when the broker has acknowledged the record, which is readable then, or when ingest has answered.
"""

import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session
from common.bench import Stack, percentile, stack
from confluent_kafka import Producer

from delivery_parts import records
from delivery_parts.processes import running
from delivery_parts.receivers import Serving
from starling_common.kafka.clients import produce_and_wait, producer_config
from starling_common.kafka.topics import MEMBERSHIP, load_catalogue
from starling_common.testing import free_port
from starling_common.values import record_key
from starling_common.wire import Registry
from starling_local.stack.parts.services import API_TOKEN, WRITE_KEY
from starling_local.testing import Addresses, embedded

RATE: Final = 20
"""Records a second."""
SERVICES: Final = (
    "ingest", "normalizer-0", "segmenter-0", "projector-0", "api", "delivery-0", "messenger-0", "broadcaster", "delivery-email-0",
    "tracker",
)  # fmt: skip
_WARM_UP: Final = 40
"""The first records of a process, which are not counted."""
_WARM_UP_OF_PLATFORM: Final = 300
"""The first events through all services, whose JVMs still compile."""
_HANGING_SECONDS: Final = 16.0
"""A second more than an attempt lasts: the next round begins without one."""
_LAST_SECONDS: Final = 60.0
_ACTIVE_SECONDS: Final = 120.0


def paced(count: int, send: Callable[[int], None]) -> float:
    """Call `send` so many times, evenly spaced. Return by how many seconds the calls were late at worst."""
    began, behind = time.monotonic(), 0.0
    for number in range(count):
        ahead = began + number / RATE - time.monotonic()
        behind = max(behind, -ahead)
        time.sleep(max(0.0, ahead))
        send(number)
    return behind


def arrivals(sent: Mapping[str, float], arrived: Mapping[str, float]) -> list[float]:
    """Wait for all of them; return the sorted milliseconds. An arrival before the acknowledgement counts as 0.

    Raises: RuntimeError for a message that did not arrive.
    """
    deadline = time.monotonic() + _LAST_SECONDS
    while missing := [one for one in sent if one not in arrived]:  # another thread adds arrivals
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(missing)} of {len(sent)} messages did not arrive within {_LAST_SECONDS} s")
        time.sleep(0.05)
    return sorted(max(0.0, arrived[one] - at) * 1000 for one, at in sent.items())


def medians_of(rounds: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the median of each percentile over the rounds, in ms, and each round's."""
    each = [
        {"p50_ms": round(percentile(one, 0.5), 1), "p99_ms": round(percentile(one, 0.99), 1), "max_ms": round(one[-1], 1)}
        for one in rounds
    ]
    return {
        "messages_a_round": len(rounds[0]),
        **{name: round(statistics.median(one[name] for one in each), 1) for name in each[0]},
        "each": each,
    }


class Feed:
    """Writes membership changes one by one. `behind_seconds`: by how much it was late at worst."""

    def __init__(self, made: Stack) -> None:
        self._encode = Registry(made.registry_url).codec(MEMBERSHIP, load_catalogue().topics[MEMBERSHIP].schema).encode
        self._producer = Producer(producer_config(made.brokers, **{"linger.ms": 0, "log_level": 0}))
        self.behind_seconds = 0.0

    def write(self, user: str, segment: str) -> tuple[str, float]:
        """Return the id of a new change, and when the broker had acknowledged it."""
        change = records.change(user, segment, 1, int(time.time() * 1000), uuid.uuid4().hex)
        key = record_key(records.WORKSPACE, user)
        produce_and_wait(self._producer, MEMBERSHIP, key=key, value=self._encode(change), headers=records.HEADERS)
        return str(change["event_id"]), time.monotonic()

    def sent(self, count: int, segments: Sequence[str]) -> dict[str, float]:
        """Write so many changes of each segment, evenly spaced. Return id -> acknowledgement, of those of the first segment."""
        found: dict[str, float] = {}

        def send(number: int) -> None:
            for segment in segments:
                message_id, at = self.write(f"user-{uuid.uuid4().hex[:8]}", segment)
                if segment == segments[0]:
                    found[message_id] = at
            del number

        self.behind_seconds = max(self.behind_seconds, paced(count, send))
        return found


def define_hook(made: Stack, key: str, url: str, segment: str, action: str = "DEFINED", version: int = 1) -> None:
    document = {"key": key, "url": url, "secret": records.SIGNING, "segments": [segment]}
    records.define(made, "webhook", document, action, version)


def feed(directory: Path, seconds: int, rounds: int) -> dict[str, Any]:
    """From a readable record of the feed to its request at the endpoint."""
    endpoint = Serving()
    with stack(directory / "stack") as made:
        define_hook(made, "sink", endpoint.url, "vip")
        found = Feed(made)
        with running(made, directory, "delivery-0", "starling_delivery"):
            arrivals(found.sent(_WARM_UP, ["vip"]), endpoint.arrived)
            taken = [arrivals(found.sent(RATE * seconds, ["vip"]), endpoint.arrived) for _ in range(rounds)]
    endpoint.close()
    late = {"sender_behind_ms_at_most": round(found.behind_seconds * 1000)}
    return {"records_per_second": RATE, "seconds": seconds, "rounds": rounds, **late, **medians_of(taken)}


def beside_hanging(directory: Path, seconds: int, rounds: int) -> dict[str, Any]:
    """The latency of a healthy endpoint alone, and beside one that accepts requests and never answers, in turn.

    The records of both segments are written in both cases; alone, no webhook wants those of the second one.
    """
    healthy, hanging = Serving(), Serving(hangs=True)
    alone, beside = [], []
    with stack(directory / "stack") as made:
        define_hook(made, "healthy", healthy.url, "vip")
        found = Feed(made)
        with running(made, directory, "delivery-0", "starling_delivery"):
            arrivals(found.sent(_WARM_UP, ["vip", "slow"]), healthy.arrived)
            for number in range(rounds):
                alone.append(arrivals(found.sent(RATE * seconds, ["vip", "slow"]), healthy.arrived))
                define_hook(made, f"hanging-{number}", hanging.url, "slow")
                begun = len(hanging.arrived)
                beside.append(arrivals(found.sent(RATE * seconds, ["vip", "slow"]), healthy.arrived))
                assert len(hanging.arrived) > begun, "the hanging endpoint got no request"
                define_hook(made, f"hanging-{number}", hanging.url, "slow", "ARCHIVED", 2)
                time.sleep(_HANGING_SECONDS if number + 1 < rounds else 0)
    healthy.close()
    hanging.close()
    found_alone, found_beside = medians_of(alone), medians_of(beside)
    return {
        "records_per_second_of_each": RATE,
        "seconds": seconds,
        "rounds": rounds,
        "sender_behind_ms_at_most": round(found.behind_seconds * 1000),
        "alone": found_alone,
        "beside": found_beside,
        "requests_to_the_hanging": len(hanging.arrived),
        "p99_beside_to_alone": round(found_beside["p99_ms"] / max(0.1, found_alone["p99_ms"]), 2),
    }


class Mailbox:
    """A server of aiosmtpd. `arrived`: the name of each recipient -> when its first mail was complete."""

    def __init__(self) -> None:
        self.arrived: dict[str, float] = {}
        self.port = free_port()
        self._controller = Controller(self, "127.0.0.1", self.port, ready_timeout=30)
        self._controller.start()

    def close(self) -> None:
        self._controller.stop()

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802, ARG002 - the library's
        now = time.monotonic()
        for address in envelope.rcpt_tos:
            self.arrived.setdefault(address.partition("@")[0], now)
        return "250 OK"


def mail(directory: Path, seconds: int, rounds: int) -> dict[str, Any]:
    """From an event that ingest has acknowledged to the whole mail at the SMTP server, through every service of the platform."""
    mailbox, run = Mailbox(), uuid.uuid4().hex[:8]
    count = RATE * seconds
    warm_up = min(count, _WARM_UP_OF_PLATFORM)
    users = [f"{run}-{number}" for number in range(warm_up + rounds * count)]
    try:
        with embedded(SERVICES, directory / "instance", clock="wall") as at:
            define_campaign(at, mailbox.port)
            with httpx.Client(base_url=at.ingest_url, auth=(WRITE_KEY, ""), timeout=30, trust_env=False) as ingest:
                identify(ingest, users)
                settle(at)
                arrivals(tracked(ingest, users[:warm_up]), mailbox.arrived)
                waiting = users[warm_up:]
                taken = [
                    arrivals(tracked(ingest, waiting[start : start + count]), mailbox.arrived)
                    for start in range(0, len(waiting), count)
                ]
    finally:
        mailbox.close()
    return {"events_per_second": RATE, "seconds": seconds, "rounds": rounds, **medians_of(taken)}


def define_campaign(at: Addresses, port: int) -> None:
    """Create a segment, a target and a campaign on entries; return when both are in force."""
    event, key = "Order Completed", records.CAMPAIGN
    headers = {"Authorization": f"Bearer {API_TOKEN}"}
    with httpx.Client(base_url=at.api_url, headers=headers, timeout=60, trust_env=False) as api:
        _created(api, "/v1/segments", {"key": key, "name": key, "where": {"event": event}})
        _await_active(api, f"/v1/segments/{key}")
        _created(api, "/v1/targets", records.relay(port))
        _created(api, "/v1/campaigns", records.campaign())
        _created(api, f"/v1/campaigns/{key}/activate", {})
        _await_active(api, f"/v1/campaigns/{key}")


def _created(api: httpx.Client, path: str, document: Mapping[str, Any]) -> None:
    answer = api.post(path, json=document)
    if not answer.is_success:
        raise RuntimeError(f"POST {path}: {answer.status_code} {answer.text}")


def _await_active(api: httpx.Client, path: str) -> None:
    deadline = time.monotonic() + _ACTIVE_SECONDS
    while api.get(path).raise_for_status().json()["status"] != "active":
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} was not active within {_ACTIVE_SECONDS} s")
        time.sleep(0.1)


def identify(ingest: httpx.Client, users: Iterable[str]) -> None:
    """Send the traits of all users, a hundred in one request."""
    items = [{"type": "identify", "userId": user, "messageId": f"i-{user}", "traits": records.traits(user)} for user in users]
    for start in range(0, len(items), 100):
        ingest.post("/v1/batch", json={"batch": items[start : start + 100]}).raise_for_status()


def settle(at: Addresses) -> None:
    """Return when every service has processed what was sent."""
    command = (sys.executable, "-m", "starling_cli", "settle", "--timeout", "120s", "--data-dir", str(at.data_dir))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"starling settle: {done.stdout}{done.stderr}")


def tracked(ingest: httpx.Client, users: Sequence[str]) -> dict[str, float]:
    """Send one event for each user, evenly spaced as far as the answers allow. Return user -> when its acknowledgement had come."""
    found: dict[str, float] = {}

    def send(number: int) -> None:
        user = users[number]
        item = {"userId": user, "event": "Order Completed", "messageId": f"t-{user}", "properties": {"revenue": 5}}
        ingest.post("/v1/track", json=item).raise_for_status()
        found[user] = time.monotonic()

    paced(len(users), send)
    return found
