"""Pure core: the consent of people to audiences: explicit changes, the trait, and the policy of the workspace."""

from collections.abc import Mapping
from threading import Lock
from typing import Any, Final, NamedTuple

from starling_campaigns.channels import AUDIENCE
from starling_common.outcome import Done, Outcome, Refused
from starling_common.values import split_key
from starling_common.wire import Record
from starling_policy.campaign import MARKETING

PURPOSES: Final = (MARKETING, None)
"""The purposes that count for an audience: marketing, and every purpose of the channel (None)."""

_Place = tuple[str, str, str | None]
"""Workspace, user and purpose."""


class _Explicit(NamedTuple):
    """An explicit change. `at`: epoch ms. Of two changes at one time the refusal wins, because `granted` is inverted here."""

    at: int
    refused: bool


class Consent:
    """The explicit changes for audiences, of all workspaces. Thread-safe."""

    def __init__(self) -> None:
        self._changes: dict[_Place, _Explicit] = {}
        self._lock = Lock()

    def apply(self, record: Record) -> bool:
        """Apply one `ConsentChanged`. Return whether it concerns audiences."""
        if record["channel"] != AUDIENCE or record["purpose"] not in PURPOSES:
            return False
        place = (record["workspace"], record["user_id"], record["purpose"])
        new = _Explicit(record["changed_at"], not record["granted"])
        with self._lock:
            self._changes[place] = max(new, self._changes.get(place, new))
        return True

    def forget(self, workspace: str, user: str, purpose: str | None) -> None:
        """Forget the change of an erased user."""
        with self._lock:
            self._changes.pop((workspace, user, purpose), None)

    def allows(self, workspace: str, user: str, traits: Mapping[str, Any], *, opt_out: bool) -> bool:
        """Return whether the user may be in an audience. `opt_out`: without any statement of the user they may."""
        known = (self._changes.get((workspace, user, purpose)) for purpose in PURPOSES)
        explicit = max((one for one in known if one is not None), default=None)
        if explicit is not None:
            return not explicit.refused
        trait = _trait(traits)
        return opt_out if trait is None else trait


def fold_consent(known: Consent, key: bytes, record: Record | None) -> Outcome[Consent]:
    """Return the consent after one record of `consent.changes`."""
    if record is not None:
        known.apply(record)
        return Done(known)
    try:
        workspace, rest = split_key(key)
    except ValueError as error:
        return Refused("bad_key", str(error))
    # The key is `workspace/user/channel/purpose`, and a user id may contain slashes.
    user, channel, purpose = rest.rsplit("/", 2) if rest.count("/") > 1 else ("", "", "")
    if channel == AUDIENCE:
        known.forget(workspace, user, purpose or None)
    return Done(known)


def _trait(traits: Mapping[str, Any]) -> bool | None:
    channels = traits.get("consent")
    value = channels.get(AUDIENCE) if isinstance(channels, Mapping) else None
    if isinstance(value, Mapping):
        value = value.get(MARKETING)
    return value if isinstance(value, bool) else None
