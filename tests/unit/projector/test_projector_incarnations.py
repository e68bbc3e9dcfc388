"""The order of records over topics that were created again."""

from starling_projector.projection.incarnations import next_incarnation, ordinal


def test_existing_rows_are_older_than_those_of_a_new_topic() -> None:
    assert ordinal(0, 17) == 17, "timestamps that are stored today"
    assert ordinal(0, 10**13) < ordinal(1, 0) < ordinal(1, 1) < ordinal(2, 0)
    assert ordinal(2**19 - 1, 2**44 - 1) < 2**63


def test_another_id_begins_an_incarnation_also_one_that_was_seen_before() -> None:
    assert next_incarnation(None, "a") == 0
    assert next_incarnation((0, "a"), "a") == 0
    assert next_incarnation((0, "a"), "b") == 1
    assert next_incarnation((1, "b"), "a") == 2, "a failover and back"
