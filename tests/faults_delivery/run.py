"""Faults of everything that delivers, under load, then the comparison: `python -m tests.faults_delivery.run --seed 7`.

Real purchases cause the messages of a campaign by mail, and of a broadcast by webhook, while their processes, the broker and the
database are killed, slowed and stopped; the processes also at each of their failpoints, and as zombies. What was decided equals a
pandas computation and the members by pandas; each request is there once; no mail came twice; what is unknown is bounded by the
kills; every message of the broadcast came, to an endpoint that misbehaves; an endpoint that is gone gets no more after its 410; the
report equals the log; who unsubscribed is not written to again. Exit code 1 otherwise. The seed decides faults, not their times.
"""

import argparse
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path
from typing import Any, Final

import httpx

from starling_broadcaster.failpoints import BEFORE_COMMIT
from starling_cli.api_client import ApiClient
from starling_cli.stream_clock import StreamClock
from starling_common.kafka.topic_range import read_topic
from starling_common.kafka.topics import BULK, CAMPAIGN_PROGRESS, DELIVERY, REQUESTS
from starling_common.time.instants import parse_instant
from starling_common.wire import Registry
from starling_demo.dataset import Purchase, load_purchases
from starling_demo.expected import Changes, expected_changes
from starling_demo.expected_messages import differences, expected_messages
from starling_demo.load import LoadFailed, send_purchases
from starling_demo.observed import read_messages
from starling_demo.scenario import END, POLICY, SEGMENTS, WIN_BACK
from starling_local.instance import Instance
from starling_local.stack.parts.services import API_TOKEN, WRITE_KEY
from starling_local.testing import Addresses, embedded
from starling_stream.model.failpoints import AFTER_FOLD, AFTER_PRODUCE, AFTER_TIMERS
from tests.faults.findings import Findings
from tests.faults.provenance import Provenance
from tests.faults_delivery.failpoints import (
    BROADCASTER,
    CHANNELS,
    MESSENGER,
    OF_BROADCASTER,
    OF_CHANNELS,
    OF_MESSENGER,
    OF_WEBHOOKS,
    ArmedProcesses,
    Arms,
    at,
    ends_of,
    missing,
    points_of,
    zombie,
)
from tests.faults_delivery.sides import ENDING, REFUSING, Endpoint, MailServer, Manner
from tests.faults_platform.processes import Durations, Finding
from tests.faults_platform.report import Checkpoint, Report, table
from tests.faults_platform.schedule import Fault, Wave, first_faults, one_round
from tests.faults_platform.settling import settle_through_restarts

SERVICES: Final = (
    "ingest", "normalizer-0", "segmenter-0", "projector-0", "api", "messenger-0", "broadcaster", "delivery-email-0", "tracker",
)  # fmt: skip
HIT: Final = (
    "kafka", "cassandra", "normalizer-0", "segmenter-0", "messenger-0", "broadcaster", "delivery-email-0", "tracker",
)  # fmt: skip
"""The parts that the faults hit. The faults of the others are those of `make faults-platform`."""
DURATIONS: Final = Durations(stop_seconds=40.0, slow_seconds=6.0, gap_seconds=(0.5, 2.0))
BROADCAST_AT: Final = "1998-07-05T00:00:00Z"
"""After the last purchase (30 June) and before `END`: the clock is moved here, so that no message expires by a jump."""
_JUST_AFTER: Final = "1998-07-05T00:10:00Z"
BROADCAST: Final[dict[str, Any]] = {
    "key": "spring",
    "name": "Spring",
    "trigger": {"broadcast": "lapsing", "at": BROADCAST_AT},
    "purpose": "transactional",
    "channel": "webhook",
    "target": "endpoint",
    "rate": 200,
    "variants": [{"key": "a", "weight": 100, "content": {"body": '{"user": {{ user_id|tojson }}}'}}],
}
FAREWELL: Final[dict[str, Any]] = {**BROADCAST, "key": "farewell", "name": "Farewell", "target": "gone"}
"""A broadcast to an endpoint that answers 410."""
_CAUSES: Final = ("repeat-buyers", "lapsing")
_UNSUBSCRIBED: Final = 40
_IN_FLIGHT: Final = 64
"""At most so many mails of one process can be under way when it is killed."""
_LAST_SECONDS: Final = 420.0
"""A message that finds its target busy twice waits for 5 minutes."""
_SETTLE_SECONDS: Final = 900.0
_PIECES: Final = 40
_PIECE_SECONDS: Final = 2.0
"""While processes wait for their failpoints, a share of the purchases is sent in so many pieces, one each two seconds."""
_ARMED_SECONDS: Final = 60.0
_PERSON_SECONDS: Final = 0.1
"""Between two people who unsubscribe."""
_MOST_READ_BYTES: Final = 64 * 2**20
"""Far more than a socket buffers, and far less than a gigabyte."""
_REPORTS: Final = 5
_FINAL: Final = frozenset({"SENT", "DELIVERED", "FAILED", "SUPPRESSED", "BOUNCED"})

