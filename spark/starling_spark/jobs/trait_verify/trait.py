"""Pure core: the computed trait to verify, from the records of `computed-traits.definitions`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starling_common.cassandra.read_models import ARCHIVED
from starling_common.records.definitions import status_after
from starling_segments import DefinitionRefused, Measure, Ratio, parse_measure, read_document

_MEASURE_FIELDS: Final = ("event", "where", "measure", "within", "between_ago", "after", "before", "calendar")


class NotVerifiable(Exception):
    """The trait cannot be verified now. The text names the reason and the cure."""


@dataclass(frozen=True, slots=True)
class Trait:
    """The version of a trait in force. `document`: as JSON; `sides`: one measure, or the two of a ratio.

    `newest`: the offset of the newest definition of any trait.
    """

    workspace: str
    key: str
    version: int
    document: str
    sides: tuple[Measure, ...]
    newest: int


def find_trait(records: Iterable[tuple[int, Mapping[str, Any]]], key: str, workspace: str | None) -> Trait:
    """Return the trait with that key. `records`: (offset, `DefinitionChanged`); `workspace` None: the only one with such a trait.

    Raises: NotVerifiable.
    """
    found: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    last = -1
    for offset, record in records:
        last = max(last, offset)
        if record["key"] == key and workspace in (None, record["workspace"]):
            found.setdefault(record["workspace"], []).append((offset, record))
    if not found:
        raise NotVerifiable(f"there is no computed trait {key!r}: see `starling traits list`")
    if len(found) > 1:
        raise NotVerifiable(f"several workspaces have a trait {key!r}: name one of {', '.join(sorted(found))} by --workspace")
    [(name, own)] = found.items()
    if any(status_after(record["action"]) == ARCHIVED for _, record in own):
        raise NotVerifiable(f"the trait {key!r} is archived: it has no values")
    _, newest = max(own, key=lambda one: (one[1]["version"], one[0]))
    return Trait(name, key, newest["version"], newest["document"], read_sides(newest["document"]), last)


def read_sides(document: str) -> tuple[Measure, ...]:
    """Return the measures of a definition. Raises: NotVerifiable for SQL, or another version of the language."""
    try:
        fields = read_document(document)
        if "sql" in fields:
            raise NotVerifiable("the trait is in SQL: its statement is its only definition, so there is nothing to compare it with")
        measured = {name: fields[name] for name in _MEASURE_FIELDS if fields.get(name) is not None}
        measure = parse_measure(measured, fields.get("timezone") or "UTC")
    except (DefinitionRefused, ValueError, TypeError, AttributeError) as error:
        raise NotVerifiable(f"the definition cannot be read: {error}: update this job") from error
    return (measure.of, measure.to) if isinstance(measure, Ratio) else (measure,)
