"""Values of JSON objects with their types, as Spark's VARIANT: paths and types as columns."""

import re
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, functions

_PLAIN: Final = re.compile(r"[^.\[\]'\"?*\s]+")
_QUOTED: Final = re.compile(r"[^'?]+")
_POSITION: Final = re.compile(r"[0-9]{1,9}")
_DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_INSTANT: Final = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?([.,][0-9]{1,9})?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?$"
)
_FIRST_MS: Final = -62_135_510_400_000
_LAST_MS: Final = 253_402_128_000_000
"""2 January 0001 and 30 December 9999, UTC: other instants are missing values."""


def is_native(path: str) -> bool:
    """Return whether Spark has an expression for the path; not for `*`, which collects the values of a list."""
    return all(map(_is_native_part, path.split(".")))


def _is_native_part(part: str) -> bool:
    if _PLAIN.fullmatch(part):
        return True
    return part == part.strip() and part != "*" and _QUOTED.fullmatch(part) is not None


class Value:
    """The value at a native path of a JSON object; `json` is a column with a VARIANT. A null is a missing value."""

    def __init__(self, json: Column, path: str) -> None:
        found = _at(json, path.split("."))
        self._found = functions.when(~functions.is_variant_null(found), found)
        self._type = functions.coalesce(functions.schema_of_variant(self._found), functions.lit("VOID"))

    @property
    def exists(self) -> Column:
        """Whether there is a value."""
        return self._type != "VOID"

    @property
    def text(self) -> Column:
        """The text; null for another type."""
        return functions.when(self._type == "STRING", functions.try_variant_get(self._found, "$", "string"))

    @property
    def flag(self) -> Column:
        """The boolean; null for another type."""
        return functions.when(self._type == "BOOLEAN", functions.try_variant_get(self._found, "$", "boolean"))

    @property
    def number(self) -> Column:
        """The number as a double; null for another type."""
        return functions.when(self.is_number, functions.try_variant_get(self._found, "$", "double"))

    @property
    def is_number(self) -> Column:
        """Whether the value is a number."""
        return self._type.rlike("^(TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL.*)$")

    @property
    def is_list(self) -> Column:
        """Whether the value is a list."""
        return self._type.startswith("ARRAY")

    @property
    def is_object(self) -> Column:
        """Whether the value is an object."""
        return self._type.startswith("OBJECT")

    @property
    def json(self) -> Column:
        """The value as JSON text, with the fields of objects in order; null without a value."""
        return functions.when(self.exists, functions.to_json(self._found))

    @property
    def key(self) -> Column:
        """A text that is equal for equal values only: `1` and `1.0` are equal, and `1`, `"1"` and `true` differ."""
        number = self.number
        is_whole = (functions.floor(number) == number) & (functions.abs(number) < 2.0**53)
        whole = functions.when(is_whole, number.cast("bigint").cast("string"))
        digits = functions.when(self._type.rlike("^(BIGINT|DECIMAL\\([0-9]+,0\\))$"), self.json)
        amount = functions.coalesce(whole, digits, number.cast("string"))
        return functions.when(self.is_number, amount).otherwise(self.json)

    def instant_ms(self, zone: str) -> Column:
        """The instant of an ISO 8601 text or of epoch ms, else null; a bare date is the start of that day in `zone`."""
        text = self.text
        part = [functions.regexp_extract(text, _INSTANT, number) for number in range(6)]
        seconds = functions.when(part[3] == "", ":00").otherwise(part[3])
        fraction = functions.when(part[3] == "", "").otherwise(functions.translate(part[4], ",", "."))
        offset = functions.when(part[5] == "", f" {zone}").otherwise(functions.upper(part[5]))
        # A fraction needs seconds.
        is_instant = text.rlike(_INSTANT) & ((part[4] == "") | (part[3] != ""))
        written = functions.when(is_instant, functions.concat(part[1], functions.lit(" "), part[2], seconds, fraction, offset))
        day = functions.when(text.rlike(_DATE), functions.concat(text, functions.lit(f" 00:00:00 {zone}")))
        read = functions.unix_millis(functions.coalesce(written, day).try_cast("timestamp"))
        number = self.number
        found = functions.coalesce(read, functions.when(number.between(_FIRST_MS, _LAST_MS), functions.floor(number)))
        return functions.when(found.between(_FIRST_MS, _LAST_MS), found)


def _at(json: Column, parts: Sequence[str]) -> Column:
    for part in parts:
        name = functions.try_variant_get(json, f"$.{part}" if _PLAIN.fullmatch(part) else f"$['{part}']", "variant")
        is_position = _POSITION.fullmatch(part) is not None
        json = functions.coalesce(functions.try_variant_get(json, f"$[{int(part)}]", "variant"), name) if is_position else name
    return json
