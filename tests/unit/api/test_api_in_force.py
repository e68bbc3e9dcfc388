"""What all states of a partition keep, by what the partition says of itself."""

import pytest

from starling_api.definitions.in_force import Running
from starling_api.ports import Reported, Standing
from starling_common.values import plan_name
from starling_segments import Known, parse_segment, stored_leaves

SEGMENT = parse_segment({"key": "a", "name": "a", "where": {"event": "Buy"}}, Known())
SET = ("w/a", 1, False)
OTHER = ("w/b", 1, False)


@pytest.mark.parametrize(
    ("goes_by", "leaves", "is_kept"),
    [(SET, 2, True), (OTHER, 2, True), (SET, 1, False), (OTHER, 1, False)],
)
def test_what_another_release_compiled_is_not_known_to_be_kept(goes_by: tuple[str, int, bool], leaves: int, is_kept: bool) -> None:
    standing = Standing(1_000, plan_name([goes_by], leaves), whole=True)
    kept = Running("w", {"a": SEGMENT}, frozenset()).kept(standing, Reported(1_000, {"w/a": 1}), plan_name([SET], 2))
    assert kept == (stored_leaves([SEGMENT]) if is_kept else frozenset())


def test_the_first_leaves_leave_no_mark_on_the_name() -> None:
    assert plan_name([SET], 2)[:16] == plan_name([SET], 1)
    assert len(plan_name([SET], 1)) == 16
