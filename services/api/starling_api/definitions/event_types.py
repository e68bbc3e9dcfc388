"""Pure core: the document of an event type."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from starling_api.definitions.definition import Definition
from starling_api.definitions.statements import check_errors_of, is_runnable, is_sql, schedule_errors, zone_errors
from starling_api.ports import DefinitionReader
from starling_common.cassandra.read_models import ARCHIVED, COMPUTED_TRAIT, VIEW
from starling_rules.sql.checks import checks_of
from starling_rules.sql.event_types import (
    COLUMNS,
    KEY_PATTERN,
    MAX_PROPERTIES,
    NAME_PATTERN,
    PREFIX,
    TYPES,
    EventType,
    event_type_of,
    is_key,
    is_name,
    with_event_types,
)
from starling_rules.sql.statement import AS_OF, sql_errors, tables_read
from starling_segments import DefinitionRefused, FieldError
from starling_segments.language.durations import EXPECTED as DURATION
from starling_segments.language.durations import duration_ms
from starling_segments.parse.document import description_errors

Document = dict[str, Any]

CHECK_FIELDS: Final = frozenset({"checks", "schedule", "timezone", "within"})
FIELDS: Final = frozenset({"key", "event", "description", "properties"}) | CHECK_FIELDS
DEFAULT_WITHIN: Final = "1d"
MAX_EVENT_BYTES: Final = 512
_PROPERTY_FIELDS: Final = frozenset({"name", "type", "description", "archived"})
_TYPES: Final = "one of " + ", ".join(TYPES)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement in force. `title`: kind and key of its definition, such as `computed trait margin`; `key`: of the definition."""

    title: str
    key: str
    sql: str


def event_type_fields(given: Mapping[str, Any], timezone: str) -> tuple[Document, tuple[FieldError, ...]]:
    """Return the fields of an event type as they are stored, without labels, and their errors. `timezone`: of the workspace."""
    errors = [*_key_errors(given), *_event_errors(given), *_description_errors("", given), *_properties_errors(given)]
    declared = given.get("properties")
    properties = [_stored(one) for one in declared if isinstance(one, Mapping)] if isinstance(declared, list) else []
    fields = {name: given.get(name) for name in ("key", "event")}
    fields |= {"description": given.get("description") or "", "properties": properties}
    checked, more = _check_fields(given, timezone, fields)
    return fields | checked, (*errors, *more)


def checked_statement(document: Mapping[str, Any]) -> str | None:
    """Return the statement whose result the checks of a stored document see; None for one that has none, or cannot be run.

    Its rows are the events of the last `within` before the run, its columns those that the checks name.
    """
    event_type, checks, length = event_type_of(document), document.get("checks"), duration_ms(document.get("within"))
    if event_type is None or not checks or length is None or not is_runnable({**document, "sql": ""}):
        return None
    named = dict.fromkeys(name.lower() for check in checks_of(checks) for name in check.columns)
    columns = ", ".join(f"`{name}`" for name in named or ("event_id",))
    period = f":{AS_OF} - INTERVAL {-(-length // 1000)} SECONDS"
    return f"SELECT {columns} FROM {event_type.table} WHERE event_time > {period}"  # noqa: S608 - names of columns and a table


def taken_errors(document: Mapping[str, Any], others: Sequence[EventType]) -> tuple[FieldError, ...]:
    """Return the error of an event that another event type declares."""
    found = next((one.key for one in others if one.event == document["event"] and one.key != document["key"]), None)
    if found is None:
        return ()
    reason = f"the event type {found!r} declares {document['event']!r}"
    return (FieldError("/event", "event_taken", reason, f"a change of {found!r}, or the name of another event"),)


def broken_errors(
    document: Mapping[str, Any], others: Sequence[EventType], statements: Sequence[Statement]
) -> tuple[FieldError, ...]:
    """Return an error for each statement that reads a column which the changed event type has no more."""
    changed = event_type_of(document)
    if changed is None:
        return ()
    tables = with_event_types([*(one for one in others if one.key != changed.key), changed])
    return tuple(
        FieldError("/properties", "in_use", f"the {one.title} would fail: {errors[0].reason}", f"change or archive the {one.title}")
        for one in reading(changed.table, statements)
        if (errors := [error for error in sql_errors(one.sql, tables) if error.code == "unknown_column"])
    )


