"""Core: the write operations on definitions. Each claims its change, publishes it, and waits for the read model."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

from starling_api.definitions.batches import INTENT, Step, batch_in, batch_of, claim_all, publish_all, resolve, withdraw
from starling_api.definitions.definition import (
    DISABLED_ACTION,
    PAUSED_ACTION,
    USES,
    Author,
    Change,
    Definition,
    activated,
    after,
    archived,
    defined,
    is_same,
    paused,
    plain_status,
    refuse_read_only,
    restored,
    resumed,
    revised,
    used_segments,
    users_of,
)
from starling_api.definitions.event_types import event_types_in, readers_of, statements_in
from starling_api.definitions.kinds.delivery import is_feed
from starling_api.definitions.kinds.kind import Document, Kind, Names
from starling_api.definitions.kinds.kinds import CAMPAIGNS, EVENT_TYPES, LISTS, SEGMENTS, TARGETS, TRAITS, VIEWS, WEBHOOKS
from starling_api.definitions.kinds.webhooks import new_secret
from starling_api.definitions.quota import Quota
from starling_api.definitions.vault import Vault
from starling_api.definitions.webhook_fields import without_expired_secret
from starling_api.http.errors import (
    Archived,
    FrozenField,
    InUse,
    NotActivated,
    NotAvailable,
    NotFound,
    ReadOnly,
    ResourceBusy,
    SecretsKeyMissing,
    SecretUnreadable,
    VersionConflict,
)
from starling_api.ports import Claim, Claims, DefinitionReader, Messenger, NowMicros, Publish, Sleep
from starling_campaigns import frozen_errors, parse_stored_campaign, state_after
from starling_campaigns.channels import AUDIENCE
from starling_campaigns.definitions.lifecycle import ACTIVATE, PAUSE
from starling_common.cassandra.read_models import ACTIVE, ARCHIVED, PAUSED
from starling_common.records.definitions import DISABLED_FIELDS
from starling_common.sealing import KeyMissing
from starling_common.time.timezones import DEFAULT
from starling_segments import DefinitionRefused, FieldError, Known, check_bounds

READ_YOUR_WRITES_SECONDS: Final = 3.0
"""Maximum wait for the read model. The response is sent after it in any case, because the change is published."""

ABANDONED_MICROS: Final = 15_000_000
"""Age at which an unpublished claim counts as abandoned. The publisher's time-out is well below it (publisher.py)."""

ROTATION_MICROS: Final = 10_000_000
"""Time after which a rotation of the key begins no further definition, so that its request ends before clients give up."""

_POLL_SECONDS: Final = 0.02
_ATTEMPTS: Final = 5


class Unreadable(NamedTuple):
    """A definition with a secret that cannot be decrypted. `reason` names the key and the cure."""

    kind: str
    key: str
    reason: str


class Rotated(NamedTuple):
    """What a rotation of the installation's key has done in a workspace. `rewritten`: kind and key of each changed definition.

    `complete` False: the time of a request was over, and a repetition goes on.
    """

    key_id: str
    rewritten: Sequence[tuple[str, str]]
    unreadable: Sequence[Unreadable]
    complete: bool


