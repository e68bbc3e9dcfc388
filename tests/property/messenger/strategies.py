"""Generated stories. Instants collide on purpose: with due instants, expiries, freed slots, ends of quiet hours and clock changes.

A story is a function of a text of bytes, each of which makes one choice. One draw for a story is ten times as fast as one for each
choice, and Hypothesis still shrinks: a byte of 0 is the simplest choice, and so is a byte that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeVar
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from tests.property.messenger.oracle import LOOK_MS, MOST_PENDING, RETURNS_SLOT, TRANSACTIONAL
from tests.property.messenger.story import (
    AddressSuppressed,
    BroadcastListed,
    CampaignActivated,
    CampaignEdited,
    CampaignSwitched,
    Check,
    ClockAdvanced,
    ConsentChanged,
    Document,
    EventReceived,
    Input,
    MembershipChanged,
    OutcomeReported,
    PolicyChanged,
    Story,
    TraitsReplaced,
)
from tests.property.messenger.values import DAY, HOUR, MINUTE, duration, earliest_instant_of_local, instant, instant_of_local

T = TypeVar("T")

MOST_CHOICES: Final = 480
USERS = [f"u{number}" for number in range(12)]
SEGMENTS = ["s", "s", "t"]
EVENTS = ["Cart Updated", "Cart Updated", "Order Completed"]
CHANNELS = ["email", "email", "email", "sms", "push", "webhook"]
TARGETS = {"email": "main-smtp", "sms": "texts", "push": "web", "webhook": "hook"}
CONTENTS: dict[str, Document] = {
    "email": {"subject": "Hello", "text": "Hello"},
    "sms": {"text": "Hello"},
    "push": {"title": "Hello", "body": "Hello"},
    "webhook": {"body": "{}"},
}
PURPOSES = ["marketing", "marketing", "marketing", "marketing", "news", TRANSACTIONAL]
PRIORITIES = [50, 50, 0, 90, 100]
DELAYS = ["30m", "1h", "1h", "2h", "1d"]
EXPIRIES = ["24h", "10m", "30m", "1h", "2h", "2h", "24h", "7d"]
PERIODS = ["1h", "30m", "2h", "6h", "1d"]
REENTRIES: list[Any] = ["always", "always", "always", "always", "once", {"after": "30m"}, {"after": "1h"}, {"after": "1d"}]
CAUSES = ["EVENT", "EVENT", "EVENT", "EVENT", "EVENT", "EVENT", "EVENT", "EVENT", "TIMER", "DEFINITION", "MERGE"]
PERCENTS = [10, 25, 50, 0.01, 99.99, 100]
WEIGHTS: list[list[float]] = [[100], [50, 50], [50.5, 49.5], [33.33, 33.33, 33.34], [0.01, 99.99]]
FILTERS: list[Any] = [None, None, {"property": "sku", "op": "eq", "value": "x"}, {"property": "n", "op": "eq", "value": 1}]
PROPERTIES: list[Document] = [{}, {"sku": "x", "n": 1}, {"sku": "x", "n": 1}, {"sku": "y", "n": True}]
AGES = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 30 * MINUTE, HOUR, HOUR + 1, 2 * HOUR, DAY, DAY + 1, 7 * DAY, -MINUTE]
CONSENTS: list[Any] = [
    True,
    True,
    True,
    False,
    {"marketing": True},
    {"marketing": False, "news": True},
    {"marketing": "yes"},
    "true",
    None,
]
QUIET_HOURS = [
    ("21:00", "08:00"), ("02:00", "03:00"), ("01:30", "02:30"), ("02:30", "12:00"), ("00:00", "06:00"), ("22:15", "22:45"),
    ("12:00", "02:00"), ("01:00", "01:30"), ("23:59", "00:01"),
]  # fmt: skip
CLOCK_CHANGES = [
    ("UTC", "2026-06-01T00:00Z"), ("Asia/Kolkata", "2026-05-31T18:30Z"),
    ("Europe/Berlin", "2026-03-29T01:00Z"), ("Europe/Berlin", "2026-10-25T01:00Z"),
    ("America/New_York", "2026-03-08T07:00Z"), ("America/New_York", "2026-11-01T06:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00Z"), ("Australia/Lord_Howe", "2026-10-03T15:30Z"),
    ("Pacific/Chatham", "2026-04-04T14:00Z"), ("Pacific/Chatham", "2026-09-26T14:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"), ("Pacific/Apia", "2011-09-24T14:00Z"), ("Africa/Casablanca", "2026-02-15T02:00Z"),
]  # fmt: skip
"""(zone, the instant of a clock change; of a midnight where the zone has none)."""
LOCAL_TIMES = ["09:00", "00:30", "01:00", "01:30", "02:00", "02:15", "02:30", "03:00", "23:30"]
FLUSH_MS = 9 * DAY


class _Choices:
    """The choices of a story, one for each byte; after the last one the simplest."""

    def __init__(self, data: bytes) -> None:
        self._bytes = iter(data)

    def one_of(self, values: Sequence[T]) -> T:
        """Return one of at most 256 values; the first is the simplest."""
        return values[next(self._bytes, 0) % len(values)]

    def maybe(self, values: Sequence[T], cases: int) -> T | None:
        """Return a value in one of so many cases, else None."""
        return self.one_of(values) if self.happens(cases) else None

    def happens(self, cases: int) -> bool:
        return next(self._bytes, 0) % cases == cases - 1


@dataclass
class _World:
    """What a story has so far, as its author knows it. `marks`: the instants at which something may happen."""

    now: int
    zone: str
    inputs: list[Input] = field(default_factory=list)
    campaigns: dict[str, Document] = field(default_factory=dict)
    """The newest versions, archived campaigns included."""
    states: dict[str, str] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    marks: set[int] = field(default_factory=set)
    instances: list[tuple[str, str]] = field(default_factory=list)
    listed: set[str] = field(default_factory=set)
    memberships: dict[str, list[MembershipChanged]] = field(default_factory=dict)
    periods: list[int] = field(default_factory=list)

    def put(self, one: Input) -> None:
        self.inputs.append(one)

    def triggered(self, key: str, instance: str, at: int) -> None:
        """Note the message that an input may make, and the instants that follow from it."""
        document = self.campaigns[key]
        due = at + duration(document.get("delay", "0s"))
        expiry = due + duration(document.get("expires_after", "24h"))
        reentry = document.get("reentry")
        again = [duration(reentry["after"])] if isinstance(reentry, dict) else []
        waits = [*self.periods, *again, LOOK_MS, 2 * LOOK_MS, *([DAY] if "dedupe_key" in document else [])]
        self.instances.append((key, instance))
        self.marks |= {due, expiry, *(due + wait for wait in waits)}

    def was_member(self, segment: str, at: int) -> bool:
        changes = [one for one in self.memberships.get(segment, []) if one.effective_at <= at]
        return bool(changes) and changes[-1].status == "ENTERED"

    def listed_at(self, key: str) -> int | None:
        """Return the instant of a broadcast at which its members are listed."""
        trigger = self.campaigns[key]["trigger"]
        if "broadcast" not in trigger:
            return None
        return instant(trigger["at"]) if "at" in trigger else earliest_instant_of_local(trigger["local"])


class _Author:
    """Writes a story, one step at a time."""

    def __init__(self, choices: _Choices, world: _World) -> None:
        self.choices, self.world = choices, world

    # Documents

    def selector(self) -> Document:
        return _without_nones({"event": self.choices.one_of(EVENTS), "where": self.choices.one_of(FILTERS)})

    def trigger(self) -> Document:
        one_of, segment = self.choices.one_of, self.choices.one_of(SEGMENTS)
        kind = one_of(["event", "event", "event", "while", "while", "enter", "enter", "enter", "exit", "at", "local"])
        if kind in ("enter", "exit"):
            return _without_nones({kind: segment, "on_definition": self.choices.maybe([True], 3)})
        if kind in ("event", "while"):
            return _without_nones({"event": self.selector(), "while": segment if kind == "while" else None})
        if kind == "at":
            return {"broadcast": segment, "at": _iso(self.world.now + one_of([0, 30 * MINUTE, HOUR, 3 * HOUR]))}
        date = _iso(self.world.now + one_of([0, DAY]))[:10]
        return {"broadcast": segment, "local": f"{date}T{one_of(LOCAL_TIMES)}"}

    def campaign(self, key: str) -> Document:
        trigger, channel = self.trigger(), self.choices.one_of(CHANNELS)
        is_broadcast, maybe = "broadcast" in trigger, self.choices.maybe
        cancel = _without_nones({"left": maybe([False, True], 3), "event": self.selector() if self.choices.happens(3) else None})
        holdout = maybe(PERCENTS, 6)
        weights = self.choices.one_of(WEIGHTS)
        return _without_nones(
            {
                "key": key,
                "name": key.upper(),
                "trigger": trigger,
                "delay": None if is_broadcast else maybe(DELAYS, 2),
                "cancel": None if is_broadcast else cancel or None,
                "reentry": maybe(REENTRIES, 2),
                "priority": maybe(PRIORITIES, 2),
                "purpose": maybe(PURPOSES, 2),
                "expires_after": maybe(EXPIRIES, 2),
                "quiet": maybe(["defer", "drop"], 3),
                "caps": maybe(["defer", "drop"], 3),
                "dedupe_key": maybe(["d", "e"], 5),
                "channel": channel,
                "target": TARGETS[channel],
                "variants": [{"key": f"v{at}", "weight": one, "content": CONTENTS[channel]} for at, one in enumerate(weights)],
                "holdout": holdout and {"percent": holdout},
            }
        )

    def cap(self) -> Document:
        one_of, maybe = self.choices.one_of, self.choices.maybe
        return _without_nones(
            {
                "limit": one_of([1, 1, 1, 2, 3]),
                "per": one_of(PERIODS),
                "channels": maybe([["email"], ["email", "sms"], ["push"]], 4),
                "purposes": maybe([["marketing"], ["marketing", "news"], [TRANSACTIONAL]], 4),
            }
        )

    # Steps

    def pass_time(self) -> None:
        """Move the wall clock: not at all, a little, or to an instant at which something may happen, or a ms beside it."""
        world = self.world
        ahead = sorted(mark for mark in world.marks if world.now < mark <= world.now + 2 * DAY)[:6]
        targets = [world.now, world.now, world.now + 1, world.now + LOOK_MS, world.now + 30 * MINUTE, world.now + HOUR]
        for mark in ahead:
            targets += [mark, mark, mark, mark - 1, mark + 1]
        world.now = max(world.now, self.choices.one_of(targets))

    def clock(self) -> None:
        self.world.put(ClockAdvanced(self.world.now))

    def fire(self) -> None:
        """Put what triggers a campaign, if it can happen now."""
        trigger = self.world.campaigns[self.choices.one_of(list(self.world.campaigns))]["trigger"]
        if "event" in trigger:
            age = self.choices.one_of(AGES)
            self._put_event(trigger["event"]["event"], age, PROPERTIES[1], {})
            return
        status = "EXITED" if "exit" in trigger else "ENTERED"
        segment = trigger.get("enter") or trigger.get("exit") or trigger["broadcast"]
        if self.world.was_member(segment, self.world.now) == (status == "ENTERED"):
            self._put_change(segment, "ENTERED" if status == "EXITED" else "EXITED")
            self.pass_time()
        self._put_change(segment, status)

    def enter(self) -> None:
        self._change("ENTERED")

    def exit(self) -> None:
        self._change("EXITED")

    def _change(self, status: str) -> None:
        """Change the membership of a segment, if one can change like this."""
        is_exit = status == "EXITED"
        if possible := [s for s in dict.fromkeys(SEGMENTS) if self.world.was_member(s, self.world.now) == is_exit]:
            self._put_change(self.choices.one_of(possible), status)

    def _put_change(self, segment: str, status: str) -> None:
        world = self.world
        history = world.memberships.setdefault(segment, [])
        received = world.now - self.choices.one_of([0, 0, 0, 0, 0, 0, 0, HOUR])
        change = MembershipChanged(segment, status, world.now, len(history) + 1, received, self.choices.one_of(CAUSES))
        history.append(change)
        world.put(change)
        for key, document in world.campaigns.items():
            if document["trigger"].get("enter" if status == "ENTERED" else "exit") == segment:
                world.triggered(key, str(change.sequence), world.now)

    def event(self) -> None:
        context = self.choices.one_of([{}, {"device": {"token": "t"}}])
        self._put_event(self.choices.one_of(EVENTS), self.choices.one_of(AGES), self.choices.one_of(PROPERTIES), context)

    def flood(self) -> None:
        """More events than a user may have pending messages, a second apart; rarely."""
        if self.choices.happens(32):
            name = self.choices.one_of(EVENTS)
            for number in range(MOST_PENDING + self.choices.one_of([1, 0, 8])):
                self._put_event(name, -number * self.choices.one_of([0, 1_000, -1_000]), PROPERTIES[1], {})

    def _put_event(self, name: str, age: int, properties: Document, context: Document) -> None:
        world = self.world
        event = EventReceived(f"e{len(world.inputs)}", name, world.now - age, world.now, properties, context)
        world.put(event)
        for key, document in world.campaigns.items():
            if document["trigger"].get("event", {}).get("event") == name:
                world.triggered(key, event.event_id, event.event_time)

    def repeat(self) -> None:
        """Repeat an event that came after the last activation, at most a week ago. An older one arrives as a new event."""
        recent: list[EventReceived] = []
        for one in self.world.inputs:
            recent = [] if isinstance(one, CampaignActivated) else [*recent, *([one] if isinstance(one, EventReceived) else [])]
        recent = [one for one in recent if one.received_at > self.world.now - 7 * DAY]
        if recent:
            self.world.put(self.choices.one_of(recent))

    def outcome(self) -> None:
        world = self.world
        if world.instances:
            key, instance = self.choices.one_of(world.instances[-4:])
            outcome = self.choices.one_of([*RETURNS_SLOT, "FAILED", "FAILED", "SENT", "DELIVERED"])
            world.put(OutcomeReported(key, instance, outcome, world.now))

    def consent(self) -> None:
        one_of, at = self.choices.one_of, self.world.now - self.choices.one_of([0, 0, HOUR, DAY])
        channel, purpose = one_of(["email", "email", "sms", "push"]), one_of([None, "marketing", "marketing", "news"])
        self.world.put(ConsentChanged(channel, purpose, one_of([True, False]), at))

    def traits(self) -> None:
        one_of, zone = self.choices.one_of, self.world.zone
        zones: list[Any] = [zone, zone, zone, zone, "America/New_York", "Asia/Kolkata", "Mars/Base", 5, None]
        traits: Document = {"email": "u@example.com", "phone": "+491701234567", "timezone": one_of(zones)}
        consent = dict.fromkeys(TARGETS, True)
        if self.choices.happens(6):
            traits["email"] = one_of(["U@Example.com", "not an address", 5, None])
            traits["phone"] = one_of(["+491701234567", "0170", None])
            consent = {channel: one_of(CONSENTS) for channel in consent}
        self.world.put(TraitsReplaced(_without_nones({**traits, "consent": consent})))

    def policy(self) -> None:
        one_of, maybe, zone = self.choices.one_of, self.choices.maybe, self.world.zone
        caps = [self.cap() for _ in range(one_of([0, 1, 1, 1, 2]))]
        quiet, control = maybe(QUIET_HOURS, 2), maybe(PERCENTS, 16)
        self.world.periods = [duration(cap["per"]) for cap in caps]
        self.world.put(
            PolicyChanged(
                _without_nones(
                    {
                        "timezone": maybe([zone, "UTC", "America/New_York"], 3),
                        "quiet_hours": quiet and {"from": quiet[0], "to": quiet[1]},
                        "caps": caps or None,
                        "consent": maybe([{"email": "opt_out"}, {"email": "opt_in", "push": "opt_out"}], 4),
                        "control_group": control and {"percent": control},
                        "priority_hold": maybe(["30m", "1m", "1h"], 5),
                    }
                )
            )
        )

    def suppression(self) -> None:
        addresses = [("email", "u@example.com"), ("email", "U@EXAMPLE.com"), ("sms", "+491701234567")]
        channel, address = self.choices.one_of(addresses)
        self.world.put(AddressSuppressed(channel, address, self.choices.one_of([None, "hard_bounce", "complaint", "uploaded"])))

    def edit(self) -> None:
        """Make a new version of a campaign that is no broadcast. `cancel` stays: see the readings of the oracle."""
        world, one_of = self.world, self.choices.one_of
        running = {key: world.campaigns[key] for key, state in world.states.items() if state != "archived"}
        if not (edited := [key for key, document in running.items() if "broadcast" not in document["trigger"]]):
            return
        key, (name, values) = one_of(edited), one_of(_EDITS)
        world.campaigns[key] = _without_nones({**world.campaigns[key], name: one_of(values)})
        world.versions[key] += 1
        world.put(CampaignEdited(world.campaigns[key], world.versions[key]))

    def pause(self) -> None:
        self._switch(["active"], "paused")

    def resume(self) -> None:
        self._switch(["paused"], "active")

    def archive(self) -> None:
        if self.choices.happens(3):
            self._switch(["active", "paused"], "archived")

    def _switch(self, states: list[str], to: Literal["paused", "active", "archived"]) -> None:
        world = self.world
        if keys := [key for key, state in world.states.items() if state in states]:
            key = self.choices.one_of(keys)
            world.states[key] = to
            world.put(CampaignSwitched(key, to))

    def list_members(self) -> None:
        """Write the broadcaster's records where it would: after the instant, for members at it."""
        world = self.world
        for key, document in world.campaigns.items():
            at, trigger = world.listed_at(key), document["trigger"]
            if at is not None and key not in world.listed and at <= world.now and world.was_member(trigger["broadcast"], at):
                world.listed.add(key)
                world.put(BroadcastListed(key))
                local = trigger.get("local")
                world.triggered(key, trigger.get("at") or local, instant_of_local(world.zone, local) if local else at)

    def activate(self, key: str) -> None:
        world = self.world
        world.campaigns[key], world.versions[key], world.states[key] = self.campaign(key), 1, "active"
        if local := world.campaigns[key]["trigger"].get("local"):
            world.marks.add(instant_of_local(world.zone, local))
        if at := world.listed_at(key):
            world.marks.add(at)
        world.put(CampaignActivated(world.campaigns[key], world.now))


