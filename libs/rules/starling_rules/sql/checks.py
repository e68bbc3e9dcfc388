"""Pure core: checks of the result of a statement in SQL: their form in a document, and their outcome in a run."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from starling_common.time.instants import EARLIEST_MS, LATEST_MS, format_instant
from starling_segments.language.durations import EXPECTED as DURATION
from starling_segments.language.durations import duration_ms

NOT_NULL: Final = "not_null"
RANGE: Final = "range"
UNIQUE: Final = "unique"
VOLUME: Final = "volume"
FRESHNESS: Final = "freshness"
RULES: Final = (NOT_NULL, RANGE, UNIQUE, VOLUME, FRESHNESS)
"""The rules of checks. A check has one of them."""

ERROR: Final = "error"
WARNING: Final = "warning"
SEVERITIES: Final = (ERROR, WARNING)
"""Of a failed check: `error` fails the run, and the result before it stays; `warning` is reported, and the result is published."""

MAX_CHECKS: Final = 50
MAX_UNIQUE_COLUMNS: Final = 10
MAX_PERCENT: Final = 1_000_000
MAX_NUMBER: Final = 2**53
"""Of a bound. Beyond it a double is no exact integer."""
COLUMN_PATTERN: Final = "^[A-Za-z_][A-Za-z0-9_]{0,127}$"

_COLUMN: Final = re.compile(COLUMN_PATTERN[:-1] + r"\Z")
_NUMBER: Final = f"a number from -{MAX_NUMBER} to {MAX_NUMBER}"
_COUNT: Final = f"a whole number from 0 to {MAX_NUMBER}"
_PERCENT: Final = f"a number above 0, at most {MAX_PERCENT}"
_FORMS: Final[Mapping[str, str]] = {
    NOT_NULL: '{"not_null": "column"}',
    RANGE: '{"range": {"column": "column", "min": 0, "max": 100}}, with one bound or both',
    UNIQUE: f'{{"unique": ["column", "other_column"]}}, with 1 to {MAX_UNIQUE_COLUMNS} different columns',
    VOLUME: '{"volume": {"min": 1, "max": 1000000, "change_percent": 50}}, with one of them or more',
    FRESHNESS: '{"freshness": {"column": "column", "within": "2d"}}',
}
"""Rule -> its form in a document."""


class CheckError(NamedTuple):
    """One error of the checks in a document. `pointer`: a JSON pointer into the document; `cure`: what to write instead."""

    pointer: str
    code: str
    reason: str
    cure: str


class Check(NamedTuple):
    """One check. `least`, `most`: bounds of `range` and `volume`; `change_percent`: of `volume`; `within`: of `freshness`."""

    rule: str
    severity: str = ERROR
    columns: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    change_percent: float | None = None
    within: str | None = None

    @property
    def title(self) -> str:
        """Return the rule and its columns."""
        return " ".join((self.rule, ", ".join(self.columns))).rstrip()


class Measured(NamedTuple):
    """What a run has measured for one check. Fields that its rule does not need have their defaults.

    `rows`: of the result; `violations`: the rows among them that violate it; `repeated`: the number of different values that
    several rows share; `least`, `greatest`: of a column, as text, without NaN; `newest_ms`: the newest time of a column (epoch
    ms); `before`: the rows of the last complete run, None without one.
    """

    rows: int
    violations: int = 0
    repeated: int = 0
    least: str | None = None
    greatest: str | None = None
    newest_ms: int | None = None
    before: int | None = None


class Outcome(NamedTuple):
    """The outcome of one check in one run. `violations`: rows, None for a rule of the result as a whole; `message` None: passed."""

    check: Check
    observed: str | None
    violations: int | None
    message: str | None


def check_errors(checks: object, columns: Sequence[str]) -> list[CheckError]:
    """Return every error of the checks in a document, in their order; None as `checks` has none.

    `columns`: those of the result, in lower case; empty if they are not known.
    """
    if checks is None:
        return []
    if not isinstance(checks, list):
        return [CheckError("/checks", "wrong_type", "it is not a list", f"a list of checks such as {_FORMS[NOT_NULL]}")]
    if len(checks) > MAX_CHECKS:
        return [CheckError("/checks", "too_many", f"it has {len(checks)} checks", f"at most {MAX_CHECKS} checks")]
    return [error for index, check in enumerate(checks) for error in _errors_of(f"/checks/{index}", check, columns)]


def checks_of(checks: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Return the checks of a document without `check_errors`."""
    return [_check(check) for check in checks]