@dataclass(frozen=True, slots=True)
class Commands:
    """The write operations on definitions. Each may raise the `…Unavailable` error of a store and can then be repeated."""

    claims: Claims
    reader: DefinitionReader
    publish: Publish
    now_micros: NowMicros
    sleep: Sleep
    is_stopped: Callable[[str, str], bool]
    """Returns whether no partition evaluates the segment (workspace, key) any more."""
    zone_of: Callable[[str], str] = lambda _workspace: DEFAULT
    """Returns the default time zone of a workspace's segments. It is stored in the document."""
    quota: Quota | None = None
    """None: unlimited."""
    messenger: Messenger | None = None
    """The messenger, which decides about the messages of active campaigns. Without one none is activated."""
    vault: Vault = field(default_factory=Vault)
    """Encrypts the secrets of every document that is claimed."""
    is_view: Callable[[str], bool] = lambda _key: False
    """Returns whether the key is the name of a materialised view, which has the same path as a view in SQL."""
    is_dry: bool = False
    """True: validate and return the result without an effect."""

    def define(self, kind: Kind, author: Author, document: object) -> Definition:
        """Create a definition and return its first version. Raises: DefinitionRefused (also `key_taken`), ResourceBusy."""
        known = self._known(kind, author, except_key=None)
        kept = _read(kind, self._with_secret(kind, document, None), known)
        if kind is VIEWS and self.is_view(kept["key"]):
            raise DefinitionRefused((FieldError("/key", "key_taken", f"{kept['key']!r} is a materialised view", "another key"),))
        self._check_quota(kind, author, {kept["key"]: kept})
        change = self._sealed(kind, defined(kind.name, author, kept, self.now_micros()))
        if self._claim(change, None):
            return self._carry_out(change, author)
        found = self._settled(kind, author, kept["key"])
        if found is not None and not found.published and self._repeats(kind, found.change, replace(change, document=kept)):
            return found.change.definition()  # an earlier attempt of the same request was claimed and is published now
        raise DefinitionRefused((FieldError("/key", "key_taken", f"{kept['key']!r} is or was in use", "a key never used before"),))

    def revise(self, kind: Kind, author: Author, key: str, document: object, if_match: int | None) -> Definition:
        """Change a definition and return it. A changed meaning makes a new version; an equal document has no effect.

        Raises: NotFound, Archived, VersionConflict, ReadOnly, FrozenField, DefinitionRefused, ResourceBusy.
        """
        for _ in range(_ATTEMPTS):
            before, current = self._newest(kind, author, key, if_match)
            if before.action == "ARCHIVED":
                raise Archived(f"{key!r} is archived: create a {kind.title} with another key")
            refuse_read_only(document, current)
            known = _without_limits(self._known(kind, author, except_key=key), document, before)
            kept = _read(kind, self._with_secret(kind, _with_key(document, key), before), known)
            kept = self.vault.kept(kind, author.workspace, kept, before.document)
            kept = kind.followed(kept, before.document, self.now_micros() // 1000)
            if kind is CAMPAIGNS and current.status in {ACTIVE, PAUSED}:
                _refuse_frozen(before.document, kept)
            if is_same(kept, before.document) and is_same(kept, current.document):
                return current
            if before.action != PAUSED_ACTION:
                self._check_quota(kind, author, {key: kept})
            change = self._sealed(kind, after(current, revised(before, author, kept, kind.meaning, self.now_micros())))
            if self._claim(change, before):
                return self._carry_out(change, author)
        raise ResourceBusy(f"other requests keep changing {key!r}: send the request again")

    def put(self, kind: Kind, author: Author, key: str, document: object, if_match: int | None) -> tuple[bool, Definition]:
        """Create or change a definition. Return (created, definition). Raises: the errors of `define` and `revise`."""
        if if_match is None and self._settled(kind, author, key) is None:
            return True, self.define(kind, author, _with_key(document, key))
        return False, self.revise(kind, author, key, document, if_match)

    def apply(self, author: Author, documents: Sequence[object]) -> list[Definition]:
        """Create or change many segments atomically and return them. A segment may use an earlier one of the same batch.

        Raises: DefinitionRefused with the errors of all segments, Archived, ReadOnly, ResourceBusy.
        """
        for _ in range(_ATTEMPTS):
            started_micros = self.now_micros()
            steps = self._planned(author, documents)
            batch = batch_of(author, steps, started_micros)
            if self.is_dry or not batch.changes:
                return [step.definition for step in steps]
            if not claim_all(self.claims, batch):
                continue
            if self.now_micros() - started_micros > ABANDONED_MICROS // 2:
                # Another process treats this batch as abandoned soon, and must not find it partly published.
                withdraw(self.claims, batch, len(batch.changes))
                raise ResourceBusy("the database is too slow for a batch of this size: send fewer segments")
            publish_all(self.claims, self.publish, batch, author.traceparent)
            self._wait(lambda changes=batch.changes: all(self._is_shown(change) for change, _ in changes))  # type: ignore[misc]
            return [step.definition for step in steps]
        raise ResourceBusy("other requests keep changing these segments: send the request again")

    def _planned(self, author: Author, documents: Sequence[object]) -> list[Step]:
        known = self._known(SEGMENTS, author, except_key=None)
        steps: list[Step] = []
        errors: list[FieldError] = []
        for index, document in enumerate(documents):
            try:
                step = self._step(author, document, known, {step.definition.key for step in steps})
            except DefinitionRefused as refused:
                errors += [replace(one, pointer=f"/segments/{index}{one.pointer}") for one in refused.errors]
                continue
            except ReadOnly as refused:
                raise ReadOnly([replace(one, pointer=f"/segments/{index}{one.pointer}") for one in refused.errors]) from refused
            steps.append(step)
            key, used = step.definition.key, used_segments(step.definition.document)
            known = replace(known, segments={**known.segments, key: used}, taken_keys=known.taken_keys | {key})
        if errors:
            raise DefinitionRefused(tuple(errors))
        evaluated = [step for step in steps if step.change is not None and step.change.action != PAUSED_ACTION]
        self._check_quota(SEGMENTS, author, {step.definition.key: step.definition.document for step in evaluated})
        return steps

    def _step(self, author: Author, document: object, known: Known, taken: AbstractSet[str]) -> Step:
        key = document.get("key") if isinstance(document, Mapping) else None
        if not isinstance(key, str) or key in taken or self._settled(SEGMENTS, author, key) is None:
            kept = _read(SEGMENTS, document, replace(known, taken_keys=frozenset(taken)))
            change = defined(SEGMENTS.name, author, kept, self.now_micros())
            return Step(None, change, change.definition())
        before, current = self._newest(SEGMENTS, author, key, None)
        if before.action == "ARCHIVED":
            raise Archived(f"{key!r} is archived: create a segment with another key")
        refuse_read_only(document, current)
        kept = _read(SEGMENTS, document, _without_limits(replace(known, taken_keys=frozenset(taken)), document, before))
        if is_same(kept, before.document) and is_same(kept, current.document):
            return Step(before, None, current)
        change = after(current, revised(before, author, kept, SEGMENTS.meaning, self.now_micros()))
        return Step(before, change, change.definition())

    def pause(self, kind: Kind, author: Author, key: str, if_match: int | None) -> Definition:
        """Pause a segment and wait until no partition evaluates it. A paused segment stays unchanged.

        Raises: NotFound, Archived, VersionConflict, ResourceBusy.
        """
        paused_definition = self._set_paused(kind, author, key, if_match, to_pause=True)
        if not self.is_dry:
            self._wait(lambda: self.is_stopped(author.workspace, key))
        return paused_definition

    def resume(self, kind: Kind, author: Author, key: str, if_match: int | None) -> Definition:
        """Resume a paused segment. Raises: NotFound, Archived, VersionConflict, ResourceBusy."""
        return self._set_paused(kind, author, key, if_match, to_pause=False)

    def newest(self, kind: Kind, author: Author, key: str) -> Definition:
        """Return the current definition, also directly after a write of it. Raises: NotFound, Archived, ResourceBusy."""
        before, current = self._newest(kind, author, key, None)
        if before.action == "ARCHIVED":
            raise Archived(f"{key!r} is archived: create a {kind.title} with another key")
        return current

    def change_state(self, operation: str, author: Author, key: str, if_match: int | None) -> Definition:
        """Activate, pause or resume a campaign and return it. A repetition has no effect.

        An active campaign is returned once the messenger has it: a trigger received from then on counts.

        Raises: NotFound, Archived, NotActivated, NotAvailable (no messenger, or none that sends such messages), DefinitionRefused
        (what the campaign refers to is archived), MessengerBehind, VersionConflict, ResourceBusy.
        """
        for _ in range(_ATTEMPTS):
            before, current = self._newest(CAMPAIGNS, author, key, if_match)
            if before.action == "ARCHIVED":
                raise Archived(f"{key!r} is archived: create a campaign with another key")
            state = plain_status(current)
            wanted = state_after(operation, state)
            if wanted is None:
                raise NotActivated(f"the campaign {key!r} is a {state}: only an activated campaign can be paused or resumed")
            if wanted == state:
                return self._in_messenger(current)
            if operation == ACTIVATE:
                _read(CAMPAIGNS, before.document, self._known(CAMPAIGNS, author, except_key=key))
                self._refuse_without_messenger(key)
            change = after(current, (paused if operation == PAUSE else activated)(before, author, self.now_micros()))
            if self._claim(change, before):
                return self._in_messenger(self._carry_out(change, author))
        raise ResourceBusy(f"other requests keep changing {key!r}: send the request again")

    def _refuse_without_messenger(self, key: str) -> None:
        if self.messenger is None or not self.messenger.is_present():
            reason = "no messenger runs, which decides about the messages of active campaigns: start starling-messenger"
            raise NotAvailable(f"the campaign {key!r} is valid and stays a draft: {reason}")

    def _in_messenger(self, definition: Definition) -> Definition:
        if self.messenger is not None and not self.is_dry and definition.status == ACTIVE:
            self.messenger.await_definitions()
        return definition

    def rotate_secret(self, kind: Kind, author: Author, key: str, if_match: int | None) -> Definition:
        """Give a definition a new secret. The previous one stays valid for a day. A disabled definition stays disabled.

        Raises: NotFound, Archived, VersionConflict, ResourceBusy.
        """
        secret = _new_secret()

        def rotated(current: Definition) -> Mapping[str, Any]:
            return kind.followed({**current.document, "secret": secret}, current.document, self.now_micros() // 1000)

        return self._change(kind, author, key, if_match, rotated)

    def enable(self, kind: Kind, author: Author, key: str, if_match: int | None) -> Definition:
        """Enable a disabled definition again. An enabled one stays as it is.

        Raises: NotFound, Archived, VersionConflict, ResourceBusy.
        """

        def enabled(current: Definition) -> Mapping[str, Any]:
            return {field: value for field, value in current.document.items() if field not in DISABLED_FIELDS}

        return self._change(kind, author, key, if_match, enabled)

    def disable(self, kind: Kind, author: Author, key: str, if_match: int | None) -> Definition:
        """Disable a target, to which nothing is sent until it is enabled. A disabled one stays as it is.

        Raises: NotFound, Archived, VersionConflict, ResourceBusy.
        """

        def disabled(current: Definition) -> Mapping[str, Any]:
            if current.document.get("disabled"):
                return current.document
            return {**current.document, "disabled": True, "disabled_because": f"disabled by {author.name}"}

        return self._change(kind, author, key, if_match, disabled)

    def rotate_keys(self, author: Author) -> Rotated:
        """Encrypt every secret of the workspace that is plain, or encrypted with an older key, with the newest key.

        Archived definitions have no secrets. A version stays, because no meaning changes. Raises: SecretsKeyMissing, ResourceBusy.
        """
        if self.vault.sealer.key_id is None:
            raise SecretsKeyMissing(str(KeyMissing()))
        rewritten: list[tuple[str, str]] = []
        unreadable: list[Unreadable] = []
        until_micros = self.now_micros() + ROTATION_MICROS
        for kind in (WEBHOOKS, TARGETS):
            for one in self.reader.definitions(author.workspace, kind.name):
                if one.status == ARCHIVED or self.vault.is_current(kind, one.document):
                    continue
                if self.now_micros() > until_micros:
                    return Rotated(self.vault.sealer.key_id, rewritten, unreadable, complete=False)
                try:
                    self._change(kind, author, one.key, None, partial(self._plain, kind, author), rewrite=True)
                except SecretUnreadable as cause:
                    unreadable.append(Unreadable(kind.name, one.key, str(cause)))
                except Archived:  # another request has archived it meanwhile
                    continue
                else:
                    rewritten.append((kind.name, one.key))
        return Rotated(self.vault.sealer.key_id, rewritten, unreadable, complete=True)

    def _plain(self, kind: Kind, author: Author, current: Definition) -> Mapping[str, Any]:
        """Return the document with plain secrets if one of them is not encrypted with the newest key."""
        if self.vault.is_current(kind, current.document):
            return current.document
        document = without_expired_secret(current.document, self.now_micros() // 1000) if kind is WEBHOOKS else current.document
        return self.vault.opened(kind, author.workspace, document)

    def _change(
        self,
        kind: Kind,
        author: Author,
        key: str,
        if_match: int | None,
        alter: Callable[[Definition], Mapping[str, Any]],
        *,
        rewrite: bool = False,
    ) -> Definition:
        """Change the current document. `rewrite`: write an equal one too, and keep the version."""
        meaning = frozenset[str]() if rewrite else kind.meaning
        for _ in range(_ATTEMPTS):
            before, current = self._newest(kind, author, key, if_match)
            if before.action == "ARCHIVED":
                raise Archived(f"{key!r} is archived: create a {kind.title} with another key")
            document = alter(current)
            if not rewrite and is_same(document, current.document):
                return current
            change = self._sealed(kind, after(current, revised(before, author, document, meaning, self.now_micros())))
            if document.get("disabled"):
                change = replace(change, action=DISABLED_ACTION)
            if self._claim(change, before):
                return self._carry_out(change, author)
        raise ResourceBusy(f"other requests keep changing {key!r}: send the request again")

    def archive(self, kind: Kind, author: Author, key: str, if_match: int | None) -> None:
        """Archive a definition. A repetition has no effect. Raises: NotFound, VersionConflict, InUse, ResourceBusy."""
        for _ in range(_ATTEMPTS):
            before, current = self._newest(kind, author, key, if_match)
            if before.action == "ARCHIVED":
                return
            if users := self._users_of(kind, author, key):
                raise InUse(key, users)
            change = after(current, archived(before, author, self.now_micros()))
            change = replace(change, document=self.vault.forgotten(kind, change.document))
            if self._claim(change, before):
                self._carry_out(change, author)
                return
        raise ResourceBusy(f"other requests keep changing {key!r}: send the request again")

    def known(self, kind: Kind, author: Author, except_key: str | None = None) -> Known:
        """Return the keys to which a definition of that kind may refer."""
        return self._known(kind, author, except_key)

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

    def _set_paused(self, kind: Kind, author: Author, key: str, if_match: int | None, *, to_pause: bool) -> Definition:
        for _ in range(_ATTEMPTS):
            before, current = self._newest(kind, author, key, if_match)
            if before.action == "ARCHIVED":
                raise Archived(f"{key!r} is archived: only a segment in use can be paused or resumed")
            if (before.action == PAUSED_ACTION) is to_pause:
                return current
            if not to_pause:
                self._check_quota(kind, author, {key: before.document})
            change = after(current, (paused if to_pause else resumed)(before, author, self.now_micros()))
            if self._claim(change, before):
                return self._carry_out(change, author)
        raise ResourceBusy(f"other requests keep changing {key!r}: send the request again")

    def _newest(self, kind: Kind, author: Author, key: str, if_match: int | None) -> tuple[Change, Definition]:
        """Return the newest claimed change and the current definition, which another service may have changed later."""
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
        """Return the newest claim once it is published. Changes of one key are published in the order of their claims."""
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

    def dry(self) -> "Commands":
        """Return the same commands without an effect."""
        return replace(self, is_dry=True)

    def _claim(self, change: Change, before: Change | None) -> bool:
        if not self.is_dry:
            return self.claims.claim(change, before)
        newest = self.claims.newest(change.workspace, change.kind, change.key)
        return (None if newest is None else newest.change.event_id) == (None if before is None else before.event_id)

    def _carry_out(self, change: Change, author: Author) -> Definition:
        if not self.is_dry:
            self._finish(change, author.traceparent)
            self._wait(lambda: self._is_shown(change))
        return change.definition()

    def _sealed(self, kind: Kind, change: Change) -> Change:
        """Return the change as it is stored: with encrypted secrets. Raises: SecretsKeyMissing."""
        return replace(change, document=self.vault.sealed(kind, change.workspace, dict(change.document)))

    def _with_secret(self, kind: Kind, document: object, before: Change | None) -> object:
        """Return the document with what responses do not show. A kind with secrets keeps its previous one, or gets a new one."""
        if not isinstance(document, Mapping):
            return document
        self.vault.refuse_sealed(kind, document)
        completed = kind.completed(document, None if before is None else before.document)
        if kind.hidden is not None and kind.has_hidden(completed) and completed.get(kind.hidden) is None:
            completed[kind.hidden] = _new_secret() if before is None else before.document.get(kind.hidden)
        return completed

    def _repeats(self, kind: Kind, found: Change, change: Change) -> bool:
        """Return whether `found` is an earlier attempt of a request to create. `change`: with plain secrets."""
        document = self.vault.kept(kind, change.workspace, dict(change.document), found.document)
        # A generated secret differs between attempts of the same request.
        return found.action == "DEFINED" and all(
            is_same(found.document.get(field), value) for field, value in document.items() if field != kind.hidden
        )

    def _wait(self, is_so: Callable[[], bool]) -> None:
        deadline_micros = self.now_micros() + int(READ_YOUR_WRITES_SECONDS * 1_000_000)
        while not is_so() and self.now_micros() < deadline_micros:
            self.sleep(_POLL_SECONDS)

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
        targets = self.reader.definitions(author.workspace, TARGETS.name) if kind is CAMPAIGNS else ()
        reads_tables = kind in {TRAITS, VIEWS, EVENT_TYPES}
        event_types = self.reader.definitions(author.workspace, EVENT_TYPES.name) if reads_tables else ()
        views = self.reader.definitions(author.workspace, VIEWS.name) if kind is EVENT_TYPES else ()
        return Names(
            segments={one.key: used_segments(one.document) for one in segments if one.status != ARCHIVED},
            computed_traits=frozenset(one.key for one in traits if one.status != ARCHIVED),
            taken_keys=frozenset(one.key for one in own if one.key != except_key),
            lists=frozenset(one.key for one in lists if one.status != ARCHIVED),
            accounts=True,
            timezone=self.zone_of(author.workspace),
            limits=None if self.quota is None or kind is not SEGMENTS else self.quota.definition,
            targets={one.key: str(one.document.get("channel")) for one in targets if one.status != ARCHIVED},
            archived_segments=frozenset(one.key for one in segments if one.status == ARCHIVED),
            archived_targets=frozenset(one.key for one in targets if one.status == ARCHIVED),
            event_types=event_types_in(event_types),
            statements=statements_in([*traits, *views]) if kind is EVENT_TYPES else (),
        )

    def _check_quota(self, kind: Kind, author: Author, changed: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise DefinitionRefused if the changed segments, which will be evaluated, exceed the quota of the workspace."""
        if self.quota is not None and kind is SEGMENTS and changed:
            self.quota.check(self.reader.definitions(author.workspace, SEGMENTS.name), changed)

    def _users_of(self, kind: Kind, author: Author, key: str) -> list[str]:
        if kind is TARGETS:
            campaigns = self.reader.definitions(author.workspace, CAMPAIGNS.name)
            return [one.key for one in campaigns if one.status != ARCHIVED and one.document.get("target") == key]
        if kind is EVENT_TYPES:
            return readers_of(self.reader, author.workspace, key)
        if kind.name not in USES:
            return []
        return users_of(kind.name, key, self.reader.definitions(author.workspace, SEGMENTS.name))


def refuse_without_test(kind: Kind, current: Definition) -> None:
    """Raise DefinitionRefused for a target without a test call: one of campaigns, or of audience sync."""
    if kind is not TARGETS:
        return
    channel = current.document.get("channel")
    if not is_feed(current.document):
        reason, cure = (
            f"the messages of a target {channel!r} are those of campaigns",
            "POST /v1/campaigns/{key}/test sends a message of a campaign",
        )
    elif channel == AUDIENCE:
        reason, cure = "a test would change the audience", "see the status and 'disabled_because' of the target instead"
    else:
        return
    raise DefinitionRefused((FieldError("/channel", "wrong_type", reason, f"slack, teams or kafka; {cure}"),))


def _read(kind: Kind, document: object, known: Known) -> Document:
    """Return the document to store. Its defaults are filled in, so it may be larger than the request."""
    kept = kind.read(document, known)
    check_bounds(kept)
    return kept


def _without_limits(known: Known, document: object, before: Change) -> Known:
    """Return the keys without limits for a document with the stored condition: a stored definition can always be renamed."""
    same = isinstance(document, Mapping) and "where" in before.document and is_same(document.get("where"), before.document["where"])
    return replace(known, limits=None) if same else known


def _with_key(document: object, key: str) -> object:
    """Return the document with the key of the path. Raises: DefinitionRefused if the document has another key."""
    if not isinstance(document, Mapping):
        return document
    if document.get("key", key) != key:
        raise DefinitionRefused((FieldError("/key", "bad_key", "a key never changes", f"{key!r}, as in the path, or none"),))
    return {**document, "key": key}


def _refuse_frozen(before: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    if errors := frozen_errors(parse_stored_campaign(before), parse_stored_campaign(kept)):
        raise FrozenField(errors)


def _new_secret() -> str:
    return new_secret(secrets.token_bytes(32))
