"""Bytes <-> values: the only package that imports an Avro library."""

from starling_common.wire.basics import long_bytes
from starling_common.wire.codec import Codec, DecodeError, Record, UnknownSchema, schema_text, writer_id
from starling_common.wire.compiled import FieldReader, record_parts
from starling_common.wire.received import Receipt, ReceivedEncoder, ReceivedItem, encode_receipt
from starling_common.wire.registry import Registry, RegistryUnavailable, SchemaMissing

__all__ = [
    "Codec",
    "DecodeError",
    "FieldReader",
    "Receipt",
    "ReceivedEncoder",
    "ReceivedItem",
    "Record",
    "Registry",
    "RegistryUnavailable",
    "SchemaMissing",
    "UnknownSchema",
    "encode_receipt",
    "long_bytes",
    "record_parts",
    "schema_text",
    "writer_id",
]