_OF_MESSENGER: Final = (*OF_MESSENGER, zombie(AFTER_FOLD), zombie(AFTER_PRODUCE))
_OF_CHANNELS: Final = (None, None, None, None, *OF_CHANNELS, zombie("after_sending"))
"""In the first part of the history there are no mails yet."""
_AT_PLACES: Final = tuple(
    Wave(at(MESSENGER, first), () if second is None else (at(CHANNELS, second),))
    for first, second in zip(_OF_MESSENGER, _OF_CHANNELS, strict=True)
)
_WHILE_BROADCASTING: Final = Wave(at(BROADCASTER, *OF_BROADCASTER, zombie(BEFORE_COMMIT)), (at(CHANNELS, *OF_WEBHOOKS),))
_WHILE_DELAYS_PASS: Final = Wave(at(MESSENGER, AFTER_TIMERS))
_WHILE_UNSUBSCRIBING: Final = Wave(Fault("kill", ("tracker",)), (Fault("kill", ("kafka",)),))

_AT_THE_END: Final = 3
"""Waves of `World.finish`."""


@dataclass(frozen=True)
class Scale:
    """`customers`: those with the lowest numbers. `hostile`: whether the endpoint does more than to be busy at first."""

    customers: int = 6_000
    hostile: bool = True


