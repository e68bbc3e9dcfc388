"""Pure core: the computed traits in force, from the records of `computed-traits.definitions`."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starling_common.outcome import Done
from starling_common.wire import Record
from starling_segments import DefinitionRefused, Measure, Ratio, parse_measure, read_document
from starling_segments.language.tree import EventSelector

_MEASURE_FIELDS = ("event", "where", "measure", "within", "between_ago", "after", "before", "calendar")


@dataclass(frozen=True, slots=True)
class Definition:
    """One computed trait as text, so that it travels to workers and can be named by a hash.

    `document` is the version in force as JSON, None when the trait is archived; `former` are the earlier versions'.
    """

    workspace: str
    key: str
    version: int
    document: str | None
    former: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trait:
    """One computed trait, read. `measure` None: no value; `former`: events by which an earlier version may have a value."""

    workspace: str
    key: str
    version: int
    measure: Measure | Ratio | None
    former: tuple[EventSelector, ...]


Versions = Mapping[tuple[str, str], Mapping[int, str]]
"""(workspace, key) -> version -> document."""


class Definitions:
    """The traits of the `DefinitionChanged` records folded so far. Immutable: another thread folds the next record."""

    def __init__(self, versions: Versions | None = None, archived: Mapping[tuple[str, str], int] | None = None) -> None:
        self._versions = versions or {}
        self._archived = archived or {}

    def after(self, record: Record) -> "Definitions":
        """Return the definitions after one record; a repeat changes nothing. Traits in SQL have a job of their own."""
        if _is_sql(record["document"]):
            return self
        name, version = (record["workspace"], record["key"]), record["version"]
        versions = {**self._versions, name: {version: record["document"], **self._versions.get(name, {})}}
        return Definitions(versions, {**self._archived, name: version} if record["action"] == "ARCHIVED" else self._archived)

    def in_force(self) -> tuple[Definition, ...]:
        """All traits there are or were, by workspace and key."""
        return tuple(self._definition(name) for name in sorted(self._versions))

    def _definition(self, name: tuple[str, str]) -> Definition:
        newest, *older = sorted(self._versions[name].items(), reverse=True)
        if name in self._archived:
            texts = dict.fromkeys(text for _, text in (newest, *older))
            return Definition(*name, max(newest[0], self._archived[name]), None, tuple(texts))
        former = dict.fromkeys(text for _, text in older if text != newest[1])
        return Definition(*name, newest[0], newest[1], tuple(former))


def _is_sql(text: str) -> bool:
    try:
        document = read_document(text)
    except (DefinitionRefused, ValueError):
        return False  # another producer wrote it; `read_definitions` reports it
    return isinstance(document, dict) and "sql" in document


def fold_definition(definitions: Definitions, record: Record) -> Done[Definitions]:
    """Return the definitions after one record."""
    return Done(definitions.after(record))


def read_definitions(definitions: Sequence[Definition]) -> tuple[tuple[Trait, ...], tuple[str, ...]]:
    """A trait for each definition, in order, and what is wrong with those that cannot be computed."""
    problems: list[str] = []

    def measure(definition: Definition, text: str) -> Measure | Ratio | None:
        try:
            document = read_document(text)
            fields = {name: document[name] for name in _MEASURE_FIELDS if document.get(name) is not None}
            return parse_measure(fields, document.get("timezone") or "UTC")
        except (DefinitionRefused, ValueError, TypeError, AttributeError) as error:
            problems.append(f"{definition.workspace}/{definition.key}: {error}")
            return None

    def trait(definition: Definition) -> Trait:
        current = None if definition.document is None else measure(definition, definition.document)
        former = [selector for text in definition.former for selector in selectors(measure(definition, text))]
        return Trait(definition.workspace, definition.key, definition.version, current, tuple(former))

    return tuple(trait(definition) for definition in definitions), tuple(problems)


def computable(definitions: Sequence[Definition]) -> tuple[tuple[Definition, ...], tuple[str, ...]]:
    """Return the definitions from which a value follows or followed, and what is wrong with those that cannot be computed.

    The others change nothing: for one that was never valid, the events of all workspaces need not be read again.
    """
    traits, problems = read_definitions(definitions)
    pairs = zip(definitions, traits, strict=True)
    return tuple(definition for definition, trait in pairs if trait.measure is not None or trait.former), problems


def selectors(measure: Measure | Ratio | None) -> tuple[EventSelector, ...]:
    """Return the events that a measure counts."""
    if measure is None:
        return ()
    return (measure.of.event, measure.to.event) if isinstance(measure, Ratio) else (measure.event,)


def fingerprint(definitions: Sequence[Definition], *more: object) -> str:
    """A short name for exactly these definitions; state kept under one name is never read under another."""
    facts = [[d.workspace, d.key, d.version, d.document, d.former] for d in definitions]
    return hashlib.blake2b(json.dumps([facts, more], default=str).encode(), digest_size=8).hexdigest()
