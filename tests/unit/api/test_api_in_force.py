"""The leaf nodes that every state of a partition maintains, by the partition's reports."""

import pytest

from starling_api.definitions.in_force import Running
from starling_api.ports import PartitionProgress, ReportedProgress
from starling_common.values import plan_name
from starling_segments import Known, parse_segment, stored_leaves

SEGMENT = parse_segment({"key": "a", "name": "a", "where": {"event": "Buy"}}, Known())
SET = ("w/a", 1, False)
OTHER = ("w/b", 1, False)


@pytest.mark.parametrize(
    ("goes_by", "leaves", "is_kept"),
    [(SET, 2, True), (OTHER, 2, True), (SET, 1, False), (OTHER, 1, False)],
)
def test_states_of_another_release_guarantee_no_aggregates(goes_by: tuple[str, int, bool], leaves: int, is_kept: bool) -> None:
    standing = PartitionProgress(1_000, plan_name([goes_by], leaves), whole=True)
    kept = Running("w", {"a": SEGMENT}, frozenset()).maintained(standing, ReportedProgress(1_000, {"w/a": 1}), plan_name([SET], 2))
    assert kept == (stored_leaves([SEGMENT]) if is_kept else frozenset())


def test_the_first_format_of_leaf_nodes_does_not_change_the_fingerprint() -> None:
    assert plan_name([SET], 2)[:16] == plan_name([SET], 1)
    assert len(plan_name([SET], 1)) == 16
