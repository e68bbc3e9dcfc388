"""Pure core: the segments in force, as a fold over `segments.definitions`, and what each workspace makes of them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from starling_common.outcome import Done, Outcome, Refused, Skipped
from starling_common.read_models import BACKFILL
from starling_common.values import plan_name
from starling_common.wire import Record
from starling_rules.backfills import REMEMBERED, Backfill, read_backfill
from starling_segments import LEAVES, DefinitionRefused, Known, Segment, parse_segment, read_document

_PAUSED: Final = "PAUSED"


@dataclass(frozen=True, slots=True)
class Definition:
    """The newest good version of one segment.

    `correlation_id`: of the request that made it so. `reads_context`: whether it looks at the context of events.
    `paused`: what it asks for is kept up, but its members stay as they are. `awaits_backfill`: it takes effect only
    when a backfill has gathered what it asks of the past. `document`: the JSON that it was read from.
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
    """Every segment there ever was, by workspace and key; the archived ones too, for their exits have yet to be announced.

    `waiting`: newer versions that are not in force yet, for they await a backfill, or are built on one that does.
    `backfills`: the last ones that ended, oldest first.
    """

    by_workspace: Mapping[str, Mapping[str, Definition]] = field(default_factory=dict)
    waiting: Mapping[str, Mapping[str, Definition]] = field(default_factory=dict)
    backfills: tuple[Backfill, ...] = ()

    @cached_property
    def name(self) -> bytes:
        """Names the set in force, and its leaves: equal sets have equal names, in every process of a release."""
        return plan_name(((place, one.segment.version, one.paused) for place, one in self._in_force()), LEAVES)

    @cached_property
    def versions(self) -> Mapping[str, int]:
        """`workspace/key` -> version, of the segments that are evaluated; the paused ones are not among them."""
        return {place: one.segment.version for place, one in self._in_force() if not one.paused}

    def _in_force(self) -> Iterator[tuple[str, Definition]]:
        for workspace, definitions in self.by_workspace.items():
            for key, definition in definitions.items():
                if not definition.archived:
                    yield f"{workspace}/{key}", definition

    def of(self, workspace: str) -> Mapping[str, Definition]:
        """The segments of one workspace, by key."""
        return self.by_workspace.get(workspace, {})

    def newest(self, workspace: str) -> Mapping[str, Definition]:
        """The same, each by its newest version, whether that is in force or waits."""
        waiting = self.waiting.get(workspace)
        return {**self.of(workspace), **waiting} if waiting else self.of(workspace)

    def records(self, workspace: str) -> Iterator[Record]:
        """The fewest records that make the same segments be in force there, in an order in which they can be folded."""
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
        """`workspace/key` -> version: what a backfill is to be run for."""
        return {
            f"{workspace}/{key}": one.segment.version
            for workspace, waiting in self.waiting.items()
            for key, one in waiting.items()
            if one.awaits_backfill and not one.archived
        }

    def released(self, definitions: Mapping[str, int]) -> "Definitions":
        """As they are once the history of those versions (`workspace/key` -> version) is at hand."""
        waiting = {
            workspace: {
                key: replace(one, awaits_backfill=False) if definitions.get(f"{workspace}/{key}") == one.segment.version else one
                for key, one in here.items()
            }
            for workspace, here in self.waiting.items()
        }
        released = replace(self, waiting=waiting)
        for workspace in waiting:
            released = _settled(released, workspace)
        return released


