"""Pure core: the segments in force, as a fold over `segments.definitions`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from starling_common.cassandra.read_models import BACKFILL
from starling_common.outcome import Done, Outcome, Refused, Skipped
from starling_common.values import plan_name
from starling_common.wire import Record
from starling_rules.backfills import MAX_BACKFILLS, Backfill, read_backfill
from starling_segments import LEAVES, DefinitionRefused, Known, Segment, parse_segment, read_document

_PAUSED: Final = "PAUSED"


@dataclass(frozen=True, slots=True)
class Definition:
    """The newest valid version of one segment.

    `correlation_id`: of the request that changed it. `reads_context`: whether it reads the context of events.
    `paused`: its leaf nodes are folded, but its members stay unchanged. `awaits_backfill`: it takes effect when a
    backfill has computed its history. `document`: the JSON of the definition.
    """

    segment: Segment
    correlation_id: str
    reads_context: bool
    document: str
    archived: bool = False
    paused: bool = False
    awaits_backfill: bool = False


@dataclass(frozen=True)
class Definitions:
    """Every segment ever defined, by workspace and key. Archived ones are included until their exits are emitted.

    `pending`: newer versions that are not in force, because they await a backfill or refer to a segment that does.
    `backfills`: the last finished ones, oldest first.
    """

    by_workspace: Mapping[str, Mapping[str, Definition]] = field(default_factory=dict)
    pending: Mapping[str, Mapping[str, Definition]] = field(default_factory=dict)
    backfills: tuple[Backfill, ...] = ()

    @cached_property
    def name(self) -> bytes:
        """The name of the set in force and its leaf nodes: equal sets have equal names in every process of a release."""
        return plan_name(((name, one.segment.version, one.paused) for name, one in self._in_force()), LEAVES)

    @cached_property
    def versions(self) -> Mapping[str, int]:
        """`workspace/key` -> version of the segments that are evaluated; paused ones are absent."""
        return {name: one.segment.version for name, one in self._in_force() if not one.paused}

    def _in_force(self) -> Iterator[tuple[str, Definition]]:
        for workspace, definitions in self.by_workspace.items():
            for key, definition in definitions.items():
                if not definition.archived:
                    yield f"{workspace}/{key}", definition

    def of(self, workspace: str) -> Mapping[str, Definition]:
        """Return the segments of one workspace in force, by key."""
        return self.by_workspace.get(workspace, {})

    def newest(self, workspace: str) -> Mapping[str, Definition]:
        """Return the newest version of each segment of one workspace, in force or pending."""
        pending = self.pending.get(workspace)
        return {**self.of(workspace), **pending} if pending else self.of(workspace)

    def records(self, workspace: str) -> Iterator[Record]:
        """Yield the fewest records whose fold returns the same segments in force, in a valid order."""
        here = self.of(workspace)
        left = {key: one for key, one in here.items() if not one.archived}
        while left:
            for key in [key for key, one in left.items() if not any(used in left for used in one.segment.uses)]:
                one = left.pop(key)
                yield {
                    "kind": "segment",
                    "workspace": workspace,
                    "key": key,
                    "version": one.segment.version,
                    "action": _PAUSED if one.paused else "DEFINED",
                    "document": one.document,
                    "correlation_id": one.correlation_id,
                }

    def awaited(self) -> dict[str, int]:
        """Return `workspace/key` -> version of the segments that need a backfill."""
        return {
            f"{workspace}/{key}": one.segment.version
            for workspace, pending in self.pending.items()
            for key, one in pending.items()
            if one.awaits_backfill and not one.archived
        }

    def released(self, definitions: Mapping[str, int]) -> "Definitions":
        """Return the definitions after a backfill of those versions (`workspace/key` -> version)."""
        pending = {
            workspace: {
                key: replace(one, awaits_backfill=False) if definitions.get(f"{workspace}/{key}") == one.segment.version else one
                for key, one in here.items()
            }
            for workspace, here in self.pending.items()
        }
        released = replace(self, pending=pending)
        for workspace in pending:
            released = _settled(released, workspace)
        return released


def fold(definitions: Definitions, record: Record) -> Outcome[Definitions]:
    """Return the definitions after one `DefinitionChanged`.

    A definition that this release cannot read, or that contradicts the others, is refused. The last valid version stays
    in force, and the progress records name that version.
    """
    if record["kind"] == BACKFILL:
        return _backfilled(definitions, record)
    if record["kind"] != "segment":
        return Skipped("not a segment")
    match record["action"]:
        case "DEFINED" | "REVISED" | "PAUSED" | "RESUMED":
            return _defined(definitions, record)
        case "ARCHIVED":
            return _archived(definitions, record)
        case action:
            return Refused("unknown_action", f"{_name(record)}: unknown action {action!r}; this release may be too old for it")


def fold_topic(definitions: Definitions, _key: bytes, record: Record | None) -> Outcome[Definitions]:
    """As `fold`, for a `FoldedTopic`."""
    return Skipped("a tombstone") if record is None else fold(definitions, record)


def _defined(definitions: Definitions, record: Record) -> Outcome[Definitions]:
    others = {key: known for key, known in definitions.newest(record["workspace"]).items() if key != record["key"]}
    try:
        document = read_document(record["document"])
        segment = parse_segment(document, _known(document, others))
    except DefinitionRefused as refused:
        errors = "; ".join(f"{error.pointer}: {error.message}" for error in refused.errors)
        return Refused("definition_refused", f"{_name(record)} version {record['version']}: {errors}")
    except ValueError as error:
        return Refused("definition_not_json", f"{_name(record)} version {record['version']}: {error}")
    if segment.key != record["key"]:
        return Refused("definition_refused", f"{_name(record)}: the document has the key {segment.key!r}")
    segment = replace(segment, version=record["version"])
    reads_context = any(True for node in _nodes(document) if "context" in node)
    paused = record["action"] == _PAUSED
    definition = Definition(
        segment,
        record["correlation_id"],
        reads_context,
        record["document"],
        paused=paused,
        awaits_backfill=_awaits_backfill(definitions, record),
    )
    return _with(definitions, record, definition)


def _awaits_backfill(definitions: Definitions, record: Record) -> bool:
    """Return whether the record requires a backfill. A pending version stays pending if only its texts or its pause change."""
    pending = definitions.pending.get(record["workspace"], {}).get(record["key"])
    still = pending is not None and pending.awaits_backfill and pending.segment.version == record["version"]
    return still or bool(record.get("awaits_backfill"))


def _archived(definitions: Definitions, record: Record) -> Outcome[Definitions]:
    here = definitions.newest(record["workspace"])
    known = here.get(record["key"])
    if known is None:
        return Skipped("never defined")
    users = sorted(key for key, other in here.items() if not other.archived and record["key"] in other.segment.uses)
    if users:
        return Refused("in_use", f"{_name(record)} stays in force: archive the segments that refer to it first: {', '.join(users)}")
    archived = replace(known, correlation_id=record["correlation_id"], archived=True, awaits_backfill=False)
    return _with(definitions, record, archived)


def _backfilled(definitions: Definitions, record: Record) -> Outcome[Definitions]:
    match read_backfill(record):
        case Done(backfill):
            kept = (*definitions.backfills, backfill)[-MAX_BACKFILLS:]
            return Done(replace(definitions.released(backfill.definitions), backfills=kept))
        case refused:
            return refused


def _with(definitions: Definitions, record: Record, definition: Definition) -> Done[Definitions]:
    workspace, key = record["workspace"], record["key"]
    pending = {**definitions.pending.get(workspace, {}), key: definition}
    in_force = definitions.of(workspace).get(key)
    if in_force is not None and in_force.paused is not definition.paused:
        # The version in force is paused or resumed at once: its history is complete.
        changed = replace(in_force, paused=definition.paused, correlation_id=definition.correlation_id)
        definitions = _in_force_with(definitions, workspace, {key: changed})
    return Done(_settled(replace(definitions, pending={**definitions.pending, workspace: pending}), workspace))


def _settled(definitions: Definitions, workspace: str) -> Definitions:
    """Return the definitions with each pending version in force that no longer has to wait."""
    here, pending = dict(definitions.of(workspace)), dict(definitions.pending.get(workspace, {}))
    while ready := [key for key, one in pending.items() if _can_take_over(key, one, here)]:
        here[ready[0]] = pending.pop(ready[0])
    if len(pending) == len(definitions.pending.get(workspace, {})):
        return definitions
    still = {name: others for name, others in definitions.pending.items() if name != workspace}
    return replace(_in_force_with(definitions, workspace, here), pending={**still, workspace: pending} if pending else still)


def _can_take_over(key: str, definition: Definition, here: Mapping[str, Definition]) -> bool:
    """Return whether the definition is consistent with those in force: each segment that it uses exists, without a cycle."""
    if definition.awaits_backfill:
        return False
    in_force = {other: one.segment.uses for other, one in here.items() if not one.archived and other != key}
    if definition.archived:
        return not any(key in uses for uses in in_force.values())
    met: set[str] = set()
    ahead = list(definition.segment.uses)
    while ahead:
        used = ahead.pop()
        if used not in in_force:  # a cycle, or a missing segment
            return False
        if used not in met:
            met.add(used)
            ahead += in_force[used]
    return True


def _in_force_with(definitions: Definitions, workspace: str, changed: Mapping[str, Definition]) -> Definitions:
    here = {**definitions.of(workspace), **changed}
    return replace(definitions, by_workspace={**definitions.by_workspace, workspace: here})


def _known(document: object, others: Mapping[str, Definition]) -> Known:
    # The API has checked that computed traits and lists exist. Their own definitions may be read later than this one, or
    # never, so each one that the document mentions counts as defined here.
    return Known(
        segments={key: other.segment.uses for key, other in others.items() if not other.archived},
        computed_traits=frozenset(trait.split(".")[1] for trait in _named(document, "trait") if trait.startswith("computed.")),
        taken_keys=frozenset(),
        lists=frozenset(_named(document, "list")),
        accounts=True,
    )


def _named(document: object, field: str) -> Iterator[str]:
    """Yield each text in a field of that name, at any depth."""
    return (name for node in _nodes(document) if isinstance(name := node.get(field), str))


def _nodes(document: object) -> Iterator[Mapping[str, Any]]:
    """Yield each JSON object in a document, including the document."""
    if isinstance(document, dict):
        yield document
        children: Iterable[object] = document.values()
    else:
        children = document if isinstance(document, list) else ()
    for child in children:
        yield from _nodes(child)


def _name(record: Record) -> str:
    return f"{record['workspace']}/{record['key']}"
