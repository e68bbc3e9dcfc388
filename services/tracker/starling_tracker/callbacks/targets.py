"""Pure core: the targets whose providers call back, as a fold over `delivery.definitions`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from starling_common.cassandra.read_models import ARCHIVED, TARGET
from starling_common.outcome import Done, Outcome, Refused
from starling_common.records.definitions import status_after
from starling_common.security.sealing import Place, Sealer, Unreadable
from starling_common.wire import Record

_EMAIL: Final = "email"
_SMS: Final = "sms"


class Provider(StrEnum):
    """Who calls back: `callbacks.provider` of a target for mails; of one for text messages always Twilio."""

    SES = "ses"
    SENDGRID = "sendgrid"
    DSN = "dsn"
    TWILIO = "twilio"


class TargetKey(NamedTuple):
    """Where a target is."""

    workspace: str
    key: str


@dataclass(frozen=True, slots=True)
class CallbackTarget:
    """A target that a provider calls back about. `credential`: the topic, the public key, the secret or the token of the account.

    `problem`: why its credential cannot be decrypted; no callback is taken then.
    """

    place: TargetKey
    provider: Provider
    credential: str
    problem: str | None = None

    def __repr__(self) -> str:
        return f"CallbackTarget({self.place}, {self.provider})"


@dataclass
class CallbackTargets:
    """All such targets. One thread writes, others look up single keys."""

    sealer: Sealer
    targets: dict[TargetKey, CallbackTarget]

    def problems(self) -> list[str]:
        """Return the reasons why callbacks of targets cannot be taken."""
        return [one.problem for one in list(self.targets.values()) if one.problem is not None]


def fold_target(known: CallbackTargets, record: Record) -> Outcome[CallbackTargets]:
    """Return the targets after one DefinitionChanged record. Other kinds change nothing."""
    if record["kind"] != TARGET:
        return Done(known)
    place = TargetKey(record["workspace"], record["key"])
    found: CallbackTarget | None = None
    try:
        if status_after(record["action"]) != ARCHIVED:
            found = _target(place, json.loads(record["document"]), known.sealer)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return Refused("definition_refused", f"target {'/'.join(place)} version {record['version']}: {error}")
    if found is None:
        known.targets.pop(place, None)
    else:
        known.targets[place] = found
    return Done(known)


def _target(place: TargetKey, document: Mapping[str, Any], sealer: Sealer) -> CallbackTarget | None:
    if document["channel"] == _SMS:
        return _sealed(place, Provider.TWILIO, document["auth_token"], "auth_token", sealer)
    callbacks = document.get("callbacks") if document["channel"] == _EMAIL else None
    if callbacks is None:
        return None
    match Provider(callbacks["provider"]):
        case Provider.SES:
            return CallbackTarget(place, Provider.SES, callbacks["topic_arn"])
        case Provider.SENDGRID:
            return CallbackTarget(place, Provider.SENDGRID, callbacks["public_key"])
        case provider:
            return _sealed(place, provider, callbacks["secret"], "callbacks/secret", sealer)


def _sealed(place: TargetKey, provider: Provider, stored: str, field: str, sealer: Sealer) -> CallbackTarget:
    try:
        credential = sealer.open(stored, Place(place.workspace, f"{TARGET}/{place.key}", field))
    except Unreadable as cause:
        return CallbackTarget(place, provider, "", str(cause))
    return CallbackTarget(place, provider, credential)
