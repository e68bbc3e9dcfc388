"""The hand-made encoding of values, compared with the driver's."""

import struct
from typing import Any

import pytest
from cassandra import cqltypes

from starling_common.cassandra.encoding import row_encoder

EVENT = cqltypes.TupleType.apply_parameters([cqltypes.UTF8Type, cqltypes.LongType, cqltypes.Int32Type])
TEXTS = cqltypes.ListType.apply_parameters([cqltypes.UTF8Type])
CHANGE = cqltypes.UserType.make_udt_class("ks", "change", ("status", "at"), (cqltypes.UTF8Type, cqltypes.LongType))
CASES: list[tuple[Any, Any]] = [
    (cqltypes.UTF8Type, ""),
    (cqltypes.UTF8Type, "ü€𐍈"),
    (cqltypes.Int32Type, -(2**31)),
    (cqltypes.LongType, 2**63 - 1),
    (cqltypes.BytesType, b"\x00\xff"),
    (cqltypes.BooleanType, True),
    (TEXTS, ["a", "ü"]),
    (TEXTS, []),
    (EVENT, ("a", 2**40, -1)),
    (EVENT, (None, 0, None)),
    (CHANGE, ("ENTERED", None)),
    (CHANGE, ("", 2**40)),
    (cqltypes.TupleType.apply_parameters([TEXTS, EVENT]), (["x"], ("y", None, 3))),
]


@pytest.mark.parametrize(("kind", "value"), CASES)
def test_a_value_has_the_bytes_of_the_driver(kind: Any, value: Any) -> None:
    assert row_encoder([kind])([value]) == [kind.serialize(value, 5)]


@pytest.mark.parametrize("kind", [EVENT, CHANGE])
def test_the_driver_encodes_no_row_of_these_types(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own encoding takes three times as long, and most rows have such a value."""
    monkeypatch.setattr(kind, "serialize", None)
    assert row_encoder([kind])([(None,) * len(kind.subtypes)]) == [b"\xff\xff\xff\xff" * len(kind.subtypes)]


def test_null_is_no_bytes() -> None:
    assert row_encoder([cqltypes.UTF8Type, EVENT])([None, None]) == [None, None]


def test_a_row_with_another_number_of_values_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        row_encoder([cqltypes.UTF8Type])(["a", "b"])


@pytest.mark.parametrize(("kind", "value"), [(cqltypes.Int32Type, 2**31), (cqltypes.LongType, "1"), (cqltypes.UTF8Type, 1)])
def test_a_value_of_another_type_is_refused(kind: Any, value: Any) -> None:
    with pytest.raises((struct.error, TypeError)):
        row_encoder([kind])([value])
