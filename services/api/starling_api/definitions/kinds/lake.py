"""Pure core: the documents of event types and views, which are tables of the lake."""

from typing import Final

from starling_api.definitions.event_types import FIELDS as EVENT_TYPE_FIELDS
from starling_api.definitions.event_types import broken_errors, event_type_fields, taken_errors
from starling_api.definitions.kinds.kind import Document, Names, event_types_of
from starling_api.definitions.kinds.reading import (
    finish,
    key_errors,
    label_errors,
    labels_of,
    name_errors,
    object_of,
    text_errors,
    unknown_field_errors,
)
from starling_api.definitions.statements import SQL_FIELDS, incremental_fields, sql_fields
from starling_rules.sql.event_types import KEY_PATTERN as TABLE_KEY_PATTERN
from starling_rules.sql.event_types import is_key, with_event_types
from starling_rules.sql.incremental import FIELD
from starling_segments import FieldError, Known
from starling_segments.parse.document import LABELS

EVENT_TYPE_TITLE: Final = "event type"
VIEW_TITLE: Final = "view"


def read_event_type(document: object, known: Known) -> Document:
    """Return the document of an event type: `{key, event, description?, properties, checks?, schedule?, timezone?, within?}`.

    Raises: DefinitionRefused.
    """
    given = object_of(document)
    fields, more = event_type_fields(given, known.timezone)
    errors = key_errors(given, known) + more + label_errors(given)
    finish(errors + unknown_field_errors(given, EVENT_TYPE_TITLE, EVENT_TYPE_FIELDS | LABELS))
    statements = known.statements if isinstance(known, Names) else ()
    finish(taken_errors(fields, event_types_of(known)) + broken_errors(fields, event_types_of(known), statements))
    return {**fields, **labels_of(given)}


def read_view(document: object, known: Known) -> Document:
    """Return the document of a view: `{key, name?, description?, timezone?, sql, schedule, checks?, incremental?}`.

    Raises: DefinitionRefused.
    """
    given = {"sql": None, **object_of(document)}
    errors = key_errors(given, known) + name_errors(given) + text_errors(given) + label_errors(given)
    if isinstance(given.get("key"), str) and not is_key(given["key"]):
        errors += (FieldError("/key", "bad_key", "it is no name of a table", TABLE_KEY_PATTERN),)
    fields, more = sql_fields(given, known.timezone, with_event_types(event_types_of(known)), is_view=True)
    by_day, unfit = incremental_fields(given, None if any(one.pointer == "/sql" for one in more) else fields.get("sql"))
    known_fields = SQL_FIELDS | {FIELD, "key", "name", "description"} | LABELS
    finish(errors + more + unfit + unknown_field_errors(given, VIEW_TITLE, known_fields))
    described = {"description": given.get("description") or ""}
    return {"key": given["key"], "name": given.get("name") or given["key"], **described, **fields, **by_day, **labels_of(given)}
