"""Checks of results in SQL: what a document may have, every error of the others, and the outcome of each rule."""

from typing import Any

import pytest

from starling_common.time.instants import parse_instant
from starling_rules.sql.checks import (
    ERROR,
    MAX_CHECKS,
    WARNING,
    Check,
    Measured,
    check_errors,
    checks_of,
    document_of,
    message_of,
    outcome_of,
)
from starling_rules.sql.statement import result_columns

COLUMNS = ("day", "plan", "orders")
AS_OF = parse_instant("2026-03-10T12:00:00Z")
DAY_MS = 86_400_000


def errors(*checks: Any) -> list[tuple[str, str]]:
    return [(one.pointer, one.code) for one in check_errors(list(checks), COLUMNS)]


def test_every_form_is_accepted_and_read() -> None:
    documents: list[dict[str, Any]] = [
        {"not_null": "plan"},
        {"range": {"column": "Orders", "min": 0, "max": 100.5}, "severity": "warning"},
        {"range": {"column": "orders", "max": 5, "min": None}, "severity": None},
        {"unique": ["day", "plan"]},
        {"volume": {"min": 1, "max": 1_000_000, "change_percent": 50}, "severity": "error"},
        {"freshness": {"column": "day", "within": "2d"}},
    ]
    assert check_errors(documents, COLUMNS) == []
    assert checks_of(documents) == [
        Check("not_null", ERROR, ("plan",)),
        Check("range", WARNING, ("Orders",), 0, 100.5),
        Check("range", ERROR, ("orders",), None, 5),
        Check("unique", ERROR, ("day", "plan")),
        Check("volume", ERROR, (), 1, 1_000_000, 50),
        Check("freshness", ERROR, ("day",), within="2d"),
    ]
    assert check_errors(None, COLUMNS) == check_errors([], COLUMNS) == []


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ("not_null", [("/checks/0", "wrong_type")]),
        ({}, [("/checks/0", "wrong_type")]),
        ({"regex": "plan"}, [("/checks/0", "wrong_type")]),
        ({"not_null": "plan", "unique": ["plan"]}, [("/checks/0", "wrong_type")]),
        ({"not_null": "plan", "when/ever": 1}, [("/checks/0/when~1ever", "unknown_field")]),
        ({"not_null": "plan", "severity": "fatal"}, [("/checks/0/severity", "wrong_type")]),
        ({"not_null": "total"}, [("/checks/0/not_null", "unknown_column")]),
        ({"not_null": "a` b"}, [("/checks/0/not_null", "wrong_type")]),
        ({"not_null": ["plan"]}, [("/checks/0/not_null", "wrong_type")]),
        ({"unique": []}, [("/checks/0/unique", "wrong_type")]),
        ({"unique": "plan"}, [("/checks/0/unique", "wrong_type")]),
        ({"unique": ["plan", "PLAN"]}, [("/checks/0/unique", "wrong_type")]),
        ({"unique": ["plan", "total"]}, [("/checks/0/unique/1", "unknown_column")]),
        ({"range": {"column": "orders"}}, [("/checks/0/range", "missing_field")]),
        ({"range": {"min": 1}}, [("/checks/0/range/column", "wrong_type")]),
        ({"range": {"column": "orders", "min": "1"}}, [("/checks/0/range/min", "wrong_type")]),
        ({"range": {"column": "orders", "min": True}}, [("/checks/0/range/min", "wrong_type")]),
        ({"range": {"column": "orders", "max": float("nan")}}, [("/checks/0/range/max", "wrong_type")]),
        ({"range": {"column": "orders", "min": 10**20}}, [("/checks/0/range/min", "wrong_type")]),
        ({"range": {"column": "orders", "min": 2, "max": 1}}, [("/checks/0/range/max", "wrong_type")]),
        ({"range": [0, 1]}, [("/checks/0/range", "wrong_type")]),
        ({"volume": {}}, [("/checks/0/volume", "missing_field")]),
        ({"volume": {"min": 0.5}}, [("/checks/0/volume/min", "wrong_type")]),
        ({"volume": {"min": -1}}, [("/checks/0/volume/min", "wrong_type")]),
        ({"volume": {"change_percent": 0}}, [("/checks/0/volume/change_percent", "wrong_type")]),
        ({"volume": {"min": 1, "column": "day"}}, [("/checks/0/volume/column", "unknown_field")]),
        ({"freshness": {"column": "day"}}, [("/checks/0/freshness/within", "bad_duration")]),
        ({"freshness": {"column": "date", "within": "2 days"}}, [
            ("/checks/0/freshness/column", "unknown_column"), ("/checks/0/freshness/within", "bad_duration"),
        ]),
    ],
)  # fmt: skip
def test_a_wrong_check_has_its_place(check: Any, expected: list[tuple[str, str]]) -> None:
    assert errors(check) == expected


