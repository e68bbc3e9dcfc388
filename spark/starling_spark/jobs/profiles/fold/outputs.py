"""Pure core: computed values -> records, and records -> packs of records in one row.

Spark reads the output of a stateful processor row by row, and holds all rows of a key as dictionaries: 1 KB and 10 us each.
Arrow streams of a few thousand records pass as bytes.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from starling_common.values import deterministic_id, split_key
from starling_common.wire import Codec, record_parts
from starling_spark.jobs.profiles.fold.bucket import Computed

_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp_ms", pa.int64()),
        ("correlation_id", pa.string()),
        ("refused", pa.string()),
    ]
)
"""`sinks.OUTPUT` in Arrow."""
RECORDS_PER_PACK: Final = 5_000


def computed_encoder(codec: Codec, epoch: int) -> Callable[[Computed], bytes]:
    """Return a function from a value to the bytes of an `AggregateComputed` record of an epoch.

    A repetition after a crash has the same `event_id` and sequence.
    """
    parts = record_parts(
        codec,
        ("received_at",),
        ("workspace", "user_id"),
        ("event_id",),
        ("trait_key", "trait_version"),
        ("value", "as_of", "correlation_id"),
        ("epoch", "sequence"),
    )
    received, user_part, identity, trait_part, value_part, order_part = parts
    header = codec.header
    # The values of one user are adjacent, and the traits are few.
    user_of = lru_cache(maxsize=16)(lambda user: (*split_key(user.encode()), user_part(*split_key(user.encode()))))
    trait_of = lru_cache(maxsize=4096)(trait_part)
    # All values of a bucket's micro-batch have the same sequence.
    order_of = lru_cache(maxsize=16)(order_part)

    def encode(computed: Computed) -> bytes:
        trait, value, as_of = computed.trait, computed.value, computed.as_of
        workspace, user_id, encoded_user = user_of(computed.user)
        event_id = deterministic_id(workspace, user_id, trait.key, trait.version, value, as_of)
        return b"".join(
            (
                header,
                received(computed.received_at),
                encoded_user,
                identity(event_id),
                trait_of(trait.key, trait.version),
                value_part(value, as_of, computed.correlation_id),
                order_of(epoch, computed.sequence),
            )
        )

    return encode


class OutputBatches:
    """Collects records; each is a tuple of the fields of `sinks.OUTPUT`."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._packs: list[bytes] = []

    def add(self, row: tuple[Any, ...]) -> None:
        """Add a record."""
        self._rows.append(row)
        if len(self._rows) >= RECORDS_PER_PACK:
            self._pack()

    def packed(self) -> list[bytes]:
        """Return the packs of all records, in order."""
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
    """Yield the records of all packs."""
    for batch in batches:
        for pack in batch.column(0).to_pylist():
            with pa.ipc.open_stream(pack) as stream:
                yield from stream
