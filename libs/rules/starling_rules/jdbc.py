"""Pure core: the JDBC source of an import: a table or a query of a database."""

import re
from typing import Final, Literal, NamedTuple

import msgspec

DEFAULT_FETCH_SIZE: Final = 1_000
DEFAULT_PARTITIONS: Final = 4
FETCH_SIZES: Final = (1, 100_000)
PARTITIONS: Final = (2, 64)
"""The lowest and the highest value."""
_ADDRESS: Final = re.compile(
    r"jdbc:(?P<driver>[a-z][a-z0-9]*)://(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?/[A-Za-z0-9_.$-]+(\?(?P<options>.*))?"
)
_OPTIONS: Final = ("sslmode", "sslrootcert")
"""Those that load no class and name no other host, as `socketFactory` does."""
_OPTION: Final = re.compile(r"[A-Za-z0-9_./-]+")
_PART: Final = re.compile(r"[^\s\0\"'`;.]+(?: [^\s\0\"'`;.]+)*")


class JdbcSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A table or a query. `password`: encrypted wherever it is stored.

    `mode`: `full` reads all rows and sends those that are new or changed; `cursor` reads the rows whose `cursor_column` is greater
    than the greatest one of the last run. `deletions`: whether traits of rows that are gone are set to null: `guarded` does so
    unless more rows are gone than are left. `fetch_size`: rows a round trip. `partition_column`: a whole number, by whose ranges
    `partitions` tasks read at the same time.
    """

    user: str
    password: str | None = None
    table: str | None = None
    query: str | None = None
    mode: Literal["full", "cursor"] = "full"
    cursor_column: str | None = None
    fetch_size: int = DEFAULT_FETCH_SIZE
    partition_column: str | None = None
    partitions: int = DEFAULT_PARTITIONS
    deletions: Literal["guarded", "any", "none"] = "guarded"

    def columns(self) -> tuple[str, ...]:
        """Return the columns that the source itself needs."""
        return tuple(column for column in (self.cursor_column, self.partition_column) if column is not None)


def password_place(workspace: str, key: str) -> tuple[str, str, str]:
    """Return the place of the password of an import, as `starling_common.security.sealing.Place` has it."""
    return workspace, f"import/{key}", "jdbc/password"


class JdbcAddress(NamedTuple):
    """The driver of a URL, such as `postgresql`, and the host that it connects to."""

    driver: str
    host: str


class SourceError(NamedTuple):
    """A validation error. `field`: of the import, such as `jdbc/table`."""

    field: str
    code: str
    reason: str
    cure: str


def jdbc_address(url: str) -> JdbcAddress | SourceError:
    """Return the driver and the host. The error does not contain the URL, which may contain a password by mistake."""
    found = _ADDRESS.fullmatch(url)
    if found is None:
        reason = "it is no JDBC URL with one host and one database, and without user and password"
        return SourceError("uri", "bad_uri", reason, "write jdbc:postgresql://host:5432/database, and jdbc/user and jdbc/password")
    for option in filter(None, (found["options"] or "").split("&")):
        name, _, value = option.partition("=")
        if name not in _OPTIONS or _OPTION.fullmatch(value) is None:
            return SourceError(
                "uri", "bad_uri", "an option of the JDBC URL is not permitted", f"leave only {' and '.join(_OPTIONS)}, with a value"
            )
    return JdbcAddress(found["driver"], found["host"].strip("[]"))


def source_errors(source: JdbcSource) -> list[SourceError]:
    """Return every error of a source, in the order of its fields."""
    checks = (
        (source.user != "", "user", "missing_user", "it is empty", "give the user of the database, with the right to read only"),
        (
            (source.table is None) != (source.query is None),
            "table",
            "bad_source",
            "there is not one of table and query",
            "give one",
        ),
        (
            source.table is None or all(_PART.fullmatch(part) for part in source.table.split(".")),
            "table",
            "bad_table",
            "it is no name of a table",
            "write it as the database stores it, without quotes, such as customers or crm.customers",
        ),
        (
            source.query is None or _is_query(source.query),
            "query",
            "bad_query",
            "it is not one SELECT",
            "begin with SELECT or WITH, and remove every semicolon",
        ),
        (
            (source.mode == "cursor") == (source.cursor_column is not None),
            "cursor_column",
            "bad_cursor",
            "the mode cursor has a cursor_column, and the mode full has none",
            "correct one of them",
        ),
        (_within(source.fetch_size, FETCH_SIZES), "fetch_size", "bad_fetch_size", *_range(FETCH_SIZES)),
        (_within(source.partitions, PARTITIONS), "partitions", "bad_partitions", *_range(PARTITIONS)),
        (source.cursor_column != "", "cursor_column", "missing_column", "it is empty", "name a column, or remove the field"),
        (source.partition_column != "", "partition_column", "missing_column", "it is empty", "name a column, or remove the field"),
    )
    return [SourceError(f"jdbc/{field}", code, reason, cure) for is_valid, field, code, reason, cure in checks if not is_valid]


def _is_query(query: str) -> bool:
    words = query.split(None, 1)
    return len(words) > 1 and words[0].upper() in {"SELECT", "WITH"} and ";" not in query


def _within(number: int, bounds: tuple[int, int]) -> bool:
    return bounds[0] <= number <= bounds[1]


def _range(bounds: tuple[int, int]) -> tuple[str, str]:
    return f"it is not between {bounds[0]} and {bounds[1]}", "give a number in this range"