def statements_in(definitions: Sequence[Definition]) -> list[Statement]:
    """Return the statements of computed traits and views that are not archived."""
    found = (one for one in definitions if one.status != ARCHIVED and is_sql(one.document) and is_runnable(one.document))
    return [Statement(f"{one.kind.replace('_', ' ')} {one.key}", one.key, one.document["sql"]) for one in found]


def reading(table: str, statements: Sequence[Statement]) -> list[Statement]:
    """Return the statements that read a table."""
    return [one for one in statements if table in one.sql.lower() and table in tables_read(one.sql)]


def readers_of(reader: DefinitionReader, workspace: str, key: str) -> list[str]:
    """Return the keys of the computed traits and views that read the table of an event type. Raises: DatabaseUnavailable."""
    found = [*reader.definitions(workspace, COMPUTED_TRAIT), *reader.definitions(workspace, VIEW)]
    return [one.key for one in reading(PREFIX + key, statements_in(found))]


def event_types_in(definitions: Sequence[Definition]) -> list[EventType]:
    """Return the event types of definitions that are not archived."""
    found = (event_type_of(one.document) for one in definitions if one.status != ARCHIVED)
    return [one for one in found if one is not None]


def same_types(document: Document, before: Mapping[str, Any], _now_ms: int) -> Document:
    """Return the document. Raises: DefinitionRefused if the event or the type of a property changes, or a property is left out.

    Events of the past have the former type. The table would read them in two ways.
    """
    errors = [*_evolution_errors(document, before)]
    if errors:
        raise DefinitionRefused(tuple(errors))
    return document


