"""Core: the write operations on definitions. Each claims its change, publishes it, and waits for the read model."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Final

from starling_api.definitions.commands.batches import Step, batch_of, claim_all, publish_all, withdraw
from starling_api.definitions.commands.changes import ABANDONED_MICROS, Changes
from starling_api.definitions.commands.documents import read_document, refuse_frozen, with_key, without_limits
from starling_api.definitions.commands.names import names_for, users_in
from starling_api.definitions.commands.rotation import Rotated, plain_document, rotate_keys
from starling_api.definitions.definition import (
    DISABLED_ACTION,
    PAUSED_ACTION,
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
    resumed,
    revised,
    used_segments,
)
from starling_api.definitions.kinds.kind import Kind
from starling_api.definitions.kinds.kinds import CAMPAIGNS, SEGMENTS, VIEWS
from starling_api.definitions.kinds.webhooks import new_secret
from starling_api.definitions.quota import Quota
from starling_api.definitions.vault import Vault
from starling_api.http.errors import Archived, InUse, NotActivated, NotAvailable, ReadOnly, ResourceBusy
from starling_api.ports import Claims, DefinitionReader, Messenger, NowMicros, Publish, Sleep
from starling_campaigns import state_after
from starling_campaigns.definitions.lifecycle import ACTIVATE, PAUSE
from starling_common.cassandra.read_models import ACTIVE, PAUSED
from starling_common.records.definitions import DISABLED_FIELDS
from starling_common.time.timezones import DEFAULT
from starling_segments import DefinitionRefused, FieldError, Known

_ATTEMPTS: Final = 5


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
        known = self.known(kind, author, except_key=None)
        kept = read_document(kind, self._with_secret(kind, document, None), known)
        if kind is VIEWS and self.is_view(kept["key"]):
            raise DefinitionRefused((FieldError("/key", "key_taken", f"{kept['key']!r} is a materialised view", "another key"),))
        self._check_quota(kind, author, {kept["key"]: kept})
        change = self._sealed(kind, defined(kind.name, author, kept, self.now_micros()))
        if self._changes.claim(change, None):
            return self._changes.carry_out(change, author)
        found = self._changes.settled(kind, author, kept["key"])
        if found is not None and not found.published and self._repeats(kind, found.change, replace(change, document=kept)):
            return found.change.definition()  # an earlier attempt of the same request was claimed and is published now
        raise DefinitionRefused((FieldError("/key", "key_taken", f"{kept['key']!r} is or was in use", "a key never used before"),))

    def revise(self, kind: Kind, author: Author, key: str, document: object, if_match: int | None) -> Definition:
        """Change a definition and return it. A changed meaning makes a new version; an equal document has no effect.

        Raises: NotFound, Archived, VersionConflict, ReadOnly, FrozenField, DefinitionRefused, ResourceBusy.
        """
        for _ in range(_ATTEMPTS):
            before, current = self._changes.newest(kind, author, key, if_match)
            if before.action == "ARCHIVED":
                raise Archived(f"{key!r} is archived: create a {kind.title} with another key")
            refuse_read_only(document, current)
            known = without_limits(self.known(kind, author, except_key=key), document, before)
            kept = read_document(kind, self._with_secret(kind, with_key(document, key), before), known)
            kept = self.vault.kept(kind, author.workspace, kept, before.document)
            kept = kind.followed(kept, before.document, self.now_micros() // 1000)
            if kind is CAMPAIGNS and current.status in {ACTIVE, PAUSED}:
                refuse_frozen(before.document, kept)
            if is_same(kept, before.document) and is_same(kept, current.document):
                return current
            if before.action != PAUSED_ACTION:
                self._check_quota(kind, author, {key: kept})
            change = self._sealed(kind, after(current, revised(before, author, kept, kind.meaning, self.now_micros())))
            if self._changes.claim(change, before):
                return self._changes.carry_out(change, author)
        raise ResourceBusy(f"other requests keep changing {key!r}: send the request again")

    def put(self, kind: Kind, author: Author, key: str, document: object, if_match: int | None) -> tuple[bool, Definition]:
        """Create or change a definition. Return (created, definition). Raises: the errors of `define` and `revise`."""
        if if_match is None and self._changes.settled(kind, author, key) is None:
            return True, self.define(kind, author, with_key(document, key))
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
            self._changes.wait(lambda changes=batch.changes: all(self._changes.is_shown(change) for change, _ in changes))  # type: ignore[misc]
            return [step.definition for step in steps]
        raise ResourceBusy("other requests keep changing these segments: send the request again")

    def _planned(self, author: Author, documents: Sequence[object]) -> list[Step]:
        known = self.known(SEGMENTS, author, except_key=None)
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
        if not isinstance(key, str) or key in taken or self._changes.settled(SEGMENTS, author, key) is None:
            kept = read_document(SEGMENTS, document, replace(known, taken_keys=frozenset(taken)))
            change = defined(SEGMENTS.name, author, kept, self.now_micros())
            return Step(None, change, change.definition())
        before, current = self._changes.newest(SEGMENTS, author, key, None)
        if before.action == "ARCHIVED":
            raise Archived(f"{key!r} is archived: create a segment with another key")
        refuse_read_only(document, current)
        kept = read_document(SEGMENTS, document, without_limits(replace(known, taken_keys=frozenset(taken)), document, before))
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
            self._changes.wait(lambda: self.is_stopped(author.workspace, key))
        return paused_definition

    def resume(self, kind: Kind, author: Author, key: str, if_match: int | None) -> Definition:
        """Resume a paused segment. Raises: NotFound, Archived, VersionConflict, ResourceBusy."""
        return self._set_paused(kind, author, key, if_match, to_pause=False)

    def newest(self, kind: Kind, author: Author, key: str) -> Definition:
        """Return the current definition, also directly after a write of it. Raises: NotFound, Archived, ResourceBusy."""
        before, current = self._changes.newest(kind, author, key, None)
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
            before, current = self._changes.newest(CAMPAIGNS, author, key, if_match)
            if before.action == "ARCHIVED":
                raise Archived(f"{key!r} is archived: create a campaign with another key")
            state = plain_status(current)
            wanted = state_after(operation, state)
            if wanted is None:
                raise NotActivated(f"the campaign {key!r} is a {state}: only an activated campaign can be paused or resumed")
            if wanted == state:
                return self._in_messenger(current)
            if operation == ACTIVATE:
                read_document(CAMPAIGNS, before.document, self.known(CAMPAIGNS, author, except_key=key))
                self._refuse_without_messenger(key)
            change = after(current, (paused if operation == PAUSE else activated)(before, author, self.now_micros()))
            if self._changes.claim(change, before):
                return self._in_messenger(self._changes.carry_out(change, author))
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

        def rewrite(kind: Kind, key: str) -> Definition:
            def plain(current: Definition) -> Mapping[str, Any]:
                return plain_document(self.vault, kind, author.workspace, current, self.now_micros())

            return self._change(kind, author, key, None, plain, rewrite=True)

        return rotate_keys(self.reader, self.vault, author, self.now_micros, rewrite)

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
            before, current = self._changes.newest(kind, author, key, if_match)
            if before.action == "ARCHIVED":
                raise Archived(f"{key!r} is archived: create a {kind.title} with another key")
            document = alter(current)
            if not rewrite and is_same(document, current.document):
                return current
            change = self._sealed(kind, after(current, revised(before, author, document, meaning, self.now_micros())))
            if document.get("disabled"):
                change = replace(change, action=DISABLED_ACTION)
            if self._changes.claim(change, before):
                return self._changes.carry_out(change, author)
        raise ResourceBusy(f"other requests keep changing {key!r}: send the request again")

    def archive(self, kind: Kind, author: Author, key: str, if_match: int | None) -> None:
        """Archive a definition. A repetition has no effect. Raises: NotFound, VersionConflict, InUse, ResourceBusy."""
        for _ in range(_ATTEMPTS):
            before, current = self._changes.newest(kind, author, key, if_match)
            if before.action == "ARCHIVED":
                return
            if users := users_in(self.reader, author.workspace, kind, key):
                raise InUse(key, users)
            change = after(current, archived(before, author, self.now_micros()))
            change = replace(change, document=self.vault.forgotten(kind, change.document))
            if self._changes.claim(change, before):
                self._changes.carry_out(change, author)
                return
        raise ResourceBusy(f"other requests keep changing {key!r}: send the request again")

    def known(self, kind: Kind, author: Author, except_key: str | None = None) -> Known:
        """Return the keys to which a definition of that kind may refer."""
        limits = None if self.quota is None or kind is not SEGMENTS else self.quota.definition
        zone = self.zone_of(author.workspace)
        return names_for(self.reader, author.workspace, kind, except_key, timezone=zone, limits=limits)

    def finish_abandoned(self) -> int:
        """Publish or revert the changes whose process died after the claim. Return their number."""
        return self._changes.finish_abandoned()

    @property
    def _changes(self) -> Changes:
        return Changes(self.claims, self.reader, self.publish, self.now_micros, self.sleep, self.is_dry)

    def _set_paused(self, kind: Kind, author: Author, key: str, if_match: int | None, *, to_pause: bool) -> Definition:
        for _ in range(_ATTEMPTS):
            before, current = self._changes.newest(kind, author, key, if_match)
            if before.action == "ARCHIVED":
                raise Archived(f"{key!r} is archived: only a segment in use can be paused or resumed")
            if (before.action == PAUSED_ACTION) is to_pause:
                return current
            if not to_pause:
                self._check_quota(kind, author, {key: before.document})
            change = after(current, (paused if to_pause else resumed)(before, author, self.now_micros()))
            if self._changes.claim(change, before):
                return self._changes.carry_out(change, author)
        raise ResourceBusy(f"other requests keep changing {key!r}: send the request again")

    def dry(self) -> "Commands":
        """Return the same commands without an effect."""
        return replace(self, is_dry=True)

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

    def _check_quota(self, kind: Kind, author: Author, changed: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise DefinitionRefused if the changed segments, which will be evaluated, exceed the quota of the workspace."""
        if self.quota is not None and kind is SEGMENTS and changed:
            self.quota.check(self.reader.definitions(author.workspace, SEGMENTS.name), changed)


def _new_secret() -> str:
    return new_secret(secrets.token_bytes(32))
