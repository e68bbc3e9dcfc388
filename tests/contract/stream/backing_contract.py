"""What every tier behind the local stores must keep to. Each adapter, and the fake, inherits these tests."""

import uuid
from collections.abc import Iterable
from typing import TypeVar

import pytest

from starling_stream.model.backing_store import Backing, Facts, Place, Standing, StateWrite, bucket_of
from starling_stream.model.rows import due_bytes, row_of

T = TypeVar("T")


def row(version: int, payload: bytes = b"p") -> bytes:
    return row_of(version, due_bytes(None) + payload)


def _all(pages: Iterable[Iterable[T]]) -> list[T]:
    return [item for page in pages for item in page]


class BackingContract:
    @pytest.fixture
    def place(self) -> Place:
        return Place(uuid.uuid4().hex, 3, 0)

    def _dues(self, backing: Backing, place: Place, first: int, last: int) -> set[bytes]:
        return {key for bucket in range(backing.buckets) for key in _all(backing.due(place, bucket, (first, last)))}

    def test_what_was_written_is_read_by_key_and_by_bucket(self, backing: Backing, place: Place) -> None:
        keys = [b"default/%d" % number for number in range(300)]
        backing.write(place, [StateWrite(key, row(1, key), 10, None, None) for key in keys])
        assert backing.rows(place, [*keys, b"default/nobody"]) == {key: row(1, key) for key in keys}
        for bucket in range(backing.buckets):
            own = {key: row(1, key) for key in keys if bucket_of(key, backing.buckets) == bucket}
            assert dict(_all(backing.scan(place, bucket))) == own

    def test_an_old_writer_never_overwrites_a_newer_value_nor_undoes_a_deletion(self, backing: Backing, place: Place) -> None:
        backing.write(place, [StateWrite(b"a", row(5), 500, None, None), StateWrite(b"b", row_of(6, b""), 600, None, None)])
        backing.write(place, [StateWrite(b"a", row(4), 499, None, None), StateWrite(b"b", row(5), 599, None, None)])
        assert backing.rows(place, [b"a", b"b"]) == {b"a": row(5), b"b": row_of(6, b"")}

    def test_it_is_the_offset_that_decides_and_not_the_row(self, backing: Backing, place: Place) -> None:
        backing.write(place, [StateWrite(b"a", row(5), 500, None, None)])
        backing.write(place, [StateWrite(b"a", row(9), 499, None, None)])
        assert backing.rows(place, [b"a"]) == {b"a": row(5)}

    def test_of_two_rows_of_one_offset_the_newer_version_stays(self, backing: Backing, place: Place) -> None:
        backing.write(place, [StateWrite(b"a", row(5, b"a"), 500, None, None)])
        backing.write(place, [StateWrite(b"a", row(4, b"z"), 500, None, None)])
        assert backing.rows(place, [b"a"]) == {b"a": row(5, b"a")}

    def test_a_floor_only_rises(self, backing: Backing, place: Place) -> None:
        assert backing.standing(place.log, place.partition) is None
        backing.move_floor(place, Standing(0, 100, b"meta", 7))
        backing.move_floor(place, Standing(0, 90, b"older", 5))
        assert backing.standing(place.log, place.partition) == Standing(0, 100, b"meta", 7)
        assert backing.standing(place.log, place.partition + 1) is None

    def test_a_new_incarnation_begins_empty_and_the_old_one_is_not_heard_any_more(self, backing: Backing, place: Place) -> None:
        backing.write(place, [StateWrite(b"a", row(1), 10, None, None)])
        backing.move_floor(place, Standing(0, 10, b"meta", 0))
        new = place._replace(incarnation=1)
        backing.begin(new)
        backing.move_floor(place, Standing(0, 9_999, b"zombie", 0))
        assert backing.standing(place.log, place.partition) == Standing(1, None, b"", 0)
        assert backing.rows(new, [b"a"]) == {}
        backing.write(new, [StateWrite(b"a", row(1), 3, None, None)])
        assert backing.rows(new, [b"a"]) == {b"a": row(1)}

    def test_the_due_index_finds_keys_by_their_latest_slot(self, backing: Backing, place: Place) -> None:
        backing.write(place, [StateWrite(b"a", row(1), 10, None, 5), StateWrite(b"b", row(1), 10, None, 900)])
        backing.write(place, [StateWrite(b"a", row(2), 20, 5, 7)])
        assert self._dues(backing, place, 0, 6) == set()
        assert self._dues(backing, place, 7, 7) == {b"a"}
        assert self._dues(backing, place, -(1 << 60), 1 << 60) == {b"a", b"b"}
        backing.write(place, [StateWrite(b"a", row(3), 30, 7, None)])
        assert self._dues(backing, place, 0, 1000) == {b"b"}

    def test_facts_are_those_of_the_first(self, backing: Backing) -> None:
        stage = f"s{uuid.uuid4().hex}"
        first = Facts(stage, 8, backing.buckets, {"t": "id-1"})
        assert backing.freeze(first) == first
        assert backing.freeze(Facts(stage, 9, 1, {"t": "id-2"})) == first
