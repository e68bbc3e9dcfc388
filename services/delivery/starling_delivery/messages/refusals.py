"""Pure core: the addresses and people that get no messages: suppressions and recent refusals of consent, as folds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from starling_common.outcome import Done, Outcome, Refused
from starling_common.records import suppressions
from starling_common.records.suppressions import SuppressedAddresses
from starling_common.wire import Record
from starling_policy import address_digest

CONSENT_MS: Final = 8 * 24 * 3_600_000
"""How long a change of consent is kept. The messenger has decided with older ones: a message waits here for 7 days at most, the
longest `expires_after`."""

_LEAST_TO_FORGET: Final = 10_000

T = TypeVar("T")


@dataclass
class Suppressions:
    """The suppressed addresses of one channel. One thread writes."""

    channel: str
    known: SuppressedAddresses = field(default_factory=SuppressedAddresses)

    def kind(self, workspace: str, address: str) -> str | None:
        """Return why an address is suppressed; None if it is not."""
        return self.known.kind(workspace, self.channel, address_digest(address))


def fold_suppression(known: Suppressions, key: bytes, record: Record | None) -> Outcome[Suppressions]:
    """Return the suppressions after one AddressSuppressed record. Those of other channels are not kept."""
    if record is not None and record["channel"] != known.channel:
        return Done(known)
    outcome = suppressions.fold_suppression(known.known, key, record)
    return Done(known) if isinstance(outcome, Done) else outcome


@dataclass
class RecentConsent:
    """The changes of consent of one channel in the last 8 days: (workspace, user, purpose) -> (time in ms, granted)."""

    channel: str
    changes: dict[tuple[str, str, str | None], tuple[int, bool]] = field(default_factory=dict)
    forget_at: int = _LEAST_TO_FORGET

    def refuses(self, workspace: str, user: str, purpose: str, now_ms: int) -> bool:
        """Return whether the newest change for the purpose, or for all purposes of the channel, is recent and a refusal."""
        found = [self.changes.get((workspace, user, one)) for one in (purpose, None)]
        newest = max((change for change in found if change is not None), default=None)
        return newest is not None and newest[0] > now_ms - CONSENT_MS and not newest[1]


def fold_consent(known: RecentConsent, _key: bytes, record: Record | None) -> Outcome[RecentConsent]:
    """Return the changes after one ConsentChanged record. Old ones are removed whenever their number has doubled."""
    if record is None or record["channel"] != known.channel:
        return Done(known)
    place = (record["workspace"], record["user_id"], record["purpose"])
    changed_at: int = record["changed_at"]
    before = known.changes.get(place)
    if before is None or changed_at >= before[0]:
        known.changes[place] = (changed_at, record["granted"])
    if len(known.changes) > known.forget_at:
        newest = max(change[0] for change in known.changes.values())
        known.changes = {place: change for place, change in known.changes.items() if change[0] > newest - CONSENT_MS}
        known.forget_at = max(_LEAST_TO_FORGET, 2 * len(known.changes))
    return Done(known)


def of_channels(
    fold: Callable[[T, bytes, Record | None], Outcome[T]],
) -> Callable[[Mapping[str, T], bytes, Record | None], Outcome[Mapping[str, T]]]:
    """Return the fold of a topic for several channels, from that of one, which ignores the records of other channels.

    Its value is channel -> the value of that channel, which changes in place.
    """

    def folded(known: Mapping[str, T], key: bytes, record: Record | None) -> Outcome[Mapping[str, T]]:
        for one in known.values():
            outcome = fold(one, key, record)
            if isinstance(outcome, Refused):
                return outcome
        return Done(known)

    return folded
