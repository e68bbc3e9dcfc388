"""Encoding and decoding of records: the only package that imports an Avro or a Protocol Buffers library."""

from starling_common.wire.basics import long_bytes, text_bytes
from starling_common.wire.codec import Codec, DecodeError, Record, UnknownSchema, schema_text, writer_id
from starling_common.wire.compiled import FieldReader, RecordReader, RecordWriter, record_parts
from starling_common.wire.ingest_pb2 import Batch, Item
from starling_common.wire.messages import (
    PROTOBUF,
    OpenBatch,
    batch_of_one,
    batch_write_key,
    item_json,
    item_write_key,
    open_batch,
    read_item,
)
from starling_common.wire.received import Receipt, ReceivedEncoder, ReceivedItem, encode_receipt
from starling_common.wire.registry import Registry, RegistryUnavailable, SchemaMissing

__all__ = [
    "PROTOBUF",
    "Batch",
    "Codec",
    "DecodeError",
    "FieldReader",
    "Item",
    "OpenBatch",
    "Receipt",
    "ReceivedEncoder",
    "ReceivedItem",
    "Record",
    "RecordReader",
    "RecordWriter",
    "Registry",
    "RegistryUnavailable",
    "SchemaMissing",
    "UnknownSchema",
    "batch_of_one",
    "batch_write_key",
    "encode_receipt",
    "item_json",
    "item_write_key",
    "long_bytes",
    "open_batch",
    "read_item",
    "record_parts",
    "schema_text",
    "text_bytes",
    "writer_id",
]
