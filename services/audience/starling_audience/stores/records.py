"""Pure core: the records that audience sync writes: reports, dead letters, and disabled targets."""

from typing import Any, Final

from starling_audience.changes import Change
from starling_audience.definitions import AudienceTarget
from starling_campaigns.channels import AUDIENCE
from starling_common.cassandra.read_models import TARGET
from starling_common.records.definitions import Disabled, disabled_record
from starling_common.values import deterministic_id
from starling_common.wire import Record

STAGE: Final = "audience"
"""In the `produced_by` header of each record, and in the dead letters."""

DELIVERED: Final = "DELIVERED"
FAILED: Final = "FAILED"
SUPPRESSED: Final = "SUPPRESSED"


def delivery_id(target: AudienceTarget, change: Change) -> str:
    """Return the id of the message of a change to a target."""
    return change.delivery_id or deterministic_id(AUDIENCE, target.workspace, target.key, change.event_id)


def report_of(target: AudienceTarget, change: Change, outcome: str, detail: str | None, now_ms: int) -> dict[str, Any]:
    """Return the `DeliveryReported` of a change."""
    message = delivery_id(target, change)
    return {
        "received_at": change.received_at,
        "workspace": target.workspace,
        "user_id": change.user_id,
        "event_id": deterministic_id(message, change.attempt, outcome, detail or ""),
        "delivery_id": message,
        "channel": AUDIENCE,
        "target_key": target.key,
        "outcome": outcome,
        "attempt": change.attempt,
        "status_code": None,
        "detail": detail,
        "segment_key": change.segment,
        "event_time": now_ms,
        "correlation_id": _correlation_id(target, change),
        "campaign": None,
        "soft_bounce": None,
    }


def retry_of(target: AudienceTarget, change: Change, why: str, now_ms: int) -> dict[str, Any]:
    """Return the `DeliveryRequested` that a dead letter of a change contains.

    It has neither an address nor a number: a replay reads the present ones.
    """
    return {
        "received_at": change.received_at,
        "workspace": target.workspace,
        "user_id": change.user_id,
        "delivery_id": delivery_id(target, change),
        "channel": AUDIENCE,
        "target_key": target.key,
        "address": target.adapter,
        "payload": "",
        "attempt": change.attempt,
        "first_attempt_at": now_ms,
        "not_before": now_ms,
        "last_error": why,
        "segment_key": change.segment,
        "correlation_id": _correlation_id(target, change),
        "sequence": change.sequence,
    }


def disabled_of(target: AudienceTarget, why: str, now_micros: int) -> Record:
    """Return the `DefinitionChanged` that disables a target. Its document has encrypted secrets, as before."""
    disabled = Disabled(TARGET, *target.place, target.version, target.document)
    run = deterministic_id("disabled", *target.place, target.version, why)
    return disabled_record(disabled, why, run, STAGE, now_micros)


def _correlation_id(target: AudienceTarget, change: Change) -> str:
    return change.correlation_id or delivery_id(target, change)
