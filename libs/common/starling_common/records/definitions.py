"""Pure core: what every reader of a topic of definitions does with a `DefinitionChanged`."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from starling_common.cassandra.read_models import ACTIVE, ARCHIVED, DEFINED, DISABLED, PAUSED, WEBHOOK
from starling_common.outcome import Outcome, Refused
from starling_common.values import deterministic_id
from starling_common.wire import Record

T = TypeVar("T")

STATUS_AFTER: Final[Mapping[str, str]] = {
    "DEFINED": DEFINED,
    "REVISED": DEFINED,
    "RESUMED": DEFINED,
    "ACTIVATED": ACTIVE,
    "ARCHIVED": ARCHIVED,
    "PAUSED": PAUSED,
    "DISABLED": DISABLED,
}
"""Action -> the status of the definition after it."""


DISABLED_FIELDS: Final = frozenset({"disabled", "disabled_because"})
"""The fields of the document of a webhook or a target that delivery has disabled."""


class UnknownAction(ValueError):
    """The action is not one of `STATUS_AFTER`. A newer version of the platform wrote it: upgrade this process."""

    def __init__(self, action: str) -> None:
        super().__init__(f"action: {action!r} is not one of {', '.join(STATUS_AFTER)}")


def status_after(action: str) -> str:
    """Return the status of a definition after an action. Raises: UnknownAction."""
    try:
        return STATUS_AFTER[action]
    except KeyError:
        raise UnknownAction(action) from None


def action_before(status: str) -> str:
    """Return the first action of `STATUS_AFTER` that leads to a status. Raises: StopIteration for an unknown status."""
    return next(action for action, found in STATUS_AFTER.items() if found == status)


def definitions_fold(fold: Callable[[T, Record], Outcome[T]]) -> Callable[[T, bytes, Record | None], Outcome[T]]:
    """Return `fold` for a `FoldedTopic` of definitions: a record without a value or with an unknown action is refused."""

    def checked(state: T, key: bytes, record: Record | None) -> Outcome[T]:
        if record is None:
            return Refused("missing_value", f"key {key!r}: the record has no value: archive the definition instead")
        try:
            status_after(record["action"])
        except UnknownAction as error:
            return Refused("unknown_action", f"{record['workspace']}/{record['key']} version {record['version']}: {error}")
        return fold(state, record)

    return checked


class Disabled(NamedTuple):
    """A webhook or a target that is disabled. `document`: as stored, with encrypted secrets."""

    kind: str
    workspace: str
    key: str
    version: int
    document: Mapping[str, Any]


def disabled_record(disabled: Disabled, why: str, correlation_id: str, actor: str, now_micros: int) -> dict[str, Any]:
    """Return the `DefinitionChanged` by which a receiver gets nothing more. Its id is the same in every process."""
    kind, workspace, key, version, document = disabled
    of_kind = () if kind == WEBHOOK else (kind,)
    return {
        "recorded_at": now_micros,
        "event_id": deterministic_id("disabled", *of_kind, workspace, key, version),
        "workspace": workspace,
        "kind": kind,
        "key": key,
        "version": version,
        "action": action_before(DISABLED),
        "document": json.dumps(dict(document) | {"disabled": True, "disabled_because": why}),
        "actor": actor,
        "correlation_id": correlation_id,
    }
