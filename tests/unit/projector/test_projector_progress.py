"""Progress shows only what is projected."""

from starling_projector.projection.progress import Pending, PendingProgress, Progress, add_pending, first_offset, release


def held(partition: int, offset: int, membership_end: int) -> PendingProgress:
    return PendingProgress(Progress(partition, offset * 1000, {}, 0, offset), membership_end)


def test_it_waits_until_membership_is_there() -> None:
    waiting: Pending = add_pending({}, held(3, offset=7, membership_end=100))
    shown, still = release(waiting, {3: 99})
    assert (shown, first_offset(still)) == ([], 7)
    shown, still = release(still, {3: 100})
    assert [one.offset for one in shown] == [7]
    assert first_offset(still) is None


def test_under_steady_load_the_oldest_is_not_given_up_for_newer_ones() -> None:
    waiting: Pending = {}
    for offset in range(5):
        waiting = add_pending(waiting, held(0, offset, membership_end=10 * (offset + 1)))
    shown, waiting = release(waiting, {0: 10})
    assert [one.offset for one in shown] == [0]
    shown, waiting = release(waiting, {0: 50})
    assert [one.offset for one in shown] == [4]


def test_of_several_that_are_ripe_the_newest_is_shown() -> None:
    waiting = add_pending(add_pending({}, held(0, 1, 5)), held(0, 2, 6))
    shown, still = release(waiting, {0: 6})
    assert ([one.offset for one in shown], still) == ([2], {})


def test_a_partition_waits_for_itself_only() -> None:
    waiting = add_pending(add_pending({}, held(0, 1, 5)), held(1, 2, 5))
    shown, still = release(waiting, {1: 5})
    assert [one.partition for one in shown] == [1]
    assert set(still) == {0}


def test_nothing_projected_is_offset_nought() -> None:
    shown, _ = release(add_pending({}, held(0, 1, membership_end=0)), {})
    assert [one.offset for one in shown] == [1]
