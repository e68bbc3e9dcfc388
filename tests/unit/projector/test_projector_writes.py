"""The rows of a batch as writes: the newest of each key, in the order of writing, one Cassandra partition a batch."""

from starling_projector.projection.destinations import Destination
from starling_projector.projection.rows import Row
from starling_projector.projection.writes import by_partition, newest, phases

STATEMENTS = {destination: destination.name for destination in Destination}


def member(user: str, written: int, segment: str = "vip", bucket: int = 0) -> Row:
    return Row(Destination.MEMBER, ("acme", segment, bucket, user), (1_000, written), written)


def gone(user: str, written: int) -> Row:
    return Row(Destination.MEMBER_GONE, ("acme", "vip", 0, user), (), written)


def test_an_entry_and_an_exit_are_two_states_of_one_row() -> None:
    assert newest([member("ada", 1), gone("ada", 2), member("bob", 1)]) == [gone("ada", 2), member("bob", 1)]
    assert newest([gone("ada", 5), member("ada", 4)]) == [gone("ada", 5)]


def test_the_last_of_two_rows_with_one_timestamp_stays() -> None:
    again = Row(Destination.MEMBER, ("acme", "vip", 0, "ada"), (2_000, 1), 1)
    assert newest([member("ada", 1), again]) == [again]


def test_the_creation_of_a_definition_is_another_row_than_its_newest_version() -> None:
    key = ("acme", "segment", "vip")
    rows = [Row(Destination.DEFINITION_CREATED, key, (7,), 1), Row(Destination.DEFINITION, key, (1, "active", "{}", "me", 7), 1)]
    assert newest(rows) == rows


def test_a_definition_is_written_after_its_version_and_after_all_other_rows() -> None:
    version = Row(Destination.DEFINITION_VERSION, ("acme", "segment", "vip", 1, 7), ("DEFINED", "{}", "me"), 1)
    definition = Row(Destination.DEFINITION, ("acme", "segment", "vip"), (1, "active", "{}", "me", 7), 1)
    assert phases([definition, member("ada", 1), version]) == ([version], [member("ada", 1)], [definition])


def test_a_batch_stays_in_one_partition_of_one_table() -> None:
    rows = [member("ada", 1), gone("bob", 2), member("ada", 3, bucket=1), member("ada", 4, segment="new")]
    assert by_partition(rows, STATEMENTS) == [
        [("MEMBER", ("acme", "vip", 0, "ada", 1_000, 1, 1)), ("MEMBER_GONE", (2, "acme", "vip", 0, "bob"))],
        [("MEMBER", ("acme", "vip", 1, "ada", 1_000, 3, 3))],
        [("MEMBER", ("acme", "new", 0, "ada", 1_000, 4, 4))],
    ]


def test_the_definitions_of_a_kind_share_a_partition() -> None:
    rows = [Row(Destination.DEFINITION_CREATED, ("acme", "segment", key), (7,), 1) for key in ("a", "b")]
    assert [len(batch) for batch in by_partition(rows, STATEMENTS)] == [2]


def test_a_large_partition_is_written_in_batches_of_a_hundred_rows() -> None:
    batches = by_partition([member(f"user-{number}", number) for number in range(250)], STATEMENTS)
    assert [len(batch) for batch in batches] == [100, 100, 50]
