"""Deterministic ids are valid UUIDs of RFC 9562."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from starling_common.values import _NAMESPACE, deterministic_id


@given(st.lists(st.text() | st.integers(), max_size=4))
def test_a_deterministic_id_is_the_librarys_version_5(parts: list[object]) -> None:
    expected = uuid.uuid5(_NAMESPACE, "\x1f".join(str(part) for part in parts))
    assert deterministic_id(*parts) == str(expected)
