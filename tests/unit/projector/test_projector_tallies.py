"""Counts come out the same however the log is cut and however often it is read."""

from hypothesis import given
from hypothesis import strategies as st

from starling_projector.projection.tallies import Change, Tally, TallyKey, count, keys_of

DAY_MS = 86_400_000

rows = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1), st.booleans(), st.integers(-1, 1))


def numbered(drawn: list[tuple[str, int, bool, int]]) -> list[Change]:
    return [
        Change("w", segment, partition, offset, entered, day * DAY_MS)
        for offset, (segment, partition, entered, day) in enumerate(drawn)
    ]


changes = st.lists(rows, max_size=12).map(numbered)


def project(stored: dict[TallyKey, Tally], batch: list[Change]) -> None:
    known = {key: stored.get(key, Tally()) for change in batch for key in keys_of(change)}
    stored.update(count(known, batch))


@given(changes, st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=5))
def test_reading_again_from_anywhere_before_adds_nothing(log: list[Change], turns: list[tuple[int, int]]) -> None:
    """Oracle: a plain count of the whole log. Each turn starts at or before what has been read, as a restart does."""
    stored: dict[TallyKey, Tally] = {}
    read = 0
    for back, forward in turns:
        start = min(read, back)
        project(stored, log[start : start + forward])
        read = max(read, min(start + forward, len(log)))
    project(stored, log[read:])
    for key, tally in stored.items():
        mine = [change for change in log if key in keys_of(change)]
        assert tally == Tally(sum(one.entered for one in mine), sum(not one.entered for one in mine), mine[-1].offset)
    assert set(stored) == {key for change in log for key in keys_of(change)}


def test_a_day_before_the_epoch_is_a_day_of_its_own() -> None:
    assert keys_of(Change("w", "a", 0, 0, True, -1))[1].day == -1
    assert keys_of(Change("w", "a", 0, 0, True, 0))[1].day == 0
