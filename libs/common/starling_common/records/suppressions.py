"""Pure core: the suppressed addresses of all workspaces, as a fold over `suppressions`.

A person begins and ends the suppression of the own number by the words STOP and START. It and the other suppressions of an address
do not end one another: START never ends an uploaded suppression.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starling_common.outcome import Done, Outcome, Refused
from starling_common.values import record_key

STOP: Final = "stop"
"""The kind of a suppression that a person began."""

BY_PERSON: Final = "by_person"
"""The field of a suppression that a person began or ended."""

Addresses = dict[bytes, str]
"""Digest -> the kind of its suppression."""
Place = tuple[str, str]
"""(workspace, channel)."""


def suppression_key(workspace: str, channel: str, digest: str, *, by_person: bool = False) -> bytes:
    """Return the key of a record of `suppressions`."""
    return record_key(workspace, f"{channel}/{digest}/{STOP}" if by_person else f"{channel}/{digest}")


@dataclass
class SuppressedAddresses:
    """The suppressed addresses. One thread writes, others look up single addresses."""

    kinds: dict[Place, Addresses] = field(default_factory=dict)
    stopped: dict[Place, Addresses] = field(default_factory=dict)
    """Those that people began themselves."""

    def kind(self, workspace: str, channel: str, digest: str) -> str | None:
        """Return why an address is suppressed; None if it is not. `digest`: hexadecimal. Raises: ValueError for another text."""
        place, address = (workspace, channel), bytes.fromhex(digest)
        for known in (self.stopped, self.kinds):
            found = known.get(place)
            if found is not None and address in found:
                return found.get(address)
        return None


def fold_suppression(known: SuppressedAddresses, _key: bytes, record: Mapping[str, Any] | None) -> Outcome[SuppressedAddresses]:
    """Return the suppressions after one `AddressSuppressed`. They change in place."""
    if record is None:
        return Refused("missing_value", "a suppression has no value: a record with the kind null ends it")
    try:
        digest = bytes.fromhex(record["digest"])
    except ValueError as error:
        return Refused("bad_digest", str(error))
    places = known.stopped if record.get(BY_PERSON) else known.kinds
    addresses = places.setdefault((record["workspace"], record["channel"]), {})
    if record["kind"] is None:
        addresses.pop(digest, None)
    else:
        addresses[digest] = record["kind"]
    return Done(known)
