"""Pure core: the counts of a digest. Its size does not depend on the number of changes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

MOST_USERS: Final = 5
"""How many users of a direction a digest names."""

MOST_NAME_CHARACTERS: Final = 80
MOST_USER_CHARACTERS: Final = 40

ENTERED: Final = "entered"
EXITED: Final = "exited"
DIRECTIONS: Final = (ENTERED, EXITED)

DEFAULT_TITLE: Final = "Segment changes"


@dataclass(slots=True)
class Counted:
    """The changes of a segment in one direction. `users`: those of the first changes, each once."""

    count: int = 0
    users: list[str] = field(default_factory=list)

    def add(self, user: str) -> None:
        """Count the change of a user."""
        self.count += 1
        if len(self.users) < MOST_USERS and user not in self.users:
            self.users.append(user)


@dataclass(slots=True)
class SegmentChanges:
    """The changes of one segment. `name`: that of the newest change."""

    name: str
    directions: Mapping[str, Counted] = field(default_factory=lambda: {direction: Counted() for direction in DIRECTIONS})


@dataclass(slots=True)
class Digest:
    """The changes of one period, by the key of the segment. `since_ms`, `until_ms`: when the first and the last was received."""

    segments: dict[str, SegmentChanges] = field(default_factory=dict)
    since_ms: int = 0
    until_ms: int = 0

    def add(self, change: Mapping[str, Any], at_ms: int) -> None:
        """Count a membership change that was received at that time, epoch ms."""
        key = change["segment_key"]
        if not self.segments:
            self.since_ms = at_ms
        self.since_ms, self.until_ms = min(self.since_ms, at_ms), max(self.until_ms, at_ms)
        found = self.segments.setdefault(key, SegmentChanges(change["segment_name"]))
        found.name = change["segment_name"]
        found.directions[ENTERED if change["status"] == "ENTERED" else EXITED].add(change["user_id"])

    @property
    def is_empty(self) -> bool:
        """Whether no change is counted."""
        return not self.segments

    def total(self, direction: str) -> int:
        """Return the number of changes of a direction."""
        return sum(one.directions[direction].count for one in self.segments.values())


class Line(NamedTuple):
    """One direction of a segment, as a message shows it. `more`: the number of changes beyond those of `users`."""

    changes: int
    direction: str
    users: Sequence[str]
    more: int


def lines_of(changes: SegmentChanges) -> Iterator[Line]:
    """Yield the directions with a change. The texts are one line each, and short enough for any message."""
    for direction, counted in changes.directions.items():
        if counted.count:
            users = [short(user, MOST_USER_CHARACTERS) for user in counted.users]
            yield Line(counted.count, direction, users, counted.count - len(users))


def summary_of(digest: Digest) -> str:
    """Return the totals in one line, for notifications."""
    segments = len(digest.segments)
    place = "1 segment" if segments == 1 else f"{segments} segments"
    return f"{digest.total(ENTERED):,} entered and {digest.total(EXITED):,} exited {place}"


def period_of(digest: Digest) -> str:
    """Return the period of the digest."""
    since, until = (datetime.fromtimestamp(at_ms / 1000, UTC) for at_ms in (digest.since_ms, digest.until_ms))
    return f"{since:%Y-%m-%d %H:%M:%S} to {until:%Y-%m-%d %H:%M:%S} UTC"


def short(text: str, most: int) -> str:
    """Return a text as one line of at most so many characters."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= most else line[: most - 1] + "…"


def example_digest(segment_key: str, at_ms: int) -> Digest:
    """Return the digest of a test call: one user enters the segment, and one exits."""
    digest = Digest()
    for status, user in (("ENTERED", "starling-test-1"), ("EXITED", "starling-test-2")):
        digest.add({"segment_key": segment_key, "segment_name": segment_key, "status": status, "user_id": user}, at_ms)
    return digest
