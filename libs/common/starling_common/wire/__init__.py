"""Bytes <-> values: the only package that imports an Avro library."""

from starling_common.wire.codec import Codec, DecodeError, Record, UnknownSchema, writer_id
from starling_common.wire.registry import Registry, RegistryUnavailable, SchemaMissing

__all__ = [
    "Codec",
    "DecodeError",
    "Record",
    "Registry",
    "RegistryUnavailable",
    "SchemaMissing",
    "UnknownSchema",
    "writer_id",
]