def fold(definitions: Definitions, record: Record) -> Outcome[Definitions]:
    """The definitions after one `DefinitionChanged`.

    A definition that this version of the program cannot read, or that contradicts the others, is refused: the last
    good version stays in force, and the progress records go on to name that one.
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
            return Refused("unknown_action", f"{_place(record)}: no such action as {action!r}")


def newest_valid(definitions: Definitions, record: Record) -> Definitions:
    """Return the definitions after one `DefinitionChanged`; a refused record changes nothing."""
    outcome = fold(definitions, record)
    return outcome.value if isinstance(outcome, Done) else definitions


def _defined(definitions: Definitions, record: Record) -> Outcome[Definitions]:
    others = {key: known for key, known in definitions.newest(record["workspace"]).items() if key != record["key"]}
    try:
        document = read_document(record["document"])
        segment = parse_segment(document, _known(document, others))
    except DefinitionRefused as refused:
        faults = "; ".join(f"{fault.pointer}: {fault.message}" for fault in refused.errors)
        return Refused("definition_refused", f"{_place(record)} version {record['version']}: {faults}")
    except ValueError as error:
        return Refused("definition_not_json", f"{_place(record)} version {record['version']}: {error}")
    if segment.key != record["key"]:
        return Refused("definition_refused", f"{_place(record)}: the document is about {segment.key!r}")
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
    """As it says; a version that waits goes on waiting when only its words change, or when it is paused."""
    waiting = definitions.waiting.get(record["workspace"], {}).get(record["key"])
    still = waiting is not None and waiting.awaits_backfill and waiting.segment.version == record["version"]
    return still or bool(record.get("awaits_backfill"))


def _archived(definitions: Definitions, record: Record) -> Outcome[Definitions]:
    here = definitions.newest(record["workspace"])
    known = here.get(record["key"])
    if known is None:
        return Skipped("never defined")
    users = sorted(key for key, other in here.items() if not other.archived and record["key"] in other.segment.uses)
    if users:
        return Refused("in_use", f"{_place(record)} stays in force: it is used by {', '.join(users)}")
    archived = replace(known, correlation_id=record["correlation_id"], archived=True, awaits_backfill=False)
    return _with(definitions, record, archived)


def _backfilled(definitions: Definitions, record: Record) -> Outcome[Definitions]:
    match read_backfill(record):
        case Done(backfill):
            kept = (*definitions.backfills, backfill)[-REMEMBERED:]
            return Done(replace(definitions.released(backfill.definitions), backfills=kept))
        case refused:
            return refused


def _with(definitions: Definitions, record: Record, definition: Definition) -> Done[Definitions]:
    workspace, key = record["workspace"], record["key"]
    waiting = {**definitions.waiting.get(workspace, {}), key: definition}
    in_force = definitions.of(workspace).get(key)
    if in_force is not None and in_force.paused is not definition.paused:
        # The version in force is held, or goes on, at once; what it asks is at hand.
        held = replace(in_force, paused=definition.paused, correlation_id=definition.correlation_id)
        definitions = _in_force_with(definitions, workspace, {key: held})
    return Done(_settled(replace(definitions, waiting={**definitions.waiting, workspace: waiting}), workspace))


def _settled(definitions: Definitions, workspace: str) -> Definitions:
    """Whatever waits for nothing any more is in force."""
    here, waiting = dict(definitions.of(workspace)), dict(definitions.waiting.get(workspace, {}))
    while ready := [key for key, one in waiting.items() if _can_take_over(key, one, here)]:
        here[ready[0]] = waiting.pop(ready[0])
    if len(waiting) == len(definitions.waiting.get(workspace, {})):
        return definitions
    still = {name: others for name, others in definitions.waiting.items() if name != workspace}
    return replace(_in_force_with(definitions, workspace, here), waiting={**still, workspace: waiting} if waiting else still)


def _can_take_over(key: str, definition: Definition, here: Mapping[str, Definition]) -> bool:
    """Whether those in force and this one go together: all that it is built on is there, and nothing is built on itself."""
    if definition.awaits_backfill:
        return False
    in_force = {other: one.segment.uses for other, one in here.items() if not one.archived and other != key}
    if definition.archived:
        return not any(key in uses for uses in in_force.values())
    met: set[str] = set()
    ahead = list(definition.segment.uses)
    while ahead:
        used = ahead.pop()
        if used not in in_force:  # itself, or not there
            return False
        if used not in met:
            met.add(used)
            ahead += in_force[used]
    return True


def _in_force_with(definitions: Definitions, workspace: str, changed: Mapping[str, Definition]) -> Definitions:
    here = {**definitions.of(workspace), **changed}
    return replace(definitions, by_workspace={**definitions.by_workspace, workspace: here})


def _known(document: object, others: Mapping[str, Definition]) -> Known:
    # Whether a computed trait or a list is defined was asked when the definition was accepted. Its own definition may be
    # read later than this one, or never, so here whatever is mentioned is taken as known.
    return Known(
        segments={key: other.segment.uses for key, other in others.items() if not other.archived},
        computed_traits=frozenset(trait.split(".")[1] for trait in _named(document, "trait") if trait.startswith("computed.")),
        taken_keys=frozenset(),
        lists=frozenset(_named(document, "list")),
        accounts=True,
    )


def _named(document: object, field: str) -> Iterator[str]:
    """Every text under that field, however deep."""
    return (name for node in _nodes(document) if isinstance(name := node.get(field), str))


def _nodes(document: object) -> Iterator[Mapping[str, Any]]:
    """Every JSON object in a document, itself included."""
    if isinstance(document, dict):
        yield document
        children: Iterable[object] = document.values()
    else:
        children = document if isinstance(document, list) else ()
    for child in children:
        yield from _nodes(child)


def _place(record: Record) -> str:
    return f"{record['workspace']}/{record['key']}"
