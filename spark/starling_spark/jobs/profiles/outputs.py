"""Pure core: computed values to records, and records to publish many in one value.

Spark takes what a stateful processor gives row by row, and holds all rows of a key as dictionaries at once: 1 KB and
10 us each. Packed into Arrow streams of a few thousand they are bytes, and no row is touched again.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from starling_common.values import deterministic_id, split_key
from starling_common.wire import Codec, record_parts
from starling_spark.jobs.profiles.folding import Computed

_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp_ms", pa.int64()),
        ("correlation_id", pa.string()),
    ]
)
"""`sinks.OUTPUT` in Arrow."""
RECORDS_A_PACK: Final = 5_000


def computed_encoder(codec: Codec) -> Callable[[Computed], bytes]:
    """To the bytes of an `AggregateComputed` record. Told twice (after a crash), it has the same `event_id`."""
    parts = record_parts(
        codec,
        ("received_at",),
        ("workspace", "user_id"),
        ("event_id",),
        ("trait_key", "trait_version"),
        ("value", "as_of", "correlation_id"),
    )
    received, whose, identity, which, what = parts
    header = codec.header
    # All values of one person come one after the other, and the traits are few.
    whose_of = lru_cache(maxsize=16)(lambda user: (*split_key(user.encode()), whose(*split_key(user.encode()))))
    which_of = lru_cache(maxsize=4096)(which)

    def encode(computed: Computed) -> bytes:
        trait, value, as_of = computed.trait, computed.value, computed.as_of
        workspace, user_id, person = whose_of(computed.user)
        event_id = deterministic_id(workspace, user_id, trait.key, trait.version, value, as_of)
        return b"".join(
            (
                header,
                received(computed.received_at),
                person,
                identity(event_id),
                which_of(trait.key, trait.version),
                what(value, as_of, computed.correlation_id),
            )
        )

    return encode


class OutputBatches:
    """Gathers records; each is a tuple of the fields of `sinks.OUTPUT`."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._packs: list[bytes] = []

    def add(self, row: tuple[Any, ...]) -> None:
        """One record."""
        self._rows.append(row)
        if len(self._rows) >= RECORDS_A_PACK:
            self._pack()

    def packed(self) -> list[bytes]:
        """All of them, in order."""
        if self._rows:
            self._pack()
        return self._packs

    def _pack(self) -> None:
        columns = [pa.array(column, field.type) for column, field in zip(zip(*self._rows, strict=True), _SCHEMA, strict=True)]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, _SCHEMA) as stream:
            stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
        self._packs.append(sink.getvalue().to_pybytes())
        self._rows.clear()


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The records of all packs."""
    for batch in batches:
        for pack in batch.column(0).to_pylist():
            with pa.ipc.open_stream(pack) as stream:
                yield from stream
