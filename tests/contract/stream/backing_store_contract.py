"""The contract of every backing store. Each adapter, and the fake, inherits these tests."""

import uuid
from collections.abc import Iterable
from typing import TypeVar

import pytest

from starling_stream.model.backing_store import BackingStore, Checkpoint, PartitionCopy, StageLayout, StateWrite, bucket_of
from starling_stream.model.rows import due_bytes, row_of

T = TypeVar("T")


def row(version: int, payload: bytes = b"p") -> bytes:
    return row_of(version, due_bytes(None) + payload)


def _all(pages: Iterable[Iterable[T]]) -> list[T]:
    return [item for page in pages for item in page]


class BackingStoreContract:
    @pytest.fixture
    def copy(self) -> PartitionCopy:
        return PartitionCopy(uuid.uuid4().hex, 3, 0)

    def _dues(self, backing_store: BackingStore, copy: PartitionCopy, first: int, last: int) -> set[bytes]:
        return {key for bucket in range(backing_store.buckets) for key in _all(backing_store.due(copy, bucket, (first, last)))}

    def test_written_rows_are_read_by_key_and_by_bucket(self, backing_store: BackingStore, copy: PartitionCopy) -> None:
        keys = [b"default/%d" % number for number in range(300)]
        backing_store.write(copy, [StateWrite(key, row(1, key), 10, None, None) for key in keys])
        assert backing_store.rows(copy, [*keys, b"default/absent"]) == {key: row(1, key) for key in keys}
        for bucket in range(backing_store.buckets):
            own = {key: row(1, key) for key in keys if bucket_of(key, backing_store.buckets) == bucket}
            assert dict(_all(backing_store.scan(copy, bucket))) == own

    def test_an_old_writer_never_overwrites_a_newer_value_nor_undoes_a_deletion(
        self, backing_store: BackingStore, copy: PartitionCopy
    ) -> None:
        backing_store.write(copy, [StateWrite(b"a", row(5), 500, None, None), StateWrite(b"b", row_of(6, b""), 600, None, None)])
        backing_store.write(copy, [StateWrite(b"a", row(4), 499, None, None), StateWrite(b"b", row(5), 599, None, None)])
        assert backing_store.rows(copy, [b"a", b"b"]) == {b"a": row(5), b"b": row_of(6, b"")}

    def test_the_offset_decides_and_not_the_row(self, backing_store: BackingStore, copy: PartitionCopy) -> None:
        backing_store.write(copy, [StateWrite(b"a", row(5), 500, None, None)])
        backing_store.write(copy, [StateWrite(b"a", row(9), 499, None, None)])
        assert backing_store.rows(copy, [b"a"]) == {b"a": row(5)}

    def test_of_two_rows_of_one_offset_the_newer_version_stays(self, backing_store: BackingStore, copy: PartitionCopy) -> None:
        backing_store.write(copy, [StateWrite(b"a", row(5, b"a"), 500, None, None)])
        backing_store.write(copy, [StateWrite(b"a", row(4, b"z"), 500, None, None)])
        assert backing_store.rows(copy, [b"a"]) == {b"a": row(5, b"a")}

    def test_a_flushed_offset_never_decreases(self, backing_store: BackingStore, copy: PartitionCopy) -> None:
        assert backing_store.checkpoint(copy.log, copy.partition) is None
        backing_store.save_checkpoint(copy, Checkpoint(0, 100, b"meta", 7))
        backing_store.save_checkpoint(copy, Checkpoint(0, 90, b"older", 5))
        assert backing_store.checkpoint(copy.log, copy.partition) == Checkpoint(0, 100, b"meta", 7)
        assert backing_store.checkpoint(copy.log, copy.partition + 1) is None

    def test_a_new_incarnation_is_empty_and_writes_to_the_old_one_have_no_effect(
        self, backing_store: BackingStore, copy: PartitionCopy
    ) -> None:
        backing_store.write(copy, [StateWrite(b"a", row(1), 10, None, None)])
        backing_store.save_checkpoint(copy, Checkpoint(0, 10, b"meta", 0))
        new = copy._replace(incarnation=1)
        backing_store.begin(new)
        backing_store.save_checkpoint(copy, Checkpoint(0, 9_999, b"zombie", 0))
        assert backing_store.checkpoint(copy.log, copy.partition) == Checkpoint(1, None, b"", 0)
        assert backing_store.rows(new, [b"a"]) == {}
        backing_store.write(new, [StateWrite(b"a", row(1), 3, None, None)])
        assert backing_store.rows(new, [b"a"]) == {b"a": row(1)}

    def test_the_due_index_finds_keys_by_their_latest_slot(self, backing_store: BackingStore, copy: PartitionCopy) -> None:
        backing_store.write(copy, [StateWrite(b"a", row(1), 10, None, 5), StateWrite(b"b", row(1), 10, None, 900)])
        backing_store.write(copy, [StateWrite(b"a", row(2), 20, 5, 7)])
        assert self._dues(backing_store, copy, 0, 6) == set()
        assert self._dues(backing_store, copy, 7, 7) == {b"a"}
        assert self._dues(backing_store, copy, -(1 << 60), 1 << 60) == {b"a", b"b"}
        backing_store.write(copy, [StateWrite(b"a", row(3), 30, 7, None)])
        assert self._dues(backing_store, copy, 0, 1000) == {b"b"}

    def test_the_first_layout_stays_frozen(self, backing_store: BackingStore) -> None:
        stage = f"s{uuid.uuid4().hex}"
        first = StageLayout(stage, 8, backing_store.buckets, {"t": "id-1"})
        assert backing_store.freeze(first) == first
        assert backing_store.freeze(StageLayout(stage, 9, 1, {"t": "id-2"})) == first