def test_all_errors_are_returned_at_once_and_columns_only_if_they_are_known() -> None:
    found = errors({"not_null": "a"}, {"not_null": "plan"}, {"unique": ["b", "c"]})
    assert [pointer for pointer, _ in found] == ["/checks/0/not_null", "/checks/2/unique/0", "/checks/2/unique/1"]
    assert check_errors([{"not_null": "a"}], ()) == []
    assert [one.code for one in check_errors({"not_null": "plan"}, COLUMNS)] == ["wrong_type"]
    assert [one.code for one in check_errors([{"not_null": "plan"}] * (MAX_CHECKS + 1), COLUMNS)] == ["too_many"]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT to_date(event_time) AS Day, count(*) AS n FROM events GROUP BY 1", ("day", "n")),
        ("WITH a AS (SELECT name FROM events) SELECT a.name FROM a UNION SELECT name FROM events", ("name",)),
        ("SELECT *, 1 AS n FROM events", ()),
        ("SELECT (", ()),
    ],
)
def test_the_columns_of_a_statement(sql: str, expected: tuple[str, ...]) -> None:
    assert result_columns(sql) == expected


def outcome(check: dict[str, Any], measured: Measured) -> tuple[str | None, int | None, str | None]:
    [read] = checks_of([check])
    found = outcome_of(read, measured, AS_OF)
    return found.observed, found.violations, found.message


def test_not_null() -> None:
    assert outcome({"not_null": "plan"}, Measured(9)) == ("0", 0, None)
    assert outcome({"not_null": "plan"}, Measured(0)) == ("0", 0, None)
    assert outcome({"not_null": "plan"}, Measured(9, 2)) == ("2", 2, "2 of 9 rows have no value")


def test_unique() -> None:
    assert outcome({"unique": ["plan"]}, Measured(9)) == ("0", 0, None)
    message = "5 of 9 rows share their values with another row: 2 values are repeated"
    assert outcome({"unique": ["plan"]}, Measured(9, 5, 2)) == ("2", 5, message)


@pytest.mark.parametrize(
    ("bounds", "text"), [({"min": 0, "max": 10}, "0 to 10"), ({"min": -1.5}, "at least -1.5"), ({"max": 0}, "at most 0")]
)
def test_range(bounds: dict[str, float], text: str) -> None:
    check = {"range": {"column": "orders", **bounds}}
    assert outcome(check, Measured(9, least="1", greatest="7")) == ("1 to 7", 0, None)
    assert outcome(check, Measured(9)) == (None, 0, None)
    message = f"2 of 9 rows are not {text}: the values are -3 to 12"
    assert outcome(check, Measured(9, 2, least="-3", greatest="12")) == ("-3 to 12", 2, message)
    assert outcome(check, Measured(9, 9)) == (None, 9, f"9 of 9 rows are not {text}: the values are NaN")


@pytest.mark.parametrize(
    ("rows", "before", "message"),
    [
        (2, None, None),
        (4, None, None),
        (1, None, "2 to 4 are allowed"),
        (5, None, "2 to 4 are allowed"),
        (2, 4, None),
        (3, 2, None),
        # From no rows there is no change in percent.
        (4, 0, None),
        (4, 2, "it changed by +100.0 % from the last complete run (2 rows), and at most 50 % are allowed"),
        (0, 5, "2 to 4 are allowed; it changed by -100.0 % from the last complete run (5 rows), and at most 50 % are allowed"),
    ],
)
def test_volume(rows: int, before: int | None, message: str | None) -> None:
    check = {"volume": {"min": 2, "max": 4, "change_percent": 50}}
    observed = str(rows) if before is None else f"{rows}, before {before}"
    expected = message and f"the result has {rows} rows: {message}"
    assert outcome(check, Measured(rows, before=before)) == (observed, None, expected)


def test_freshness() -> None:
    check = {"freshness": {"column": "day", "within": "2d"}}
    at = "2026-03-08T12:00:00.000Z"
    assert outcome(check, Measured(9, newest_ms=AS_OF - 2 * DAY_MS)) == (at, None, None)
    late = outcome(check, Measured(9, newest_ms=AS_OF - 2 * DAY_MS - 1))
    assert late[2] == "the newest time is 2026-03-08T11:59:59.999Z, more than 2d before that of the run, 2026-03-10T12:00:00.000Z"
    assert outcome(check, Measured(9, newest_ms=AS_OF + DAY_MS))[2] is None
    assert outcome(check, Measured(0)) == (None, None, "no row has a time, and one within 2d before the run is required")
    # A date far in the future can be computed, and not be written as ISO 8601.
    assert outcome(check, Measured(9, newest_ms=10**18))[0] == "9999-12-31T23:59:59.999Z"


def test_messages_have_number_title_and_severity() -> None:
    checks = checks_of(
        [{"not_null": "day"}, {"not_null": "plan"}, {"volume": {"min": 5}, "severity": "warning"}, {"unique": ["day", "plan"]}]
    )
    found = [Measured(3), Measured(3, 1), Measured(3), Measured(3, 2, 1)]
    outcomes = [outcome_of(check, one, AS_OF) for check, one in zip(checks, found, strict=True)]
    assert message_of(outcomes, ERROR) == (
        "check 2, not_null plan: 1 of 3 rows have no value; "
        "check 4, unique day, plan: 2 of 3 rows share their values with another row: 1 values are repeated"
    )
    assert message_of(outcomes, WARNING) == "check 3, volume: the result has 3 rows: at least 5 are allowed"
    assert message_of(outcomes[:1], ERROR) is None
    assert document_of(outcomes[1]) == {
        "check": "not_null plan", "severity": "error", "passed": False, "observed": "1", "violations": 1,
        "message": "1 of 3 rows have no value",
    }  # fmt: skip
