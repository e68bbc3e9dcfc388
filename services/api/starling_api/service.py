"""Core: the commands. Claim the change, publish it, wait until the read model shows it."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starling_api.definitions import (
    PAUSED_ACTION,
    USES,
    Author,
    Change,
    Definition,
    after,
    archived,
    defined,
    is_same,
    paused,
    refuse_read_only,
    resumed,
    revised,
    used_segments,
    users_of,
)
from starling_api.errors import Archived, AtWork, InUse, NotFound, VersionConflict
from starling_api.kinds import LISTS, SEGMENTS, TRAITS, Kind, new_secret
from starling_api.ports import Claim, Claims, DefinitionReader, NowMicros, Pause, Publish
from starling_common.read_models import ARCHIVED
from starling_common.timezones import DEFAULT
from starling_segments import DefinitionRefused, Fault, Known

READ_YOUR_WRITES_SECONDS: Final = 3.0
"""How long an answer waits for the read model; then it is given all the same, for the change is made."""

ABANDONED_MICROS: Final = 15_000_000
"""A claim this old that is not published has lost its author; the publisher gives up well before (see publisher.py)."""

_PAUSE_SECONDS: Final = 0.02
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Commands:
    """What one can do with definitions. Every command may raise the `…Unavailable` of a store, and can then be repeated."""

    claims: Claims
    reader: DefinitionReader
    publish: Publish
    now_micros: NowMicros
    pause: Pause
    is_held: Callable[[str, str], bool]
    """Whether a segment (workspace, key) is not evaluated any more."""
    zone_of: Callable[[str], str] = lambda _workspace: DEFAULT
    """The time zone of a workspace's segments that name none. It becomes part of the document: nobody else has to know it."""

    def define(self, kind: Kind, author: Author, document: object) -> Definition:
        """The first version. Raises: DefinitionRefused (key_taken among its faults), AtWork."""
        known = self._known(kind, author, except_key=None)
        kept = kind.read(_with_secret(kind, document, None), known)
        change = defined(kind.name, author, kept, self.now_micros())
        if self.claims.claim(change, None):
            return self._carry_out(change, author)
        found = self._settled(kind, author, kept["key"])
        if found is not None and not found.published and _repeats(found.change, change, kind):
            return found.change.definition()  # a first try got as far as its claim, and is finished now
        raise DefinitionRefused((Fault("/key", "key_taken", f"{kept['key']!r} is or was in use", "a key never used before"),))

    def revise(self, kind: Kind, author: Author, key: str, document: object, if_match: int | None) -> Definition:
        """A new version, or new words for the same one; nothing when nothing changed.

        Raises: NotFound, Archived, VersionConflict, ReadOnly, DefinitionRefused, AtWork.
        """
        for _ in range(_ATTEMPTS):
            before, current = self._newest(kind, author, key, if_match)
            if before.action == "ARCHIVED":
                raise Archived(f"{key!r} is archived: create a {kind.title} with another key")
            refuse_read_only(document, current)
            kept = kind.read(_with_secret(kind, _with_key(document, key), before), self._known(kind, author, except_key=key))
            if is_same(kept, before.document) and is_same(kept, current.document):
                return current
            change = after(current, revised(before, author, kept, kind.meaning, self.now_micros()))
            if self.claims.claim(change, before):
                return self._carry_out(change, author)
        raise AtWork(f"other requests keep changing {key!r}: send the request again")

    def put(self, kind: Kind, author: Author, key: str, document: object, if_match: int | None) -> tuple[bool, Definition]:
        """Define or revise, whichever it takes; whether it was made new. Raises: as both."""
        if if_match is None and self._settled(kind, author, key) is None:
            return True, self.define(kind, author, _with_key(document, key))
        return False, self.revise(kind, author, key, document, if_match)

    def hold(self, kind: Kind, author: Author, key: str, if_match: int | None) -> Definition:
        """Stop evaluating, and wait until that is so; a second time changes nothing.

        Raises: NotFound, Archived, VersionConflict, AtWork.
        """
        held = self._turn(kind, author, key, if_match, to_pause=True)
        self._wait(lambda: self.is_held(author.workspace, key))
        return held

    def resume(self, kind: Kind, author: Author, key: str, if_match: int | None) -> Definition:
        """Go on evaluating; what is not paused stays as it is. Raises: NotFound, Archived, VersionConflict, AtWork."""
        return self._turn(kind, author, key, if_match, to_pause=False)

    def archive(self, kind: Kind, author: Author, key: str, if_match: int | None) -> None:
        """The end of a definition; a second time changes nothing. Raises: NotFound, VersionConflict, InUse, AtWork."""
        for _ in range(_ATTEMPTS):
            before, current = self._newest(kind, author, key, if_match)
            if before.action == "ARCHIVED":
                return
            if users := self._users_of(kind, author, key):
                raise InUse(key, users)
            change = after(current, archived(before, author, self.now_micros()))
            if self.claims.claim(change, before):
                self._carry_out(change, author)
                return
        raise AtWork(f"other requests keep changing {key!r}: send the request again")

    def known(self, kind: Kind, author: Author, except_key: str | None = None) -> Known:
        """What a definition of that kind may refer to now."""
        return self._known(kind, author, except_key)

    def finish_abandoned(self) -> int:
        """Publish what was claimed by somebody who then died. Gives how many."""
        oldest_micros = self.now_micros() - ABANDONED_MICROS
        abandoned = [change for change in self.claims.unpublished() if change.recorded_at_micros < oldest_micros]
        for change in abandoned:
            self._finish(change, None)
        return len(abandoned)

    def _turn(self, kind: Kind, author: Author, key: str, if_match: int | None, *, to_pause: bool) -> Definition:
        for _ in range(_ATTEMPTS):
            before, current = self._newest(kind, author, key, if_match)
            if before.action == "ARCHIVED":
                raise Archived(f"{key!r} is archived: only a segment in use can be paused or resumed")
            if (before.action == PAUSED_ACTION) is to_pause:
                return current
            change = after(current, (paused if to_pause else resumed)(before, author, self.now_micros()))
            if self.claims.claim(change, before):
                return self._carry_out(change, author)
        raise AtWork(f"other requests keep changing {key!r}: send the request again")

    def _newest(self, kind: Kind, author: Author, key: str, if_match: int | None) -> tuple[Change, Definition]:
        """The newest change that was claimed, and the definition: another service can have published a later change of it."""
        claim = self._settled(kind, author, key)
        if claim is None:
            raise NotFound(kind.title, key)
        current, shown = claim.change.definition(), self.reader.definition(author.workspace, kind.name, key)
        if shown is not None and shown.revision >= current.revision:
            current = shown
        if if_match is not None and if_match != current.revision:
            raise VersionConflict(key, current.revision)
        return claim.change, current

    def _settled(self, kind: Kind, author: Author, key: str) -> Claim | None:
        """The newest claim, published: changes of one key are published in the order in which they are claimed."""
        deadline_micros = self.now_micros() + int(READ_YOUR_WRITES_SECONDS * 1_000_000)
        while True:
            claim = self.claims.newest(author.workspace, kind.name, key)
            if claim is None or claim.published:
                return claim
            if self.now_micros() - claim.change.recorded_at_micros > ABANDONED_MICROS:
                self._finish(claim.change, author.traceparent)
                return claim
            if self.now_micros() > deadline_micros:
                raise AtWork(f"another request is changing {key!r}: send the request again in a few seconds")
            self.pause(_PAUSE_SECONDS)

    def _carry_out(self, change: Change, author: Author) -> Definition:
        self._finish(change, author.traceparent)
        self._wait(lambda: self._is_shown(change))
        return change.definition()

    def _wait(self, is_so: Callable[[], bool]) -> None:
        deadline_micros = self.now_micros() + int(READ_YOUR_WRITES_SECONDS * 1_000_000)
        while not is_so() and self.now_micros() < deadline_micros:
            self.pause(_PAUSE_SECONDS)

    def _finish(self, change: Change, traceparent: str | None) -> None:
        self.publish(change, traceparent)
        self.claims.mark_published(change)

    def _is_shown(self, change: Change) -> bool:
        shown = self.reader.definition(change.workspace, change.kind, change.key)
        return shown is not None and shown.recorded_at_micros >= change.recorded_at_micros

    def _known(self, kind: Kind, author: Author, except_key: str | None) -> Known:
        own = self.reader.definitions(author.workspace, kind.name)
        segments = own if kind is SEGMENTS else self.reader.definitions(author.workspace, SEGMENTS.name)
        traits = own if kind is TRAITS else self.reader.definitions(author.workspace, TRAITS.name)
        lists = own if kind is LISTS else self.reader.definitions(author.workspace, LISTS.name)
        return Known(
            segments={one.key: used_segments(one.document) for one in segments if one.status != ARCHIVED},
            computed_traits=frozenset(one.key for one in traits if one.status != ARCHIVED),
            taken_keys=frozenset(one.key for one in own if one.key != except_key),
            lists=frozenset(one.key for one in lists if one.status != ARCHIVED),
            accounts=True,
            timezone=self.zone_of(author.workspace),
        )

    def _users_of(self, kind: Kind, author: Author, key: str) -> list[str]:
        if kind.name not in USES:
            return []
        return users_of(kind.name, key, self.reader.definitions(author.workspace, SEGMENTS.name))


def _with_key(document: object, key: str) -> object:
    """The key of the path holds; one in the document that says otherwise is a fault."""
    if not isinstance(document, Mapping):
        return document
    if document.get("key", key) != key:
        raise DefinitionRefused((Fault("/key", "bad_key", "a key never changes", f"{key!r}, as in the path, or none"),))
    return {**document, "key": key}


def _with_secret(kind: Kind, document: object, before: Change | None) -> object:
    """Where a kind has a secret and none is given: the one it had, or a new one."""
    if kind.hidden is None or not isinstance(document, Mapping) or document.get(kind.hidden) is not None:
        return document
    kept: Any = new_secret(secrets.token_bytes(32)) if before is None else before.document[kind.hidden]
    return {**document, kind.hidden: kept}


def _repeats(found: Change, change: Change, kind: Kind) -> bool:
    # A secret of our own making differs from one try to the next.
    return found.action == "DEFINED" and all(
        is_same(found.document.get(field), value) for field, value in change.document.items() if field != kind.hidden
    )
