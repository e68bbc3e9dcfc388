"""Every record has examples, which match its schema and survive encoding and decoding."""

import json
from pathlib import Path
from typing import Any

import pytest

from starling_common.schemas import schema_directory
from starling_common.wire import Codec, UnknownSchema

RECORDS = sorted(path.stem for path in schema_directory().glob("*.avsc"))


def no_others(schema_id: int) -> str:
    raise UnknownSchema(schema_id)


def schema_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((schema_directory() / f"{name}.avsc").read_text())
    return found


def examples_of(name: str) -> list[dict[str, Any]]:
    """Bytes are written as text, one character a byte, as in Avro's own JSON encoding."""
    found = json.loads(Path(schema_directory() / "examples" / f"{name}.json").read_text())
    return [
        {field["name"]: _bytes(field["type"], example.get(field["name"])) for field in schema_of(name)["fields"]}
        for example in found
    ]


def _bytes(kind: Any, value: Any) -> Any:
    if kind == "bytes" or (isinstance(kind, list) and "bytes" in kind):
        return None if value is None else value.encode("latin-1")
    if isinstance(kind, dict) and kind.get("values") == "bytes":
        return {key: text.encode("latin-1") for key, text in value.items()}
    return value


@pytest.mark.parametrize("name", RECORDS)
def test_examples_survive_the_way_through_bytes(name: str) -> None:
    codec = Codec(name, 1, no_others)
    examples = examples_of(name)
    assert examples
    for example in examples:
        assert codec.decode(codec.encode(example)) == example


@pytest.mark.parametrize("name", RECORDS)
def test_examples_name_no_field_that_is_not_there(name: str) -> None:
    fields = {field["name"] for field in schema_of(name)["fields"]}
    for example in json.loads((schema_directory() / "examples" / f"{name}.json").read_text()):
        assert example.keys() <= fields


@pytest.mark.parametrize("name", RECORDS)
def test_between_them_the_examples_fill_every_field(name: str) -> None:
    empty: tuple[Any, ...] = (None, "", [], {})
    filled = {key for example in examples_of(name) for key, value in example.items() if value not in empty}
    assert {field["name"] for field in schema_of(name)["fields"]} - filled == set()


@pytest.mark.parametrize("name", RECORDS)
def test_every_field_has_a_description(name: str) -> None:
    schema = schema_of(name)
    assert schema["doc"]
    assert [field["name"] for field in schema["fields"] if not field.get("doc")] == []
