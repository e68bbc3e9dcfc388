"""Pure core: the schemas of the bodies that create, repeat and schedule an import."""

from typing import Final

from starling_api.http.openapi.schemas import COMPONENTS, Schema, body
from starling_rules.jdbc import FETCH_SIZES, PARTITIONS
from starling_rules.sql.schedule import MAX_CHARACTERS as MAX_SCHEDULE_CHARACTERS

_TEXT: Final[Schema] = {"type": "string", "minLength": 1}
_IMPORT: Final[Schema] = {
    "key": {"type": "string", "pattern": "^[a-z][a-z0-9_-]{0,63}$"},
    "uri": {
        "type": "string",
        "pattern": "^((file|s3a?|gs|jdbc:[a-z][a-z0-9]*)://|iceberg:)",
        "description": "File, directory, database such as jdbc:postgresql://host/database, or iceberg:namespace.table",
    },
    "format": {"enum": ["csv", "parquet", "jsonl", "jdbc", "iceberg"]},
    "kind": {"enum": ["events", "traits", "accounts", "lists", "catalog"]},
    "user_column": {"type": ["string", "null"], "description": "Column with the user ids; all kinds but catalog need it"},
    "product_column": {"type": ["string", "null"], "description": "With catalog: column with the product ids"},
    "account_column": {"type": ["string", "null"], "description": "With accounts: column with the account ids"},
    "list_key": {"type": ["string", "null"], "description": "With lists: the list to which the users are added"},
    "event": {"type": ["string", "null"], "description": "Name of all events; or give event_column"},
    "event_column": {"type": ["string", "null"], "description": "Column with the names of the events"},
    "time_column": {"type": ["string", "null"], "description": "Column with times in ISO 8601; else that of the import"},
    "id_column": {
        "type": ["string", "null"],
        "description": "Column with a unique id of the row; jdbc and iceberg need it",
    },
    "columns": {
        "type": ["object", "null"],
        "additionalProperties": {"type": "string", "pattern": r"^(properties|traits|product)\.[^.]+$"},
        "description": "Column -> field, such as properties.revenue; null: all others, by their names",
    },
    "delimiter": {"type": "string", "minLength": 1, "maxLength": 1, "description": "Delimiter of CSV"},
    "max_rejects": {
        "type": "integer",
        "minimum": 0,
        "maximum": 1_000_000,
        "description": "A file, or a task, with more ends the import as failed",
    },
    "jdbc": {"anyOf": [{"$ref": f"{COMPONENTS}JdbcSource"}, {"type": "null"}], "description": "With the format jdbc"},
    "iceberg": {"anyOf": [{"$ref": f"{COMPONENTS}IcebergSource"}, {"type": "null"}], "description": "Default: mode full"},
    "schedule": {
        "type": ["string", "null"],
        "maxLength": MAX_SCHEDULE_CHARACTERS,
        "description": "When jdbc or iceberg runs again: five fields of cron, such as 15 * * * *",
    },
    "timezone": {"type": ["string", "null"], "description": "Of the schedule, such as Europe/Berlin; else that of the workspace"},
}
_JDBC: Final[Schema] = {
    "user": {**_TEXT, "description": "User of the database, with the right to read only"},
    "password": {"type": ["string", "null"], "writeOnly": True, "description": "Stored encrypted, shown as ***"},
    "table": {"type": ["string", "null"], "description": "Table, such as crm.customers; or give query"},
    "query": {"type": ["string", "null"], "description": "One SELECT without a semicolon; or give table"},
    "mode": {"enum": ["full", "cursor"], "description": "full: all rows, of which new and changed ones are sent"},
    "cursor_column": {"type": ["string", "null"], "description": "With cursor: a number, date or time that grows with each change"},
    "fetch_size": {"type": "integer", "minimum": FETCH_SIZES[0], "maximum": FETCH_SIZES[1], "description": "Rows a round trip"},
    "partition_column": {"type": ["string", "null"], "description": "Column with whole numbers, by which tasks share the rows"},
    "partitions": {"type": "integer", "minimum": PARTITIONS[0], "maximum": PARTITIONS[1], "description": "Tasks, with that column"},
    "deletions": {
        "enum": ["guarded", "any", "none"],
        "description": "Traits of rows that are gone are set to null, or users or products removed; guarded: unless most are gone",
    },
}
_ICEBERG: Final[Schema] = {
    name: {word: value for word, value in _JDBC[name].items() if word != "description"}
    for name in ("mode", "cursor_column", "deletions")
}


def import_bodies() -> dict[str, Schema]:
    """Return the components of the bodies of imports, by name."""
    repetition: dict[str, Schema] = {
        "password": {"type": "string", "writeOnly": True, "description": "A new one"},
        "deletions": {"enum": ["any"], "description": "Of this run alone"},
    }
    schedule = {name: _IMPORT[name] for name in ("schedule", "timezone")}
    return {
        "ImportRequest": body("Files or rows to import", _IMPORT, ["key", "uri", "format", "kind"]),
        "JdbcSource": body("A table or a query of a database", _JDBC, ["user"]),
        "IcebergSource": body("How an Iceberg table is read: as JdbcSource", _ICEBERG, []),
        "ImportRepetition": body("A repetition", repetition, []),
        "ImportSchedule": body("When an import runs again", schedule, ["schedule"]),
    }