def outcome_of(check: Check, measured: Measured, as_of_ms: int) -> Outcome:
    """Return the outcome of a check. `as_of_ms`: the time of the run (epoch ms)."""
    count = measured.violations
    if check.rule == NOT_NULL:
        return Outcome(check, str(count), count, f"{_of(measured)} have no value" if count else None)
    if check.rule == UNIQUE:
        message = f"{_of(measured)} share their values with another row: {measured.repeated} values are repeated"
        return Outcome(check, str(measured.repeated), count, message if count else None)
    if check.rule == RANGE:
        return _range_outcome(check, measured)
    if check.rule == VOLUME:
        return _volume_outcome(check, measured)
    return _freshness_outcome(check, measured, as_of_ms)


def message_of(outcomes: Sequence[Outcome], severity: str) -> str | None:
    """Return the messages of the failed checks of a severity, each with its number and title; None if all passed."""
    failed = [
        f"check {number}, {one.check.title}: {one.message}"
        for number, one in enumerate(outcomes, 1)
        if one.message is not None and one.check.severity == severity
    ]
    return "; ".join(failed) or None


def document_of(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as the API shows it."""
    return {
        "check": outcome.check.title,
        "severity": outcome.check.severity,
        "passed": outcome.message is None,
        "observed": outcome.observed,
        "violations": outcome.violations,
        "message": outcome.message,
    }


def _errors_of(at: str, check: object, columns: Sequence[str]) -> Iterator[CheckError]:
    rules = [rule for rule in RULES if rule in check] if isinstance(check, Mapping) else []
    if not isinstance(check, Mapping) or len(rules) != 1:
        reason = f"it has the rules {' and '.join(rules)}" if rules else "it has no rule"
        yield CheckError(at, "wrong_type", reason, f"one of {', '.join(RULES)}, such as {_FORMS[NOT_NULL]}")
        return
    [rule] = rules
    for name in sorted(set(check) - {rule, "severity"}):
        yield CheckError(f"{at}/{_escaped(name)}", "unknown_field", f"a check has no field {name!r}", "rule and severity alone")
    if check.get("severity") not in (None, *SEVERITIES):
        yield CheckError(f"{at}/severity", "wrong_type", "it is no severity", " or ".join(SEVERITIES))
    if rule == NOT_NULL:
        yield from _column_errors(f"{at}/{rule}", check[rule], columns)
    elif rule == UNIQUE:
        yield from _unique_errors(f"{at}/{rule}", check[rule], columns)
    else:
        yield from _object_errors(f"{at}/{rule}", rule, check[rule], columns)


def _unique_errors(at: str, value: object, columns: Sequence[str]) -> Iterator[CheckError]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_UNIQUE_COLUMNS:
        yield CheckError(at, "wrong_type", f"it is no list of 1 to {MAX_UNIQUE_COLUMNS} columns", _FORMS[UNIQUE])
        return
    for index, name in enumerate(value):
        yield from _column_errors(f"{at}/{index}", name, columns)
    names = [name.lower() for name in value if isinstance(name, str)]
    if len(set(names)) < len(names):
        yield CheckError(at, "wrong_type", "it has a column twice", _FORMS[UNIQUE])


def _object_errors(at: str, rule: str, value: object, columns: Sequence[str]) -> Iterator[CheckError]:
    """Yield the errors of a rule whose value is an object."""
    known = {RANGE: ("column", "min", "max"), VOLUME: ("min", "max", "change_percent"), FRESHNESS: ("column", "within")}[rule]
    if not isinstance(value, Mapping):
        yield CheckError(at, "wrong_type", "it is not an object", _FORMS[rule])
        return
    for name in sorted(set(value) - set(known)):
        yield CheckError(f"{at}/{_escaped(name)}", "unknown_field", f"{rule} has no field {name!r}", ", ".join(known))
    if "column" in known:
        yield from _column_errors(f"{at}/column", value.get("column"), columns)
    if rule == FRESHNESS:
        if duration_ms(value.get("within")) is None:
            yield CheckError(f"{at}/within", "bad_duration", "it is no duration", DURATION)
        return
    yield from _bound_errors(at, rule, value)


def _bound_errors(at: str, rule: str, value: Mapping[str, Any]) -> Iterator[CheckError]:
    bounds = {name: value[name] for name in ("min", "max", "change_percent") if value.get(name) is not None}
    if not bounds:
        yield CheckError(at, "missing_field", "it has no bound", _FORMS[rule])
    wrong = False
    for name, bound in bounds.items():
        is_valid, expected = _bound(rule, name, bound)
        if not is_valid:
            wrong = True
            yield CheckError(f"{at}/{name}", "wrong_type", f"{name} is no such bound", expected)
    if not wrong and bounds.get("min", -math.inf) > bounds.get("max", math.inf):
        yield CheckError(f"{at}/max", "wrong_type", "max is less than min", "a max of at least min")


def _bound(rule: str, name: str, bound: object) -> tuple[bool, str]:
    """Return whether a bound is valid, and what is expected."""
    number = bound if isinstance(bound, int | float) and not isinstance(bound, bool) else math.nan
    if name == "change_percent":
        return 0 < number <= MAX_PERCENT, _PERCENT
    if rule == VOLUME:
        return isinstance(number, int) and 0 <= number <= MAX_NUMBER, _COUNT
    return abs(number) <= MAX_NUMBER, _NUMBER


def _column_errors(at: str, name: object, columns: Sequence[str]) -> Iterator[CheckError]:
    if not isinstance(name, str) or _COLUMN.match(name) is None:
        yield CheckError(at, "wrong_type", "it is no name of a column", "a column of the result")
    elif columns and name.lower() not in columns:
        reason = f"the result has no column {name!r}"
        yield CheckError(at, "unknown_column", reason, "one of " + ", ".join(columns))


def _check(check: Mapping[str, Any]) -> Check:
    [rule] = [rule for rule in RULES if rule in check]
    value, severity = check[rule], check.get("severity") or ERROR
    if rule == NOT_NULL:
        return Check(rule, severity, (value,))
    if rule == UNIQUE:
        return Check(rule, severity, tuple(value))
    columns = (value["column"],) if "column" in value else ()
    bounds = (value.get("min"), value.get("max"), value.get("change_percent"))
    return Check(rule, severity, columns, *bounds, value.get("within"))


def _range_outcome(check: Check, measured: Measured) -> Outcome:
    found = None if measured.least is None else f"{measured.least} to {measured.greatest}"
    if not measured.violations:
        return Outcome(check, found, 0, None)
    values = f"the values are {found}" if found is not None else "the values are NaN"
    return Outcome(check, found, measured.violations, f"{_of(measured)} are not {_bounds(check)}: {values}")


def _volume_outcome(check: Check, measured: Measured) -> Outcome:
    rows, before = measured.rows, measured.before
    observed = str(rows) if before is None else f"{rows}, before {before}"
    problems = []
    if (check.least is not None and rows < check.least) or (check.most is not None and rows > check.most):
        problems.append(f"{_bounds(check)} are allowed")
    # From no rows there is no change in percent.
    if check.change_percent is not None and before and abs(rows - before) * 100 > check.change_percent * before:
        change, allowed = (rows - before) * 100 / before, _number(check.change_percent)
        problems.append(
            f"it changed by {change:+.1f} % from the last complete run ({before} rows), and at most {allowed} % are allowed"
        )
    return Outcome(check, observed, None, f"the result has {rows} rows: {'; '.join(problems)}" if problems else None)


def _freshness_outcome(check: Check, measured: Measured, as_of_ms: int) -> Outcome:
    newest, allowed = measured.newest_ms, duration_ms(check.within) or 0
    if newest is None:
        return Outcome(check, None, None, f"no row has a time, and one within {check.within} before the run is required")
    observed = format_instant(min(max(newest, EARLIEST_MS), LATEST_MS))
    if as_of_ms - newest <= allowed:
        return Outcome(check, observed, None, None)
    message = f"the newest time is {observed}, more than {check.within} before that of the run, {format_instant(as_of_ms)}"
    return Outcome(check, observed, None, message)


def _of(measured: Measured) -> str:
    return f"{measured.violations} of {measured.rows} rows"


def _bounds(check: Check) -> str:
    if check.least is None:
        return f"at most {_number(check.most or 0)}"
    return f"at least {_number(check.least)}" if check.most is None else f"{_number(check.least)} to {_number(check.most)}"


def _number(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


def _escaped(name: object) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")
