"""Pure core: what a kind of definition is, and the names to which a definition may refer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starling_api.definitions.event_types import Statement
from starling_campaigns import References
from starling_rules.sql.event_types import EventType
from starling_segments import Known

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of definition. `meaning`: the fields whose change makes a new version. `hidden`: the field that only the response
    to the creation contains, of the documents with `has_hidden`. `read` returns the document to store and raises DefinitionRefused
    with all errors.

    `completed` adds to a body what the stored document has and responses do not show. `followed` adds to a document what it keeps
    of the one before (document, the one before, time in ms). `shown` returns the document of a response. `secrets` returns the path
    of each secret in a document, whose values are texts.
    """

    name: str
    title: str
    topic: str
    meaning: frozenset[str]
    read: Callable[[object, Known], Document]
    hidden: str | None = None
    has_hidden: Callable[[Mapping[str, Any]], bool] = lambda _document: True
    completed: Callable[[Mapping[str, Any], Mapping[str, Any] | None], Document] = lambda document, _before: dict(document)
    followed: Callable[[Document, Mapping[str, Any], int], Document] = lambda document, _before, _now_ms: document
    shown: Callable[[Mapping[str, Any]], Document] = dict
    secrets: Callable[[Mapping[str, Any]], Sequence[tuple[str, ...]]] = lambda _document: ()


@dataclass(frozen=True)
class Names(Known):
    """The names to which a definition may refer, beyond those of a segment. `targets`: key -> channel.

    `event_types`: those in force; `statements`: those in force that may read their tables.
    """

    targets: Mapping[str, str] = field(default_factory=dict)
    archived_segments: frozenset[str] = frozenset()
    archived_targets: frozenset[str] = frozenset()
    event_types: Sequence[EventType] = ()
    statements: Sequence[Statement] = ()

    def references(self) -> References:
        """Return the names for the parser of campaigns."""
        return References(self, self.targets, self.archived_segments, self.archived_targets, self.taken_keys)


def event_types_of(known: Known) -> Sequence[EventType]:
    """Return the event types whose tables a statement may read."""
    return known.event_types if isinstance(known, Names) else ()
