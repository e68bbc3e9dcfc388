"""Which views share a query: after a first start, a restart, and every change of the views."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Column

from starling_spark.directories import LocalDirectory
from starling_spark.jobs.views.groups import Checkpoints, Group, slots_of
from starling_spark.jobs.views.view import View

ENDING = "f1-s2-l0"
MONEY, COUNT = "decimal(24,6)", "decimal(18,3)"


def no_lines(_: Mapping[str, Column]) -> Column:
    raise AssertionError("no lines are computed here")


def view(name: str, version: int = 1, *, topic: str = "events", hours: int = 6) -> View:
    return View(name, version, topic, "BehaviourEvent", hours, ("product",), ("revenue",), no_lines)


class Job:
    """Starts of the job with views, on one directory of checkpoints."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.last: tuple[Checkpoints, list[Group]]

    def start(self, *views: View, ending: str = ENDING) -> list[dict[int, tuple[str, int]]]:
        """Return the views of each query by number."""
        checkpoints = Checkpoints(LocalDirectory(self.directory), ending)
        groups = checkpoints.groups(views, lambda _: (MONEY,))
        for group in groups:
            (self.directory / group.directory).mkdir(exist_ok=True)
        self.last = checkpoints, groups
        return sorted(({number: (one.name, one.version) for number, one in group.views.items()} for group in groups), key=str)

    def publish(self) -> list[str]:
        """Publish the views of every query, and return the checkpoints that are left."""
        checkpoints, groups = self.last
        for group in groups:
            checkpoints.publish(group)
        return self.names()

    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_views_that_begin_together_share_a_query_by_topic_and_window(job: Job) -> None:
    views = (view("a"), view("b"), view("c", hours=24), view("d", topic="profiles"), view("e", topic="profiles"))
    expected: Sequence[Mapping[int, tuple[str, int]]] = [
        {0: ("a", 1), 1: ("b", 1)}, {0: ("c", 1)}, {0: ("d", 1), 1: ("e", 1)},
    ]  # fmt: skip
    assert job.start(*views) == expected
    assert job.start(*reversed(views)) == expected
    assert [name.rpartition("-f")[0] for name in job.names() if not name.startswith("together-")] == ["c-v1"]
    assert sum(name.startswith("together-") for name in job.names()) == 2


def test_a_view_alone_goes_on_with_the_checkpoint_of_a_former_release(job: Job) -> None:
    for name in (f"a-v1-{ENDING}", f"a_b-v1-{ENDING}", "refusals-events"):
        (job.directory / name).mkdir()
    assert job.start(view("a"), view("b"), view("c")) == [{0: ("a", 1)}, {0: ("b", 1), 1: ("c", 1)}]
    assert {group.directory: group.is_together for group in job.last[1]}[f"a-v1-{ENDING}"] is False
    assert job.publish() == job.names()
    assert {f"a-v1-{ENDING}", f"a_b-v1-{ENDING}", "refusals-events"} <= set(job.names())


def test_a_view_that_is_added_later_has_a_query_of_its_own(job: Job) -> None:
    job.start(view("b"), view("c"))
    assert job.start(view("a"), view("b"), view("c")) == [{0: ("a", 1)}, {0: ("b", 1), 1: ("c", 1)}]
    assert job.start(view("a"), view("b"), view("c")) == [{0: ("a", 1)}, {0: ("b", 1), 1: ("c", 1)}]
    assert len(job.publish()) == 2


def test_the_others_of_a_query_keep_their_numbers_when_one_is_removed(job: Job) -> None:
    job.start(view("a"), view("b"), view("c"))
    [together] = job.names()
    assert job.start(view("c"), view("a")) == [{0: ("a", 1), 2: ("c", 1)}]
    assert job.start(view("c")) == [{2: ("c", 1)}]
    [group] = job.last[1]
    assert (group.directory, group.is_together, group.columns, group.slots) == (together, True, (MONEY,), {2: (0,)})
    assert job.publish() == [together]


def test_a_new_version_has_a_query_of_its_own_and_the_checkpoint_goes_once_all_of_its_views_are_replaced(job: Job) -> None:
    job.start(view("a"), view("b"))
    [together] = job.publish()
    assert job.start(view("a", 2), view("b")) == [{0: ("a", 2)}, {1: ("b", 1)}]
    assert job.publish() == [f"a-v2-{ENDING}", together]
    assert job.start(view("a", 2), view("b", 2)) == [{0: ("a", 2)}, {0: ("b", 2)}]
    checkpoints, [first, second] = job.last
    checkpoints.publish(first)
    assert together in job.names()
    checkpoints.publish(second)
    assert job.names() == [f"a-v2-{ENDING}", f"b-v2-{ENDING}"]


def test_other_settings_begin_again_together(job: Job) -> None:
    job.start(view("a"))
    job.start(view("a"), view("b"))
    assert job.start(view("a"), view("b"), ending="f1-s2-l7") == [{0: ("a", 1), 1: ("b", 1)}]
    assert len(job.names()) == 3
    [left] = job.publish()
    assert left.endswith("-f1-s2-l7")


def test_a_start_that_was_killed_before_it_wrote_its_views_begins_again(job: Job) -> None:
    job.start(view("a"), view("b"))
    [together] = job.names()
    (job.directory / together / "views.json").unlink()
    assert job.start(view("a"), view("b")) == [{0: ("a", 1), 1: ("b", 1)}]
    assert job.names() == [together]


@given(st.lists(st.lists(st.sampled_from([MONEY, COUNT, "decimal(38,0)"]), max_size=5), max_size=6))
def test_views_share_columns_of_their_types_and_their_own_measures_do_not(types: list[list[str]]) -> None:
    columns, slots = slots_of(types)
    assert [[columns[slot] for slot in own] for own in slots] == types
    assert all(len(set(own)) == len(own) for own in slots)
    most = {kind: max(own.count(kind) for own in types) for own in types for kind in own}
    assert {kind: columns.count(kind) for kind in columns} == most
