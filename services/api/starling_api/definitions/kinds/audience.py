"""Pure core: the documents of segments, computed traits and lists."""

from typing import Final

from starling_api.definitions.kinds.kind import Document, event_types_of
from starling_api.definitions.kinds.reading import (
    finish,
    key_errors,
    label_errors,
    labels_of,
    name_errors,
    object_of,
    text_errors,
    unknown_field_errors,
    writable,
)
from starling_api.definitions.statements import SQL_FIELDS, is_sql, sql_fields
from starling_rules.sql.event_types import with_event_types
from starling_segments import DefinitionRefused, FieldError, Known, parse_measure, parse_segment
from starling_segments.parse.document import LABELS

LIST_TITLE: Final = "list"


def read_segment(document: object, known: Known) -> Document:
    """Return the document of a segment with its defaults filled in. Raises: DefinitionRefused."""
    given = writable(document)
    segment = parse_segment(given, known)
    return {
        "key": segment.key,
        "name": segment.name,
        "description": segment.description,
        "timezone": segment.timezone,
        **labels_of(given),
        "where": given["where"],
    }


def read_trait(document: object, known: Known) -> Document:
    """Return the document of a computed trait: `{key, name?, timezone?, event, where?, measure?, a window?}`.

    A ratio has no event of its own. A trait in SQL is `{key, name?, timezone?, sql, schedule, checks?}`. Raises: DefinitionRefused.
    """
    given = {field: value for field, value in object_of(document).items() if field == "key" or value is not None}
    errors = key_errors(given, known) + name_errors(given)
    errors += label_errors(given)
    if is_sql(given):
        return _sql_trait(given, known, errors)
    own = {"key", "name"} | LABELS
    present = {field: value for field, value in given.items() if field not in own and value is not None}
    measured = {field: value for field, value in present.items() if field != "timezone"}
    timezone = present.get("timezone") or known.timezone
    try:
        parse_measure(measured, timezone)
    except DefinitionRefused as refused:
        errors += refused.errors
    finish(errors)
    # An implicit UTC is not stored, so that documents without a time zone stay equal.
    zoned = {} if "timezone" not in present and timezone == "UTC" else {"timezone": timezone}
    return {
        "key": given["key"],
        "name": given.get("name") or given["key"],
        "measure": "count",
        **measured,
        **zoned,
        **labels_of(given),
    }


def _sql_trait(given: Document, known: Known, errors: tuple[FieldError, ...]) -> Document:
    fields, more = sql_fields(given, known.timezone, with_event_types(event_types_of(known)))
    finish(errors + more + unknown_field_errors(given, "computed trait in SQL", SQL_FIELDS | {"key", "name"} | LABELS))
    return {"key": given["key"], "name": given.get("name") or given["key"], **fields, **labels_of(given)}


def read_list(document: object, known: Known) -> Document:
    """Return the document of a list: `{key, name?, description?}`. Members are uploaded separately. Raises: DefinitionRefused."""
    given = object_of(document)
    errors = key_errors(given, known) + name_errors(given) + text_errors(given)
    errors += unknown_field_errors(given, LIST_TITLE, frozenset({"key", "name", "description"}) | LABELS) + label_errors(given)
    finish(errors)
    described = {"description": given.get("description") or ""}
    return {"key": given["key"], "name": given.get("name") or given["key"], **described, **labels_of(given)}
