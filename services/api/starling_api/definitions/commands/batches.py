"""Core: atomic writes of many segments.

The intent is claimed first. It contains every change and the change before it. Then the keys are claimed in order. The first
change is published after all keys are claimed. The claim of the last key decides whether an abandoned batch is completed.
"""

import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from starling_api.definitions.definition import Author, Change, Definition
from starling_api.ports import Claims, Publish

INTENT: Final = "batch"
"""The kind of the claim that stores an intent."""


class Step(NamedTuple):
    """One planned change of a batch. `change` None: the definition does not change."""

    before: Change | None
    change: Change | None
    definition: Definition


@dataclass(frozen=True, slots=True)
class Batch:
    """The changes of one batch in order, each with the change before it (None: a new key)."""

    intent: Change
    changes: Sequence[tuple[Change, Change | None]]


def batch_of(author: Author, steps: Sequence[Step], now_micros: int) -> Batch:
    """Return the batch of the steps with a change."""
    changes = [(step.change, step.before) for step in steps if step.change is not None]
    pairs = [{"change": asdict(one), "before": None if before is None else asdict(before)} for one, before in changes]
    intent = Change(
        workspace=author.workspace,
        kind=INTENT,
        key=str(uuid.uuid4()),
        version=1,
        action="APPLIED",
        document={"changes": pairs},
        actor=author.name,
        correlation_id=author.correlation_id,
        created_at_micros=now_micros,
        recorded_at_micros=now_micros,
    )
    return Batch(intent, changes)


def batch_in(intent: Change) -> Batch:
    """Return the batch of a stored intent: the inverse of `batch_of`."""
    found = ((Change(**one["change"]), one["before"]) for one in intent.document["changes"])
    return Batch(intent, [(change, None if before is None else Change(**before)) for change, before in found])


def claim_all(claims: Claims, batch: Batch) -> bool:
    """Claim the intent and every change. Return False, without a claim, if a concurrent request claimed one of the keys."""
    claims.claim(batch.intent, None)
    for number, (change, before) in enumerate(batch.changes):
        if not claims.claim(change, before):
            withdraw(claims, batch, number)
            return False
    return True


def withdraw(claims: Claims, batch: Batch, most: int) -> None:
    """Withdraw the first `most` claims in reverse order, then the intent."""
    for change, before in reversed(batch.changes[:most]):
        claims.withdraw(change, before)
    claims.withdraw(batch.intent, None)


def publish_all(claims: Claims, publish: Publish, batch: Batch, traceparent: str | None) -> None:
    """Publish every change in order, then withdraw the intent."""
    for change, _ in batch.changes:
        newest = claims.newest(change.workspace, change.kind, change.key)
        if newest is not None and newest.change.event_id == change.event_id and not newest.published:
            publish(change, traceparent)
            claims.mark_published(change)
    claims.withdraw(batch.intent, None)


def resolve(claims: Claims, publish: Publish, batch: Batch) -> None:
    """Complete or revert a batch whose process died.

    Keys are claimed in order and published in order after the last claim. A claim of the last key thus means that all are claimed.
    Without it, either some keys are unclaimed or all changes are published; unpublished claims are withdrawn.
    """
    last, _ = batch.changes[-1]
    newest = claims.newest(last.workspace, last.kind, last.key)
    if newest is not None and newest.change.event_id == last.event_id:
        publish_all(claims, publish, batch, None)
        return
    for change, before in reversed(batch.changes):
        found = claims.newest(change.workspace, change.kind, change.key)
        if found is not None and found.change.event_id == change.event_id and not found.published:
            claims.withdraw(change, before)
    claims.withdraw(batch.intent, None)