_EDITS: list[tuple[str, list[Any]]] = [
    ("name", ["Another name"]), ("delay", [None, *DELAYS]), ("priority", PRIORITIES), ("expires_after", EXPIRIES),
    ("quiet", ["defer", "drop"]), ("caps", ["defer", "drop"]), ("reentry", ["always", "once", {"after": "1h"}]),
    ("dedupe_key", [None, "d"]), ("purpose", PURPOSES),
]  # fmt: skip
_STEPS: Mapping[Callable[[_Author], None], int] = {
    _Author.fire: 16, _Author.clock: 10, _Author.event: 6, _Author.enter: 3, _Author.exit: 4, _Author.outcome: 5,
    _Author.consent: 2, _Author.traits: 1, _Author.policy: 2, _Author.edit: 3, _Author.pause: 1, _Author.resume: 2,
    _Author.archive: 1, _Author.suppression: 1, _Author.list_members: 4, _Author.repeat: 1, _Author.flood: 1,
}  # fmt: skip
"""A step of a story, and how often it is taken."""
_WEIGHTED_STEPS = [step for step, weight in _STEPS.items() for _ in range(weight)]


def story_of(data: bytes) -> Story:
    """Return the story that these choices make. Most end with a clock beyond every expiry, the others with `policy/check`."""
    choices = _Choices(data)
    zone, change = choices.one_of(CLOCK_CHANGES)
    start = instant(change) + choices.one_of([-2 * HOUR, -DAY, -6 * HOUR, -HOUR, -30 * MINUTE, 0])
    world = _World(now=start, zone=zone)
    author = _Author(choices, world)
    ends = [instant_of_local(zone, _local(zone, start)[:11] + end) for _, end in QUIET_HOURS]
    world.marks |= {instant(change), *ends}
    user = choices.one_of(USERS)
    author.clock()
    author.policy()
    author.traits()
    keys = ["a", "b", "c", "d"][: choices.one_of([1, 2, 2, 3, 4])]
    if choices.happens(2):
        author.enter()
    if not choices.happens(5):
        world.put(EventReceived("e", "Device Registered", world.now, world.now, {}, {"device": {"token": "t"}}))
    for key in keys:
        author.activate(key)
    for _ in range(choices.one_of(range(2, 26))):
        author.pass_time()
        choices.one_of(_WEIGHTED_STEPS)(author)
    checks: tuple[Check, ...] = ()
    if choices.happens(4):
        instants = [world.now, world.now + 1, world.now + HOUR, *sorted(mark for mark in world.marks if mark >= world.now)[:20]]
        checks = tuple(Check(key, choices.one_of(instants)) for key in keys if world.states[key] != "archived")
    else:
        world.put(ClockAdvanced(world.now + FLUSH_MS))
    return Story(user, tuple(world.inputs), checks)


def stories() -> st.SearchStrategy[Story]:
    """Generate stories."""
    return st.binary(min_size=MOST_CHOICES, max_size=MOST_CHOICES).map(story_of)


def _without_nones(document: Document) -> Document:
    return {name: value for name, value in document.items() if value is not None}


def _iso(at: int) -> str:
    return datetime.fromtimestamp(at / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _local(zone: str, at: int) -> str:
    return datetime.fromtimestamp(at / 1_000, ZoneInfo(zone)).strftime("%Y-%m-%dT%H:%M")
