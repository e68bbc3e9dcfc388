"""The setting of failpoints: a list of which one point raises, and one kills or suspends."""

import pytest

from starling_common.failpoints.raising import Raising, split


def test_a_setting_names_one_failpoint_of_each_kind() -> None:
    assert split(None) == (None, None)
    assert split("after_fold:3:stop") == (None, "after_fold:3:stop")
    assert split("raise_in_process:x;after_fold:3") == ("raise_in_process:x", "after_fold:3")
    raising = Raising.of("after_fold:3;raise_in_process:x:world")
    assert raising == Raising("process", b"x", OSError)
    assert Raising.of("after_fold:3") is None


def test_any_raises_at_the_point_that_the_data_names() -> None:
    raising = Raising.of("raise_in_any:raise-in-")
    assert raising is not None
    raising.passed("decode", b"... raise-in-process ...")
    with pytest.raises(ValueError, match="failpoint process"):
        raising.passed("process", b"... raise-in-process ...")
