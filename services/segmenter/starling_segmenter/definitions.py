"""Pure core: the segments in force, as a fold over `segments.definitions`, and what each workspace makes of them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from starling_common.outcome import Done, Outcome, Refused, Skipped
from starling_common.values import plan_name
from starling_common.wire import Record
from starling_segments import DefinitionRefused, Known, Segment, parse_segment

_PAUSED: Final = "PAUSED"


@dataclass(frozen=True, slots=True)
class Definition:
    """The newest good version of one segment.

    `correlation_id`: of the request that made it so. `reads_context`: whether it looks at the context of events.
    `paused`: what it asks for is kept up, but its members stay as they are.
    """

    segment: Segment
    correlation_id: str
    reads_context: bool
    archived: bool = False
    paused: bool = False


@dataclass(frozen=True)
class Definitions:
    """Every segment there ever was, by workspace and key; the archived ones too, for their exits have yet to be announced."""

    by_workspace: Mapping[str, Mapping[str, Definition]] = field(default_factory=dict)

    @cached_property
    def name(self) -> bytes:
        """Names the set in force: equal sets have equal names, in every process and for ever."""
        return plan_name((place, one.segment.version, one.paused) for place, one in self._in_force())

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


def fold(definitions: Definitions, record: Record) -> Outcome[Definitions]:
    """The definitions after one `DefinitionChanged`.

    A definition that this version of the program cannot read, or that contradicts the others, is refused: the last
    good version stays in force, and the progress records go on to name that one.
    """
    if record["kind"] != "segment":
        return Skipped("not a segment")
    match record["action"]:
        case "DEFINED" | "REVISED" | "PAUSED" | "RESUMED":
            return _defined(definitions, record)
        case "ARCHIVED":
            return _archived(definitions, record)
        case action:
            return Refused("unknown_action", f"{_place(record)}: no such action as {action!r}")


def _defined(definitions: Definitions, record: Record) -> Outcome[Definitions]:
    others = {key: known for key, known in definitions.of(record["workspace"]).items() if key != record["key"]}
    try:
        document = json.loads(record["document"])
        segment = parse_segment(document, _known(document, others))
    except DefinitionRefused as refused:
        faults = "; ".join(f"{fault.pointer}: {fault.message}" for fault in refused.faults)
        return Refused("definition_refused", f"{_place(record)} version {record['version']}: {faults}")
    except ValueError as error:
        return Refused("definition_not_json", f"{_place(record)} version {record['version']}: {error}")
    if segment.key != record["key"]:
        return Refused("definition_refused", f"{_place(record)}: the document is about {segment.key!r}")
    segment = replace(segment, version=record["version"])
    reads_context = any(True for node in _nodes(document) if "context" in node)
    paused = record["action"] == _PAUSED
    return _with(definitions, record, Definition(segment, record["correlation_id"], reads_context, paused=paused))


def _archived(definitions: Definitions, record: Record) -> Outcome[Definitions]:
    here = definitions.of(record["workspace"])
    known = here.get(record["key"])
    if known is None:
        return Skipped("never defined")
    users = sorted(key for key, other in here.items() if not other.archived and record["key"] in other.segment.uses)
    if users:
        return Refused("in_use", f"{_place(record)} stays in force: it is used by {', '.join(users)}")
    return _with(definitions, record, replace(known, correlation_id=record["correlation_id"], archived=True))


def _with(definitions: Definitions, record: Record, definition: Definition) -> Done[Definitions]:
    here = {**definitions.of(record["workspace"]), record["key"]: definition}
    return Done(Definitions({**definitions.by_workspace, record["workspace"]: here}))


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