def _evolution_errors(document: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[FieldError]:
    if document["event"] != before.get("event"):
        reason = f"the event is {before.get('event')!r} and cannot become {document['event']!r}"
        yield FieldError("/event", "frozen_field", reason, f"{before.get('event')!r}, or a new event type with another key")
    now = {one["name"].lower(): (place, one) for place, one in enumerate(document["properties"])}
    for old in before.get("properties") or ():
        if old["name"].lower() not in now:
            reason = f"the property {old['name']!r} is left out, and its name stays taken"
            yield FieldError("/properties", "frozen_field", reason, f'{old["name"]!r} with "archived": true')
            continue
        place, new = now[old["name"].lower()]
        if new["name"] != old["name"]:
            reason = f"the property {old['name']!r} cannot become {new['name']!r}"
            yield FieldError(f"/properties/{place}/name", "frozen_field", reason, f"{old['name']!r}, or a name of its own")
        elif new["type"] != old["type"]:
            reason = f"the type of {old['name']!r} is {old['type']} and cannot become {new['type']}"
            yield FieldError(f"/properties/{place}/type", "frozen_field", reason, f"{old['type']}, or a property with another name")


def _check_fields(given: Mapping[str, Any], timezone: str, fields: Document) -> tuple[Document, tuple[FieldError, ...]]:
    """Return the fields of the checks as they are stored, and their errors. `fields`: the other ones, which may have errors."""
    checks = given.get("checks")
    if checks is None or checks == []:
        needless = sorted(name for name in CHECK_FIELDS - {"checks"} if given.get(name) is not None)
        reason = "it belongs to checks, and there are none"
        return {}, tuple(FieldError(f"/{name}", "unknown_field", reason, "checks, or null") for name in needless)
    zone, schedule = given.get("timezone") or timezone, given.get("schedule")
    within = DEFAULT_WITHIN if given.get("within") is None else given["within"]
    errors = [*zone_errors(zone), *schedule_errors(schedule)]
    if duration_ms(within) is None:
        errors.append(FieldError("/within", "bad_duration", "it is no duration", DURATION))
    known = event_type_of(fields)
    # The columns of refused properties may be wrong themselves.
    columns = () if known is None else with_event_types([known])[known.table]
    errors += check_errors_of(checks, columns)
    return {"checks": checks, "schedule": schedule, "timezone": zone, "within": within}, tuple(errors)


def _key_errors(given: Mapping[str, Any]) -> Iterator[FieldError]:
    if isinstance(given.get("key"), str) and not is_key(given["key"]):
        yield FieldError("/key", "bad_key", "it is no part of the name of a table", KEY_PATTERN)


def _event_errors(given: Mapping[str, Any]) -> Iterator[FieldError]:
    event = given.get("event")
    if event is None:
        yield FieldError("", "missing_field", "it has no event", '"event": the name of the event, such as Order Completed')
    elif not isinstance(event, str) or not 0 < len(event.encode()) <= MAX_EVENT_BYTES:
        yield FieldError("/event", "wrong_type", "it is not the name of an event", f"text of 1 to {MAX_EVENT_BYTES} bytes")


def _description_errors(place: str, given: Mapping[str, Any]) -> Iterator[FieldError]:
    description = given.get("description")
    if not isinstance(description, str | None):
        yield FieldError(f"{place}/description", "wrong_type", "it is not a text", "a text, or null")
    elif description is not None:
        for one in description_errors(description):
            yield replace(one, pointer=f"{place}{one.pointer}")


def _properties_errors(given: Mapping[str, Any]) -> Iterator[FieldError]:
    declared = given.get("properties")
    if declared is None:
        yield FieldError("", "missing_field", "it has no properties", '"properties": a list of objects with name and type')
        return
    if not isinstance(declared, list) or len(declared) > MAX_PROPERTIES:
        reason = f"it has {len(declared)} properties" if isinstance(declared, list) else "it is not a list of properties"
        yield FieldError("/properties", "wrong_type", reason, f"a list of at most {MAX_PROPERTIES} objects with name and type")
        return
    taken: dict[str, int] = {}
    for place, one in enumerate(declared):
        at = f"/properties/{place}"
        if not isinstance(one, Mapping):
            yield FieldError(at, "wrong_type", "it is not an object", "an object with name and type")
            continue
        yield from _name_errors(f"{at}/name", one, taken, place)
        yield from _property_errors(at, one)


def _name_errors(at: str, one: Mapping[str, Any], taken: dict[str, int], place: int) -> Iterator[FieldError]:
    name = one.get("name")
    other = "get_json_object(properties, '$.…') for others"
    if not is_name(name):
        yield FieldError(at, "bad_name", "it is not the name of a column", f"{NAME_PATTERN}; {other}")
        return
    column = str(name).lower()
    if column in COLUMNS:
        expected = f"a name other than {', '.join(COLUMNS)}; {other}"
        yield FieldError(at, "bad_name", f"{name!r} is a column of every event type", expected)
    elif column in taken:
        yield FieldError(at, "bad_name", f"{name!r} is the name of /properties/{taken[column]}, in any case", "each name once")
    taken.setdefault(column, place)


def _property_errors(at: str, one: Mapping[str, Any]) -> Iterator[FieldError]:
    if one.get("type") not in TYPES:
        yield FieldError(f"{at}/type", "bad_type", f"{one.get('type')!r} is not a type", _TYPES)
    yield from _description_errors(at, one)
    if not isinstance(one.get("archived"), bool | None):
        yield FieldError(f"{at}/archived", "wrong_type", "it is not a boolean", "true or false")
    for field in one:
        if field not in _PROPERTY_FIELDS:
            escaped = str(field).replace("~", "~0").replace("/", "~1")
            expected = "one of " + ", ".join(sorted(_PROPERTY_FIELDS))
            yield FieldError(f"{at}/{escaped}", "unknown_field", f"{field!r} is not a field of a property", expected)


def _stored(one: Mapping[str, Any]) -> Document:
    described = {"description": one["description"]} if one.get("description") else {}
    return {"name": one.get("name"), "type": one.get("type"), **described, **({"archived": True} if one.get("archived") else {})}
