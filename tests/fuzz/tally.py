"""Pure core: the doors under attack, what became of each input, and the table."""

import base64
import json
import os
import random
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

Input = dict[str, Any]
"""One input, from dice. A text, a number, bytes, or containers of these."""

ATTACK_NICE = 10

MOST_SAVED = 20
"""Failing inputs of one door that are saved; the others are only counted."""


class Defect(Exception):
    """The platform did something that no input may bring about."""


class Door(Protocol):
    """A place that accepts input from outside one part of the platform."""

    @property
    def name(self) -> str:
        """Its name in the table."""

    @property
    def pace(self) -> float:
        """The most inputs a second: a door of a shared machine is not measured for its capacity."""

    def make(self, dice: random.Random) -> Input:
        """Return one input; equal dice give an equal input."""

    def send(self, given: Input, number: int) -> bool:
        """Send it. Return False if it was refused by an answer. Raises: Defect."""

    def account(self) -> "Account":
        """Return what became of all inputs, once the platform has processed them."""


@dataclass
class Account:
    """The inputs that reached dead letters, and those of which nothing is known (number, reason). `notes`: for the reader."""

    dead_letters: int = 0
    lost: list[tuple[int, str]] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)


@dataclass
class Tally:
    """The counts of one door. `accepted` inputs had no refusal in an answer; some of them became dead letters later."""

    door: str
    seed: int
    inputs: int = 0
    refused: int = 0
    dead_letters: int = 0
    accepted: int = 0
    failures: int = 0
    reasons: list[str] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)


def lower_priority() -> None:
    """Give way to the platform in this thread and those that it starts: an attacker has a machine of its own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), ATTACK_NICE)


def dice_of(seed: int, door: str, number: int) -> random.Random:
    """Return the dice of one input: seed, door and number repeat it."""
    return random.Random(f"{seed} {door} {number}")


class Attack:
    """Sends the inputs of one door, one after another."""

    def __init__(self, door: Door, seed: int, directory: Path) -> None:
        """`directory` holds the failing inputs."""
        self.door = door
        self.tally = Tally(door.name, seed)
        self._directory = directory

    def run(self, until: float, most: int | None = None) -> None:
        """Send inputs until that time (monotonic), or that many; at least one, however late a busy machine starts this."""
        lower_priority()
        began, tally = time.monotonic(), self.tally
        while ((now := time.monotonic()) < until or not tally.inputs) and (most is None or tally.inputs < most):
            ahead = began + tally.inputs / self.door.pace - now
            if ahead > 0:
                time.sleep(min(ahead, max(0.0, until - now)))  # sleep: the pace of the door
                continue
            self.once(tally.inputs)

    def once(self, number: int) -> None:
        """Send one input."""
        tally = self.tally
        tally.inputs += 1
        try:
            if self.door.send(self.door.make(dice_of(tally.seed, tally.door, number)), number):
                tally.accepted += 1
            else:
                tally.refused += 1
        except Defect as defect:
            self.fail(number, str(defect))
        except Exception as cause:  # noqa: BLE001 - an input that breaks the attack itself is a failure of the run as well
            self.fail(number, f"{type(cause).__name__}: {cause}")

    def close_account(self) -> None:
        """Add what the dead letters show."""
        account = self.door.account()
        self.tally.dead_letters += account.dead_letters
        self.tally.notes |= account.notes
        for number, reason in account.lost:
            self.fail(number, reason)

    def fail(self, number: int, reason: str) -> None:
        """Count a failure, and save the input."""
        tally = self.tally
        tally.failures += 1
        if tally.failures > MOST_SAVED:
            return
        tally.reasons.append(f"input {number}: {reason[:500]}")
        self._directory.mkdir(parents=True, exist_ok=True)
        name = f"{tally.door.replace(' ', '-')}-{tally.seed}-{number}.json"
        given = self._given(number)
        saved = {"door": tally.door, "seed": tally.seed, "number": number, "reason": reason, "input": given}
        (self._directory / name).write_text(json.dumps(saved, indent=1, default=_readable))

    def _given(self, number: int) -> Input:
        try:
            return self.door.make(dice_of(self.tally.seed, self.tally.door, number)) if number >= 0 else {}
        except Exception as cause:  # noqa: BLE001 - the failure is that of the maker
            return {"not made": repr(cause)}


def _readable(value: Any) -> Any:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else repr(value)


def table(tallies: Sequence[Tally]) -> str:
    """Return one row for each door, and their sum."""
    total = Tally("all doors", 0)
    for one in tallies:
        for name in ("inputs", "refused", "dead_letters", "accepted", "failures"):
            setattr(total, name, getattr(total, name) + getattr(one, name))
    lines = ["| door | inputs | refused by an answer | dead letters | accepted | failures |", "|---|---:|---:|---:|---:|---:|"]
    for one in (*tallies, total):
        counts = (one.inputs, one.refused, one.dead_letters, one.accepted, one.failures)
        lines.append(f"| {one.door} | " + " | ".join(f"{count:,}" for count in counts) + " |")
    return "\n".join(lines)


def as_json(tallies: Sequence[Tally]) -> list[dict[str, Any]]:
    """Return the counts as a document."""
    return [asdict(one) for one in tallies]
