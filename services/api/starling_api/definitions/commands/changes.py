"""Core: the way of one change: it is claimed, published, and shown by the read model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starling_api.definitions.commands.batches import INTENT, batch_in, resolve
from starling_api.definitions.definition import Author, Change, Definition, restored
from starling_api.definitions.kinds.kind import Kind
from starling_api.http.errors import NotFound, ResourceBusy, VersionConflict
from starling_api.ports import Claim, Claims, DefinitionReader, NowMicros, Publish, Sleep

READ_YOUR_WRITES_SECONDS: Final = 3.0
"""Maximum wait for the read model. The response is sent after it in any case, because the change is published."""

ABANDONED_MICROS: Final = 15_000_000
"""Age at which an unpublished claim counts as abandoned. The publisher's time-out is well below it (publisher.py)."""

_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Changes:
    """Claims and publishes changes. Each method may raise the `…Unavailable` error of a store and can then be repeated."""

    claims: Claims
    reader: DefinitionReader
    publish: Publish
    now_micros: NowMicros
    sleep: Sleep
    is_dry: bool
    """True: nothing is claimed or published."""

    def newest(self, kind: Kind, author: Author, key: str, if_match: int | None) -> tuple[Change, Definition]:
        """Return the newest claimed change and the current definition, which another service may have changed later.

        Raises: NotFound, VersionConflict, ResourceBusy.
        """
        claim = self.settled(kind, author, key)
        if claim is None:
            raise NotFound(kind.title, key)
        current, shown = claim.change.definition(), self.reader.definition(author.workspace, kind.name, key)
        if shown is not None and shown.revision >= current.revision:
            current = shown
        if if_match is not None and if_match != current.revision:
            raise VersionConflict(key, current.revision)
        return claim.change, current

    def settled(self, kind: Kind, author: Author, key: str) -> Claim | None:
        """Return the newest claim once it is published. Changes of one key are published in the order of their claims.

        Raises: ResourceBusy.
        """
        deadline_micros = self.now_micros() + int(READ_YOUR_WRITES_SECONDS * 1_000_000)
        while True:
            claim = self.claims.newest(author.workspace, kind.name, key)
            if claim is None:
                shown = self.reader.definition(author.workspace, kind.name, key)
                if shown is None:
                    return None
                self._claim_again(author, shown)
                continue
            if claim.published:
                return claim
            if self.now_micros() - claim.change.recorded_at_micros > ABANDONED_MICROS:
                if self._resolved(claim.change):
                    continue
                self._finish(claim.change, author.traceparent)
                return claim
            if self.now_micros() > deadline_micros:
                raise ResourceBusy(f"another request is changing {key!r}: send the request again in a few seconds")
            self.sleep(_POLL_SECONDS)

    def claim(self, change: Change, before: Change | None) -> bool:
        """Claim a change after the one before it (None: a new key). Return False if a concurrent request was faster."""
        if not self.is_dry:
            return self.claims.claim(change, before)
        newest = self.claims.newest(change.workspace, change.kind, change.key)
        return (None if newest is None else newest.change.event_id) == (None if before is None else before.event_id)

    def carry_out(self, change: Change, author: Author) -> Definition:
        """Publish a claimed change, wait for the read model, and return the definition."""
        if not self.is_dry:
            self._finish(change, author.traceparent)
            self.wait(lambda: self.is_shown(change))
        return change.definition()

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Wait until it is so, at most `READ_YOUR_WRITES_SECONDS`."""
        deadline_micros = self.now_micros() + int(READ_YOUR_WRITES_SECONDS * 1_000_000)
        while not is_so() and self.now_micros() < deadline_micros:
            self.sleep(_POLL_SECONDS)

    def is_shown(self, change: Change) -> bool:
        """Return whether the read model has the change, or a later one."""
        shown = self.reader.definition(change.workspace, change.kind, change.key)
        return shown is not None and shown.recorded_at_micros >= change.recorded_at_micros

    def finish_abandoned(self) -> int:
        """Publish or revert the changes whose process died after the claim. Return their number."""
        oldest_micros = self.now_micros() - ABANDONED_MICROS
        unpublished = self.claims.unpublished()
        batches = [batch_in(change) for change in unpublished if change.kind == INTENT]
        in_batches = {change.event_id for batch in batches for change, _ in batch.changes}
        abandoned = [change for change in unpublished if change.recorded_at_micros < oldest_micros]
        finished = 0
        for change in abandoned:
            if change.kind == INTENT:
                resolve(self.claims, self.publish, batch_in(change))
            elif change.event_id not in in_batches:
                self._finish(change, None)
            else:
                continue
            finished += 1
        return finished

    def _claim_again(self, author: Author, shown: Definition) -> None:
        """Store the claim of a definition that has none: the claims were lost, and the read models rebuilt from the topics."""
        change = restored(author, shown)
        if self.claims.claim(change, None):
            self.claims.mark_published(change)

    def _resolved(self, change: Change) -> bool:
        """Return whether an abandoned change was part of a batch, after completing or reverting that batch."""
        batches = (batch_in(one) for one in self.claims.unpublished() if one.kind == INTENT)
        found = next((one for one in batches if change.event_id in {part.event_id for part, _ in one.changes}), None)
        if found is not None:
            resolve(self.claims, self.publish, found)
        return found is not None

    def _finish(self, change: Change, traceparent: str | None) -> None:
        self.publish(change, traceparent)
        self.claims.mark_published(change)
