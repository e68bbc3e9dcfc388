"""Pure core: definitions, their changes, versions and statuses."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from starling_api.definitions.webhook_fields import previous_secret_expires_at
from starling_api.http.errors import ReadOnly
from starling_common.cassandra.read_models import ARCHIVED, CAMPAIGN, COMPUTED_TRAIT, DEFINED, LIST, SEGMENT
from starling_common.records.definitions import action_before, status_after
from starling_common.time.instants import format_instant
from starling_common.values import Workspace, deterministic_id
from starling_common.wire import Record
from starling_rules.sql.runs import FAILED, REFUSED, RUNNING, WAITING
from starling_segments import FieldError

PAUSED_ACTION: Final = "PAUSED"
DISABLED_ACTION: Final = "DISABLED"
ACTIVATED_ACTION: Final = "ACTIVATED"
"""Of a campaign, which is a draft before: the action of an activation and of a resumption."""


@dataclass(frozen=True, slots=True)
class Author:
    """The caller of a write. `name` identifies the token without containing it."""

    workspace: Workspace
    name: str
    correlation_id: str
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Definition:
    """The newest state of one definition. Units: times are wall clock in epoch microseconds. `status`: as in the read models."""

    kind: str
    key: str
    version: int
    status: str
    document: Mapping[str, Any]
    created_at_micros: int
    recorded_at_micros: int

    @property
    def revision(self) -> int:
        """Return the recording time of the newest change, which is unique and increasing within a key."""
        return self.recorded_at_micros


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one definition, as it is claimed and published. Source: schemas/avro/DefinitionChanged.avsc."""

    workspace: str
    kind: str
    key: str
    version: int
    action: str
    document: Mapping[str, Any]
    actor: str
    correlation_id: str
    created_at_micros: int
    recorded_at_micros: int

    @property
    def event_id(self) -> str:
        """Return the deterministic id of the change."""
        return deterministic_id(
            "definition", self.workspace, self.kind, self.key, self.version, self.action, self.recorded_at_micros
        )

    def definition(self) -> Definition:
        """Return the definition after this change. Raises: UnknownAction."""
        return Definition(
            self.kind,
            self.key,
            self.version,
            status_after(self.action),
            self.document,
            self.created_at_micros,
            self.recorded_at_micros,
        )

    def record(self, document_json: str) -> Record:
        """Return the record for the definitions topic."""
        return {
            "recorded_at": self.recorded_at_micros,
            "event_id": self.event_id,
            "workspace": self.workspace,
            "kind": self.kind,
            "key": self.key,
            "version": self.version,
            "action": self.action,
            "document": document_json,
            "actor": self.actor,
            "correlation_id": self.correlation_id,
        }


def defined(kind: str, author: Author, document: Mapping[str, Any], now_micros: int) -> Change:
    """Return the first change of a key."""
    return Change(
        workspace=author.workspace,
        kind=kind,
        key=document["key"],
        version=1,
        action="DEFINED",
        document=document,
        actor=author.name,
        correlation_id=author.correlation_id,
        created_at_micros=now_micros,
        recorded_at_micros=now_micros,
    )


def restored(author: Author, shown: Definition) -> Change:
    """Return a change that leads to the definition. The action and the author of the original are not known."""
    return Change(
        workspace=author.workspace,
        kind=shown.kind,
        key=shown.key,
        version=shown.version,
        action=action_before(shown.status),
        document=shown.document,
        actor=author.name,
        correlation_id=author.correlation_id,
        created_at_micros=shown.created_at_micros,
        recorded_at_micros=shown.recorded_at_micros,
    )


def revised(before: Change, author: Author, document: Mapping[str, Any], meaning: frozenset[str], now_micros: int) -> Change:
    """Return the change to a new document. The version grows if one of the fields in `meaning` differs.

    A paused definition stays paused, and an activated campaign stays active.
    """
    changed = any(not is_same(before.document.get(field), document.get(field)) for field in meaning)
    action = before.action if before.action in {PAUSED_ACTION, ACTIVATED_ACTION} else "REVISED"
    return _next(before, author, action, now_micros, (before.version + changed, document))


def paused(before: Change, author: Author, now_micros: int) -> Change:
    """Return the change that pauses a definition."""
    return _next(before, author, PAUSED_ACTION, now_micros, (before.version, before.document))


def activated(before: Change, author: Author, now_micros: int) -> Change:
    """Return the change that activates or resumes a campaign."""
    return _next(before, author, ACTIVATED_ACTION, now_micros, (before.version, before.document))


def resumed(before: Change, author: Author, now_micros: int) -> Change:
    """Return the change that resumes a definition."""
    return _next(before, author, "RESUMED", now_micros, (before.version, before.document))


def archived(before: Change, author: Author, now_micros: int) -> Change:
    """Return the change that archives a definition, the last one of its key."""
    return _next(before, author, "ARCHIVED", now_micros, (before.version, before.document))


