"""Keys and ids are what other parties compute too: they are pinned here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_common.values import deterministic_id, record_key, split_key


def test_a_key_is_workspace_slash_id_in_utf8() -> None:
    assert record_key("default", "ünï/id") == "default/ünï/id".encode()


@given(st.text(alphabet="abc-9", min_size=1), st.text(min_size=1))
def test_a_key_splits_into_what_it_was_made_of(workspace: str, identifier: str) -> None:
    try:
        key = record_key(workspace, identifier)
    except UnicodeEncodeError:  # a lone surrogate is no text that JSON can carry
        return
    assert split_key(key) == (workspace, identifier)


def test_a_key_without_a_separator_is_refused() -> None:
    with pytest.raises(ValueError, match="workspace/id"):
        split_key(b"default")


def test_deterministic_ids_never_change() -> None:
    assert deterministic_id("default", "ada", "vip", 1) == deterministic_id("default", "ada", "vip", 1)
    assert deterministic_id("default", "ada", "vip", 1) == "c551d8c1-1c2a-5b11-93d1-7ff3ca827493"


def test_parts_do_not_run_into_one_another() -> None:
    assert deterministic_id("a", "bc") != deterministic_id("ab", "c")
