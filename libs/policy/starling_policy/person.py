"""Pure core: the person and the message of a decision, and the person's history."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple

from starling_policy.bounds import MAX_CANCELLATIONS, MAX_CONSENT_CHANGES, MAX_DEVICES, MAX_MESSAGES, MAX_SUPPRESSIONS
from starling_policy.campaign import MessageRules

HARD_BOUNCE: Final = "hard_bounce"
SOFT_BOUNCES: Final = "soft_bounces"
COMPLAINT: Final = "complaint"
UPLOADED: Final = "uploaded"
STOP: Final = "stop"
"""The person has replied STOP, or another word with that meaning."""
SUPPRESSION_KINDS: Final = (HARD_BOUNCE, SOFT_BOUNCES, COMPLAINT, UPLOADED, STOP)


class PastMessage(NamedTuple):
    """A message that was requested or held out, once however many devices it had. `at`: that instant, epoch ms.

    `slot_returned`: its outcome (failed, suppressed or bounced) gives the slots of caps back.
    """

    at: int
    channel: str
    purpose: str
    campaign: str | None = None
    dedupe_key: str | None = None
    held_out: bool = False
    slot_returned: bool = False


class ConsentChange(NamedTuple):
    """An explicit change of consent. `purpose` None: every purpose of the channel. `at`: epoch ms. `source`: where it was made."""

    channel: str
    purpose: str | None
    granted: bool
    at: int
    source: str = "api"


class Suppression(NamedTuple):
    """A suppressed address. `digest`: `address_digest` of it; `kind`: one of `SUPPRESSION_KINDS`."""

    channel: str
    digest: str
    kind: str


_INSTANT: Final = attrgetter("at")


class History:
    """The past messages of a person, at most `MAX_MESSAGES`. Raises: ValueError for more.

    What a check asks for is indexed at its first question, so that a further decision is not linear in the messages.
    """

    __slots__ = ("_last_of", "_last_with", "_messages", "_slots_taken")

    def __init__(self, messages: Iterable[PastMessage] = ()) -> None:
        self._messages = tuple(sorted(messages, key=_INSTANT))
        _at_most(MAX_MESSAGES, "past messages", self._messages)
        self._last_of: Mapping[str | None, int] | None = None
        self._last_with: Mapping[str | None, int] | None = None
        self._slots_taken: dict[tuple[frozenset[str] | None, frozenset[str] | None], Sequence[int]] = {}

    def newest_first(self) -> Iterator[PastMessage]:
        """Return an iterator over the messages, the newest first."""
        return reversed(self._messages)

    def last_of(self, campaign: str) -> int | None:
        """Return the instant of the newest message of a campaign; None without one."""
        if self._last_of is None:
            self._last_of = {one.campaign: one.at for one in self._messages}  # a newer one replaces an older one
        return self._last_of.get(campaign)

    def last_with(self, dedupe_key: str) -> int | None:
        """Return the instant of the newest message with a `dedupe_key`; None without one."""
        if self._last_with is None:
            self._last_with = {one.dedupe_key: one.at for one in self._messages}
        return self._last_with.get(dedupe_key)

    def slots_taken(self, channels: frozenset[str] | None, purposes: frozenset[str] | None) -> Sequence[int]:
        """Return the instants of the messages that count in a cap on these channels and purposes (None: all), in order."""
        selection = channels, purposes
        found = self._slots_taken.get(selection)
        if found is None:
            found = self._slots_taken[selection] = [
                at
                for at, channel, purpose, _, _, held_out, slot_returned in self._messages
                if not (held_out or slot_returned)
                and (channels is None or channel in channels)
                and (purposes is None or purpose in purposes)
            ]
        return found

    def with_message(self, message: PastMessage) -> "History":
        """Return the history with one more message. A full history loses its oldest message."""
        return History((*self._messages[-(MAX_MESSAGES - 1) :], message))


@dataclass(frozen=True, slots=True)
class Person:
    """The person that a message is for. `devices`: channel -> addresses. Raises: ValueError for more than the bounds allow."""

    user_id: str
    traits: Mapping[str, Any] = field(default_factory=dict)
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    consent_changes: tuple[ConsentChange, ...] = ()
    suppressions: tuple[Suppression, ...] = ()
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        _at_most(MAX_CONSENT_CHANGES, "changes of consent", self.consent_changes)
        _at_most(MAX_SUPPRESSIONS, "suppressions", self.suppressions)
        for channel, addresses in self.devices.items():
            _at_most(MAX_DEVICES, f"devices of {channel}", addresses)


@dataclass(frozen=True, slots=True)
class Message:
    """A message to decide about. `due_at`: epoch ms. `instance`: the trigger's; two messages of a campaign differ in it.

    `exits`, `cancel_events`: the instants of exits and of events that cancel the message after `triggered_at`, epoch ms. None of
    them counts without `triggered_at`. Raises: ValueError for more than the bounds allow.
    """

    rules: MessageRules
    due_at: int
    instance: str = ""
    triggered_at: int | None = None
    exits: tuple[int, ...] = ()
    cancel_events: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _at_most(MAX_CANCELLATIONS, "exits", self.exits)
        _at_most(MAX_CANCELLATIONS, "cancelling events", self.cancel_events)

    @property
    def expires_at(self) -> int:
        """Return the last instant at which the message may be requested, epoch ms."""
        return self.due_at + self.rules.expires_after_ms


def address_digest(address: str) -> str:
    """Return the digest under which an address is suppressed: SHA-256 of the trimmed, lower-cased text, in hexadecimal."""
    return hashlib.sha256(address.strip().lower().encode("utf-8", "surrogatepass")).hexdigest()


def _at_most(most: int, what: str, values: tuple[object, ...]) -> None:
    if len(values) > most:
        raise ValueError(f"there are {len(values)} {what}: at most {most}")
