import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ItemEnvelope(_message.Message):
    __slots__ = ("write_key",)
    WRITE_KEY_FIELD_NUMBER: _ClassVar[int]
    write_key: str
    def __init__(self, write_key: _Optional[str] = ...) -> None: ...

class BatchEnvelope(_message.Message):
    __slots__ = ("batch", "sent_at", "context", "integrations", "write_key")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    INTEGRATIONS_FIELD_NUMBER: _ClassVar[int]
    WRITE_KEY_FIELD_NUMBER: _ClassVar[int]
    batch: _containers.RepeatedScalarFieldContainer[bytes]
    sent_at: _timestamp_pb2.Timestamp
    context: _containers.RepeatedScalarFieldContainer[bytes]
    integrations: _containers.RepeatedScalarFieldContainer[bytes]
    write_key: str
    def __init__(self, batch: _Optional[_Iterable[bytes]] = ..., sent_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., context: _Optional[_Iterable[bytes]] = ..., integrations: _Optional[_Iterable[bytes]] = ..., write_key: _Optional[str] = ...) -> None: ...