class World:
    """The running instance, with the other sides of its channels."""

    def __init__(self, at: Addresses, report: Report, scale: Scale, checkpoint: Checkpoint, arms: Arms) -> None:
        self.at = at
        self.report = report
        self._scale = scale
        self._checkpoint = checkpoint
        self._arms = arms
        self._began = time.monotonic()
        self._waves = 0
        self.instance = Instance(at.data_dir)
        self.api = ApiClient(at.api_url, API_TOKEN)
        self.mails = MailServer()
        every = load_purchases()
        chosen = set(sorted({purchase.user_id for purchase in every})[: scale.customers])
        self.purchases = [purchase for purchase in every if purchase.user_id in chosen]
        self.processes = ArmedProcesses(arms, self.instance, DURATIONS, checkpoint.evidence, report.provenance.seed)
        self.endpoint: Endpoint | None = None
        self.gone: Endpoint | None = None
        self._known: frozenset[str] = frozenset()
        """The customers whose traits were sent. Traits at the instant of an order would be evaluated before it."""

    def define(self) -> None:
        for segment in SEGMENTS:
            if segment["key"] in _CAUSES:
                self.api.create("/v1/segments", segment)
        self.api.replace("/v1/policy", POLICY)
        target = {"key": WIN_BACK["target"], "channel": "email", "host": "127.0.0.1", "port": self.mails.port, "tls": "none"}
        self.api.create("/v1/targets", {**target, "from": "Music shop <shop@example.com>"})
        secret = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="
        self.endpoint = Endpoint(secret, REFUSING, ENDING) if self._scale.hostile else Endpoint(secret)
        self.api.create("/v1/targets", {"key": "endpoint", "channel": "webhook", "url": self.endpoint.url, "secret": secret})
        if self._scale.hostile:
            self.gone = Endpoint(secret, always=Manner.GONE)
            self.api.create("/v1/targets", {"key": "gone", "channel": "webhook", "url": self.gone.url, "secret": secret})
        self.settle()
        for campaign in (WIN_BACK, *self._broadcasts):
            self.api.create("/v1/campaigns", campaign)
            self.api.create(f"/v1/campaigns/{campaign['key']}/activate", {})

    @property
    def _campaigns(self) -> tuple[str, ...]:
        return tuple(str(campaign["key"]) for campaign in (WIN_BACK, *self._broadcasts))

    @property
    def _broadcasts(self) -> tuple[dict[str, Any], ...]:
        return (BROADCAST, FAREWELL) if self._scale.hostile else (BROADCAST,)

    def suffer(self, waves: Sequence[Wave], seconds: float) -> None:
        """Send a share of the purchases before and during each wave of faults, and the rest at the end."""
        self._began, chunks = time.monotonic(), list(_chunks(self.purchases, len(waves) + 2))
        for wave in waves:
            if time.monotonic() - self._began > seconds:
                break
            self._endure(wave, chunks.pop(0))
        left = self._missing()
        if left:
            self._endure(Wave(left[0], tuple(left[1:])), chunks.pop(0))
        for chunk in chunks:
            self._send(chunk)

    def _endure(self, wave: Wave, purchases: Sequence[Purchase]) -> None:
        """Send purchases before a wave; while it lasts, if processes are to end at failpoints, which they pass only at work."""
        if not any(map(points_of, wave.faults)):
            self._send(purchases)
            self._inject(wave)
            return
        over = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(self._send_slowly, purchases, over)
            try:
                self._inject(wave)
            finally:
                over.set()
            sending.result()

    def _send_slowly(self, purchases: Sequence[Purchase], over: threading.Event) -> None:
        for piece in _chunks(purchases, _PIECES):
            self._send(piece)
            over.wait(_PIECE_SECONDS)

    def _missing(self) -> list[Fault]:
        return missing([one.fault for one in self.report.injected], self.processes.reached)

    def finish(self, during: Wave, delays: Wave, last: Wave) -> None:
        """Broadcast during one wave, let every delay pass during the next, unsubscribe people during the last one, and compare."""
        for name in self.processes.wait_ready():
            self.find(f"{name} was not ready at the end")
        self.settle()
        clock = StreamClock(self.at.kafka, self.at.registry_url)
        self._advance(clock, _JUST_AFTER, during)
        self.settle()
        self._advance(clock, END, delays)
        self.settle()
        changes = expected_changes(self.purchases)
        found, expected = Findings(), expected_messages(self.purchases, changes[WIN_BACK["trigger"]["exit"]])
        progress = self._records(CAMPAIGN_PROGRESS, "MessageProgressed")
        for line in differences(expected, read_messages(self.at.kafka, self.at.registry_url, WIN_BACK["key"])):
            found.found("wrong", line)
        found.add("messages compared with pandas", sum(map(len, expected.values())))
        self._check_requests(found, progress)
        self._check_mails(found, progress)
        self._check_broadcasts(found, progress, changes["lapsing"])
        self._check_report(found)
        self._unsubscribe(found, last)
        for fault in self._missing():
            self.find(f"{fault.parts[0]} never came by {', '.join(points_of(fault))}")
        found.add("failpoints at which processes ended", len(self.processes.reached))
        self.report.compared = found

    def settle(self) -> None:
        settle_through_restarts(self.instance, _SETTLE_SECONDS)

    def _advance(self, clock: StreamClock, to: str, wave: Wave) -> None:
        """Advance the clock to an instant, then inject the wave; parts with failpoints are armed before."""
        parts = [fault.parts[0] for fault in wave.faults if points_of(fault)]
        if not parts:
            clock.advance(parse_instant(to))
            self._inject(wave)
            return
        before = {part: self._arms.armed(part) for part in parts}

        def advance() -> None:
            _wait(lambda: all(self._arms.armed(part) != before[part] for part in parts), _ARMED_SECONDS)
            clock.advance(parse_instant(to))

        with ThreadPoolExecutor(1) as pool:
            advancing = pool.submit(advance)
            self._inject(wave)
            advancing.result()

    def _inject(self, wave: Wave) -> None:
        self._waves += 1
        found = self.processes.inject(wave, self._waves, self._began)
        self.report.injected += found
        for one in found:
            self._checkpoint.write("fault", one)
        sys.stderr.write(f"{self._waves:4} {found[0].at_seconds:7.1f} s  {' · '.join(map(str, wave.faults))}\n")
        self.take_findings()

    def close(self) -> None:
        self.mails.close()
        for endpoint in (self.endpoint, self.gone):
            if endpoint is not None:
                endpoint.close()
        self.api.close()

    def find(self, what: str) -> None:
        self.processes.findings.append(Finding(what, 0.0))
        self.take_findings()

    def take_findings(self) -> None:
        for finding in self.processes.findings[len(self.report.findings) :]:
            self.report.findings.append(finding)
            self._checkpoint.write("finding", finding)
            sys.stderr.write(f"     finding: {finding.what} {finding.evidence}\n")

    def _send(self, purchases: Sequence[Purchase]) -> None:
        """Send purchases in order. A repeated purchase counts once, so that a chunk can be sent again."""
        for attempt in range(20):
            try:
                send_purchases(self.at.ingest_url, WRITE_KEY, purchases, lambda _: None, self._known)
            except LoadFailed:
                if attempt == 19:
                    raise
                time.sleep(1)  # sleep: the broker is away
            else:
                self._known |= {purchase.user_id for purchase in purchases}
                return

    def _records(self, topic: str, schema: str) -> list[dict[str, Any]]:
        codec = Registry(self.at.registry_url).codec(topic, schema)
        return [codec.decode(message.value() or b"") for message in read_topic(self.at.kafka, topic)]

    def _check_requests(self, found: Findings, progress: Sequence[Mapping[str, Any]]) -> None:
        """Each message that the messenger has decided to send was requested of its channel once."""
        bulk = [(broadcast["key"], f"{BULK}.webhook") for broadcast in self._broadcasts]
        for campaign, topic in ((WIN_BACK["key"], f"{REQUESTS}.email"), *bulk):
            requests = Counter(
                one["delivery_id"] for one in self._records(topic, "DeliveryRequested") if one["campaign"] == campaign
            )
            decided = {one["delivery_id"] for one in progress if (one["campaign"], one["step"]) == (campaign, "REQUESTED")}
            for one in decided - requests.keys():
                found.found("lost", f"{campaign}: no request of message {one}")
            for one, count in requests.items():
                if one not in decided:
                    found.found("wrong", f"{campaign}: request of message {one}, which was not decided")
                if count > 1:
                    found.found("doubled", f"{campaign}: {count} requests of message {one}")
            found.add("requests of messages", requests.total())

    def _check_mails(self, found: Findings, progress: Sequence[Mapping[str, Any]]) -> None:
        requested = {one["delivery_id"] for one in progress if (one["campaign"], one["step"]) == (WIN_BACK["key"], "REQUESTED")}
        _wait(lambda: requested <= self.mails.arrived.keys() | self._unknown())
        unknown = self._unknown() - self.mails.arrived.keys()
        kills = sum(ends_of(one.fault) for one in self.report.injected if {CHANNELS, "kafka"} & set(one.fault.parts))
        for one, count in self.mails.arrived.items():
            if count > 1:
                found.found("doubled", f"mail {one} arrived {count} times")
            if one not in requested:
                found.found("wrong", f"mail {one} was not requested")
        for one in requested - self.mails.arrived.keys() - unknown:
            found.found("lost", f"mail {one} was requested, and neither sent nor reported as unknown")
        if len(unknown) > kills * _IN_FLIGHT:
            found.found("lost", f"{len(unknown)} mails are unknown after {kills} ends of the channel or of the broker")
        found.add("mails", len(self.mails.arrived))
        found.add("mails whose fate is unknown", len(unknown))
        found.add("mails refused at first", self.mails.refused)

    def _outcomes(self, campaign: str) -> dict[str, list[str]]:
        """Return the outcomes of each message of a campaign, `UNKNOWN` for those that may have arrived."""
        outcomes: dict[str, list[str]] = {}
        for one in self._records(DELIVERY, "DeliveryReported"):
            if one["campaign"] == campaign:
                name = "UNKNOWN" if (one["outcome"], one["detail"]) == ("FAILED", "unknown") else one["outcome"]
                outcomes.setdefault(one["delivery_id"], []).append(name)
        return outcomes

    def _unknown(self) -> set[str]:
        """Return the mails that were claimed and have no outcome, and those that were reported as unknown."""
        outcomes = self._outcomes(WIN_BACK["key"])
        return {one for one, names in outcomes.items() if "SENDING" in names and not _FINAL & set(names)} | {
            one for one, names in outcomes.items() if "UNKNOWN" in names
        }

    def _check_broadcasts(self, found: Findings, progress: Sequence[Mapping[str, Any]], lapsing: Changes) -> None:
        """Exactly the members at its instant have a message of each broadcast."""
        at_ms = parse_instant(BROADCAST_AT)
        members = {user for user, changes in lapsing.items() if _is_member(changes, at_ms)}
        messages = {
            broadcast["key"]: self._requested(found, progress, str(broadcast["key"]), members) for broadcast in self._broadcasts
        }
        self._check_endpoint(found, messages[BROADCAST["key"]])
        if self.gone is not None:
            self._check_gone(found, self.gone, messages[FAREWELL["key"]])

    def _requested(self, found: Findings, progress: Sequence[Mapping[str, Any]], broadcast: str, members: set[str]) -> set[str]:
        """Return the ids of the messages of a broadcast."""
        steps = [one for one in progress if (one["campaign"], one["step"]) == (broadcast, "REQUESTED")]
        requested = {one["user_id"]: one["delivery_id"] for one in steps}
        for user in members - requested.keys():
            found.found("lost", f"{broadcast}: {user} was a member and has no message")
        for user in requested.keys() - members:
            found.found("wrong", f"{broadcast}: {user} was no member and has a message")
        if len(steps) != len(requested):
            found.found("doubled", f"{broadcast}: {len(steps)} messages to {len(requested)} people")
        found.add("messages of broadcasts", len(requested))
        return set(requested.values())

    def _check_endpoint(self, found: Findings, requested: set[str]) -> None:
        """Each message arrived and ended as delivered. No redirect is followed."""
        assert self.endpoint is not None
        endpoint = self.endpoint
        _wait(lambda: requested <= endpoint.arrived.keys())
        for one in requested - endpoint.arrived.keys():
            found.found("lost", f"{BROADCAST['key']}: message {one} did not arrive")
        for one in endpoint.arrived.keys() - requested:
            found.found("wrong", f"{BROADCAST['key']}: message {one} was not requested")
        if endpoint.forged:
            found.found("wrong", f"{endpoint.forged} requests with a wrong signature")
        self._check_ends(found, str(BROADCAST["key"]), requested, "DELIVERED")
        if endpoint.strayed:
            found.found("wrong", f"{endpoint.strayed} requests followed a redirect")
        if endpoint.flooded > _MOST_READ_BYTES:
            found.found("wrong", f"{endpoint.flooded} bytes of an answer of a gigabyte were read")
        found.add("requests to the endpoint", endpoint.arrived.total())
        for manner, count in endpoint.answered.items():
            found.add(f"answers of the endpoint: {manner.value}", count)

    def _check_gone(self, found: Findings, endpoint: Endpoint, requested: set[str]) -> None:
        """The first 410 disables the target: no message is sent after those that were under way, and each has failed."""
        self._check_ends(found, str(FAREWELL["key"]), requested, "FAILED")
        ends = sum(ends_of(one.fault) for one in self.report.injected if {CHANNELS, "kafka"} & set(one.fault.parts))
        if not 0 < endpoint.arrived.total() <= (ends + 1) * _IN_FLIGHT:
            found.found("wrong", f"{endpoint.arrived.total()} requests to an endpoint that had answered 410")
        if not self.api.document("targets", "gone").get("disabled"):
            found.found("wrong", "the target whose endpoint answered 410 is not disabled")
        found.add("requests to the endpoint that is gone", endpoint.arrived.total())

    def _check_ends(self, found: Findings, broadcast: str, requested: set[str], expected: str) -> None:
        """Each message has one final outcome."""

        def have_ended() -> bool:
            return requested <= {one for one, names in self._outcomes(broadcast).items() if _FINAL & set(names)}

        _wait(have_ended)
        outcomes = self._outcomes(broadcast)
        for one in requested:
            names = [name for name in outcomes.get(one, ()) if name in _FINAL]
            if not names:
                found.found("lost", f"{broadcast}: message {one} has no outcome")
            elif len(names) > 1:
                found.found("doubled", f"{broadcast}: message {one} has the outcomes {names}")
            elif names != [expected]:
                found.found("wrong", f"{broadcast}: message {one} ended as {names[0]}, not {expected}")

    def _check_report(self, found: Findings) -> None:
        """Each count of the funnels is that of the log. The messenger may report a mail as unknown meanwhile: then once more."""
        for _ in range(_REPORTS):
            self.settle()
            before = self._steps()
            shown = {campaign: self._shown(campaign) for campaign in before}
            if before == self._steps():
                break
        else:
            found.found("wrong", f"the log changed during each of {_REPORTS} reports")
        for campaign, steps in before.items():
            for step, count in shown[campaign].items():
                if count != steps[step]:
                    found.found("wrong", f"report of {campaign}: {count} {step}, the log has {steps[step]}")
            found.add("counts of reports", len(shown[campaign]))

    def _steps(self) -> dict[str, Counter[str]]:
        """Return the numbers of the steps of each campaign in the log."""
        steps: dict[str, Counter[str]] = {campaign: Counter() for campaign in self._campaigns}
        for one in self._records(CAMPAIGN_PROGRESS, "MessageProgressed"):
            steps[one["campaign"]][one["step"]] += 1
        return steps

    def _shown(self, campaign: str) -> Counter[str]:
        """Return the numbers of the steps of a campaign in its report."""
        shown: Counter[str] = Counter()
        for row in self.api.campaign_report(campaign)["funnel"]:
            for name in ("requested", "held_out", "sent", "delivered", "bounced", "failed"):
                shown[name.upper()] += row[name]
            shown["CONVERTED"] += row["converted"] + row["held_out_converted"]
        return shown

    def _unsubscribe(self, found: Findings, last: Wave) -> None:
        """Unsubscribe by the links of mails while a wave of faults lasts; what was answered with 200 is stored."""
        links = {}
        for sample in self.mails.samples[:_UNSUBSCRIBED]:
            mail = message_from_bytes(sample)
            links[mail["To"].partition("@")[0].lstrip("<")] = re.sub(r"\s", "", mail["List-Unsubscribe"]).strip("<>")
        with ThreadPoolExecutor(1) as pool:
            following = pool.submit(_follow, list(links.values()))
            self._inject(last)
            following.result()
        with httpx.Client(trust_env=False, timeout=30) as client:
            self.settle()
            for user in links:
                if not self._has_refused(client, user):
                    found.found("lost", f"{user} unsubscribed, and the consent is not withdrawn")
        found.add("people who unsubscribed", len(links))

    def _has_refused(self, client: httpx.Client, user: str) -> bool:
        answer = client.get(f"{self.at.api_url}/v1/users/{user}/consent", headers={"Authorization": f"Bearer {API_TOKEN}"})
        changes = answer.raise_for_status().json()["items"]
        return any(one["granted"] is False and one["source"] == "one_click" for one in changes)