def after(current: Definition, change: Change) -> Change:
    """Return the change with a recording time later than that of the current definition."""
    return replace(change, recorded_at_micros=max(change.recorded_at_micros, current.recorded_at_micros + 1))


def _next(before: Change, author: Author, action: str, now_micros: int, what: tuple[int, Mapping[str, Any]]) -> Change:
    return Change(
        workspace=before.workspace,
        kind=before.kind,
        key=before.key,
        version=what[0],
        action=action,
        document=what[1],
        actor=author.name,
        correlation_id=author.correlation_id,
        created_at_micros=before.created_at_micros,
        # The recording time strictly increases within a key, independent of clock differences between machines.
        recorded_at_micros=max(now_micros, before.recorded_at_micros + 1),
    )


def is_same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal. Unlike in Python, 1 and true differ, as in the segment language."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


DRAFT: Final = "draft"
ACTIVE: Final = "active"
BOOTSTRAPPING: Final = "bootstrapping"
"""The status of a computed trait that is not yet published over all history."""
_IN_FORCE: Final = frozenset({ACTIVE, "backfilling", BOOTSTRAPPING, WAITING, RUNNING, REFUSED, FAILED})


def refuse_read_only(document: object, current: Definition) -> None:
    """Compare the read-only fields of a body with the definition.

    Derived fields are not compared: `as_of`, `size`, `used_by`, `backfill`, `progress`, `broadcast`, `last_run`, `next_run_at`, and
    whether a segment is still backfilling, a computed trait bootstrapping, or a run of its SQL waiting, running, refused or failed.
    Raises: ReadOnly with every field that differs.
    """
    if not isinstance(document, Mapping):
        return
    stored = {
        "version": current.version,
        "revision": current.revision,
        "created_at": format_instant(current.created_at_micros // 1000),
        "updated_at": format_instant(current.recorded_at_micros // 1000),
        "disabled": bool(current.document.get("disabled", False)),
        "disabled_because": current.document.get("disabled_because"),
        "previous_secret_expires_at": previous_secret_expires_at(current.document),
    }
    status = document.get("status")
    in_force = frozenset({DRAFT}) if current.kind == CAMPAIGN else _IN_FORCE
    same_status = status in in_force if current.status == DEFINED else status == current.status
    stored["status"] = status if isinstance(status, str) and same_status else current.status
    errors = tuple(
        FieldError(f"/{field}", "read_only", f"{field} is read-only and differs", f"{value!r}, as stored, or none")
        for field, value in stored.items()
        if document.get(field) is not None and not is_same(document[field], value)
    )
    if errors:
        raise ReadOnly(errors)


def segment_status(definition: Definition, in_force: Mapping[int, int | None], partitions: int) -> str:
    """Return `active` if every segmenter partition applies this version, else `backfilling`.

    Shape: `in_force` maps each reporting partition to the version that it applies (None: the segment is unknown there).
    """
    if definition.status != DEFINED:
        return definition.status
    reached = sum(version is not None and version >= definition.version for version in in_force.values())
    return "active" if reached >= partitions else "backfilling"


def plain_status(definition: Definition) -> str:
    """Return the status of a definition that the segmenter does not evaluate. A new campaign is a draft."""
    in_use = DRAFT if definition.kind == CAMPAIGN else "active"
    return in_use if definition.status == DEFINED else definition.status


def references(document: object, field: str) -> frozenset[str]:
    """Return every text under `field` at any depth: the segments (`segment`) or traits (`trait`) of a condition."""
    if isinstance(document, Mapping):
        here = frozenset({document[field]}) if isinstance(document.get(field), str) else frozenset[str]()
        return here.union(*(references(part, field) for part in document.values()))
    if isinstance(document, list):
        return frozenset[str]().union(*(references(part, field) for part in document))
    return frozenset()


def used_lists(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys of the uploaded lists in a segment's condition."""
    return references(document.get("where"), "list")


_COMPUTED: Final = "computed."


def used_segments(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys of the segments in a segment's condition."""
    return references(document.get("where"), "segment")


def used_traits(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys of the computed traits in a segment's condition. A path below a key counts as the key."""
    paths = references(document.get("where"), "trait")
    return frozenset(path.removeprefix(_COMPUTED).partition(".")[0] for path in paths if path.startswith(_COMPUTED))


USES: Final[Mapping[str, Callable[[Mapping[str, Any]], frozenset[str]]]] = {
    SEGMENT: used_segments,
    COMPUTED_TRAIT: used_traits,
    LIST: used_lists,
}
"""Kind -> function that returns the keys of that kind in a segment's document."""


def users_of(kind: str, key: str, segments: Iterable[Definition]) -> list[str]:
    """Return the keys of the segments that use this definition, without archived segments."""
    return [one.key for one in segments if one.status != ARCHIVED and key in USES[kind](one.document)]
