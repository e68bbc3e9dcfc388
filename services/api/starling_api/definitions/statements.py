"""Pure core: the statement, the schedule and the checks in the document of a computed trait, a view or an event type."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starling_rules.sql.checks import check_errors
from starling_rules.sql.incremental import COLUMN, DEFAULT_WATERMARK, FIELD, WATERMARK, day_errors
from starling_rules.sql.schedule import is_timezone, schedule_error
from starling_rules.sql.statement import Tables, cleaned, result_columns, sql_errors
from starling_segments import DefinitionRefused, FieldError
from starling_segments.language.durations import EXPECTED as DURATION
from starling_segments.language.durations import duration_ms

SQL_FIELDS: Final = frozenset({"sql", "schedule", "timezone", "checks"})
_SCHEDULE: Final = 'minute, hour, day, month and weekday of cron, such as "15 * * * *"'

_INCREMENTAL: Final = f'{{"{COLUMN}": "day", "{WATERMARK}": "{DEFAULT_WATERMARK}"}}'


def is_sql(document: Mapping[str, Any]) -> bool:
    """Return whether a computed trait is in SQL; else it is a measure of events."""
    return "sql" in document


def is_runnable(document: Mapping[str, Any]) -> bool:
    """Return whether the stored document of a definition in SQL can be scheduled. Another producer can write others."""
    zone = document.get("timezone") or "UTC"
    if not isinstance(document["sql"], str) or check_errors(document.get("checks"), ()) or incremental_fields(document, None)[1]:
        return False
    return schedule_error(document.get("schedule")) is None and not zone_errors(zone)


def sql_fields(
    given: Mapping[str, Any], timezone: str, tables: Tables, *, is_view: bool = False
) -> tuple[dict[str, Any], tuple[FieldError, ...]]:
    """Return the fields of a definition in SQL as they are stored, and their errors.

    `timezone` and `tables`: those of the workspace.
    """
    zone = given.get("timezone") or timezone
    sql, schedule = given["sql"], given.get("schedule")
    errors = zone_errors(zone) + schedule_errors(schedule)
    checks = given.get("checks")
    if not isinstance(sql, str):
        errors = (*errors, FieldError("/sql", "wrong_type", "it is not a text", "one SELECT"))
        return {}, errors + check_errors_of(checks, ())
    text = cleaned(sql)
    refused = sql_errors(text, tables, is_view=is_view)
    errors += tuple(
        FieldError("/sql", one.code, f"line {one.line}, column {one.column}: {one.reason}", one.cure) for one in refused
    )
    # The columns of a refused statement may be wrong themselves.
    errors += check_errors_of(checks, () if refused else result_columns(text))
    checked = {"checks": checks} if checks else {}
    return {"sql": text, "schedule": schedule, "timezone": zone, **checked}, errors


def same_language(document: dict[str, Any], before: Mapping[str, Any], _now_ms: int) -> dict[str, Any]:
    """Return the document. Raises: DefinitionRefused if a measure became SQL, or SQL a measure.

    Two jobs would publish values of the trait, each unaware of the other's.
    """
    if is_sql(document) != is_sql(before):
        now, then = ("SQL", "a measure") if is_sql(document) else ("a measure", "SQL")
        expected = f"{then}, or a new trait with another key"
        raise DefinitionRefused((FieldError("", "frozen_field", f"the trait is {then} and cannot become {now}", expected),))
    return document


def incremental_fields(given: Mapping[str, Any], sql: str | None) -> tuple[dict[str, Any], tuple[FieldError, ...]]:
    """Return the field `incremental` of a view as it is stored, and its errors. `sql`: its statement; None: it is refused."""
    field = given.get(FIELD)
    if field is None:
        return {}, ()
    if not isinstance(field, Mapping):
        return {}, (FieldError(f"/{FIELD}", "wrong_type", "it is not an object", _INCREMENTAL),)
    column, watermark = field.get(COLUMN), field.get(WATERMARK) or DEFAULT_WATERMARK
    errors = [
        FieldError(f"/{FIELD}/{name}", "unknown_field", f"{name!r} is not a field of {FIELD}", f"one of {COLUMN}, {WATERMARK}")
        for name in field
        if name not in {COLUMN, WATERMARK}
    ]
    if duration_ms(watermark) is None:
        errors.append(FieldError(f"/{FIELD}/{WATERMARK}", "bad_duration", "it is not a duration", DURATION))
    if not isinstance(column, str):
        errors.append(FieldError(f"/{FIELD}/{COLUMN}", "wrong_type", "it is not the name of a column", _INCREMENTAL))
    elif sql is not None:
        errors += _day_errors(sql, column.lower())
    return {} if errors else {FIELD: {COLUMN: str(column).lower(), WATERMARK: watermark}}, tuple(errors)


def _day_errors(sql: str, column: str) -> list[FieldError]:
    columns = result_columns(sql)
    if column not in columns:
        expected = "one of " + ", ".join(columns)
        return [FieldError(f"/{FIELD}/{COLUMN}", "unknown_column", f"the result has no column {column!r}", expected)]
    found = day_errors(sql, column)
    return [FieldError("/sql", one.code, f"line {one.line}, column {one.column}: {one.reason}", one.cure) for one in found]


def check_errors_of(checks: object, columns: Sequence[str]) -> tuple[FieldError, ...]:
    """Return the errors of the checks in a document. `columns`: as `check_errors`."""
    return tuple(FieldError(one.pointer, one.code, one.reason, one.cure) for one in check_errors(checks, columns))


def schedule_errors(schedule: object) -> tuple[FieldError, ...]:
    """Return the error of a schedule; None is none."""
    if schedule is None:
        return (FieldError("", "missing_field", "it has no schedule", f'"schedule": {_SCHEDULE}'),)
    problem = schedule_error(schedule)
    return () if problem is None else (FieldError("/schedule", "bad_schedule", problem, _SCHEDULE),)


def zone_errors(name: object) -> tuple[FieldError, ...]:
    """Return the error of the name of a time zone."""
    if is_timezone(name):
        return ()
    return (FieldError("/timezone", "bad_timezone", "unknown timezone", "an IANA name such as Europe/Berlin"),)