def _is_member(changes: Sequence[tuple[str, int]], at: int) -> bool:
    # An exit at the very instant cancels.
    before = [status for status, when in changes if when <= at]
    return bool(before) and before[-1] == "ENTERED"


def _chunks(purchases: Sequence[Purchase], count: int) -> Iterator[Sequence[Purchase]]:
    size = -(-len(purchases) // count)
    for start in range(0, len(purchases), size):
        yield purchases[start : start + size]


def _wait(done: Callable[[], bool], seconds: float = _LAST_SECONDS) -> bool:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(1)  # sleep: between two looks
    return True


def _follow(links: Sequence[str]) -> None:
    """Unsubscribe by each link, until it was answered with 200."""
    with httpx.Client(trust_env=False, timeout=30) as client:
        for link in links:
            _until_200(client, link)
            time.sleep(_PERSON_SECONDS)  # sleep: people unsubscribe while the wave lasts


def _until_200(client: httpx.Client, link: str) -> None:
    for _ in range(120):
        try:
            if client.post(link, data={"List-Unsubscribe": "One-Click"}).status_code == httpx.codes.OK:
                return
        except httpx.HTTPError:
            pass
        time.sleep(1)  # sleep: a mail client repeats a request that failed
    raise TimeoutError(f"{link} was not answered with 200")


def waves_of(seed: int, faults: int) -> list[Wave]:
    """Return waves of that number of faults: kills, slow processes and a few suspended ones, and those at failpoints.

    The last three waves are those of the broadcast, of the delays and of the people who unsubscribe. A small number has these, and
    only as many at other failpoints as at no place in particular.
    """
    dice = random.Random(f"{seed} delivery")

    def endless() -> Iterator[Wave]:
        while True:
            for wave in one_round(HIT, dice):
                if wave.host.kind == "hang" or len(wave.host.parts) > 2:
                    continue
                if wave.host.kind == "stop" and dice.random() > 0.3:
                    continue
                yield wave

    at_places, end = list(_AT_PLACES), [_WHILE_BROADCASTING, _WHILE_DELAYS_PASS, _WHILE_UNSUBSCRIBING]
    left = faults - _count(end)
    while at_places and _count(at_places) * 2 > left:
        at_places.pop()
    waves = first_faults(endless(), left - _count(at_places))
    # Neither among the first waves, when hardly a message is due, nor among the last ones, which a slow machine leaves out.
    first, last = len(waves) * 2 // 10, len(waves) * 8 // 10
    for number in reversed(range(len(at_places))):
        waves.insert(first + (last - first) * number // len(at_places), at_places[number])
    return [*waves, *end]


def run(directory: Path, seed: int, scale: Scale, waves: Sequence[Wave], checkpoint: Checkpoint, *, seconds: float) -> Report:
    """The whole of it: start, load, faults, compare. An interrupted run has the faults so far, and the reason."""
    began, report = time.monotonic(), Report(Provenance.of(seed))
    checkpoint.write("run", report.provenance)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="starling-arms-") as arming,
            (arms := Arms(Path(arming))).inherited(),
            embedded(set(SERVICES), directory, clock="event", timeout_seconds=900) as addresses,
        ):
            world = World(addresses, report, scale, checkpoint, arms)
            try:
                world.define()
                world.suffer(waves[:-_AT_THE_END], seconds)
                world.finish(*waves[-_AT_THE_END:])
                report.interrupted = None
            finally:
                world.close()
    except BaseException as cause:  # noqa: BLE001 - the table of the faults so far is printed
        report.interrupted = f"{type(cause).__name__}: {cause}"
    report.seconds = round(time.monotonic() - began, 1)
    checkpoint.write("end", report.end())
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--faults", type=int, default=110)
    parser.add_argument("--customers", type=int, default=Scale.customers)
    parser.add_argument("--minutes", type=float, default=25.0, help="end the faults after this time")
    parser.add_argument("--keep", type=Path, help="a new directory for the data and logs; else a temporary one")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    waves = waves_of(given.seed, given.faults)
    sys.stderr.write(f"seed {given.seed}, {_count(waves)} faults in {len(waves)} waves\n")
    checkpoint = Checkpoint(Path("out/faults-delivery") / f"{given.seed}-{time.strftime('%Y%m%d-%H%M%S')}")
    with tempfile.TemporaryDirectory(prefix="starling-faults-delivery-") as temporary:
        place = given.keep or Path(temporary)
        report = run(place, given.seed, Scale(given.customers), waves, checkpoint, seconds=given.minutes * 60)
    sys.stdout.write(table(report) + f"\nwritten to {checkpoint.file}\n")
    return 0 if report.good else 1


def _count(waves: Iterable[Wave]) -> int:
    return sum(len(wave.faults) for wave in waves)


if __name__ == "__main__":
    sys.exit(main())
