"""Pure core: the Iceberg source of an import: a table of the catalog that the job is configured with."""

import re
from typing import Final, Literal

import msgspec

from starling_rules.jdbc import SourceError

_SCHEME: Final = "iceberg:"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")


class IcebergSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How a table is read; the fields have the meaning of those of `JdbcSource`."""

    mode: Literal["full", "cursor"] = "full"
    cursor_column: str | None = None
    deletions: Literal["guarded", "any", "none"] = "guarded"

    def columns(self) -> tuple[str, ...]:
        """Return the columns that the source itself needs."""
        return () if self.cursor_column is None else (self.cursor_column,)


def iceberg_table(uri: str) -> str | SourceError:
    """Return the table of a URI with its namespace, such as `crm.customers`."""
    name = uri.removeprefix(_SCHEME)
    if name == uri or _NAME.fullmatch(name) is None:
        return SourceError("uri", "bad_uri", "it is no Iceberg table", "write iceberg:namespace.table, of letters, digits, _ and -")
    return name


def iceberg_errors(source: IcebergSource) -> list[SourceError]:
    """Return every error of a source, in the order of its fields."""
    if (source.mode == "cursor") == bool(source.cursor_column):
        return []
    reason = "the mode cursor has a cursor_column, and the mode full has none"
    return [SourceError("iceberg/cursor_column", "bad_cursor", reason, "correct one of them")]


def is_permitted(table: str, permitted: tuple[str, ...]) -> bool:
    """Return whether a table is one of `permitted`, or in a namespace of it."""
    return any(table == one or table.startswith(f"{one}.") for one in permitted)


def is_of_lake(table: str, namespace: str) -> bool:
    """Return whether a table is one of the lake, which has rows of all workspaces. `namespace`: of the lake.

    A reprocessing has a namespace beside it, with the same name and a suffix. Some catalogs ignore case.
    """
    first = table.partition(".")[0].casefold()
    return first == namespace.casefold() or first.startswith(f"{namespace.casefold()}_")
