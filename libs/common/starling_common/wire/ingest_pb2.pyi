import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Item(_message.Message):
    __slots__ = ("type", "message_id", "user_id", "anonymous_id", "timestamp", "original_timestamp", "sent_at", "context", "integrations", "event", "properties", "traits", "name", "category", "group_id", "previous_id", "write_key")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    ANONYMOUS_ID_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    INTEGRATIONS_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    TRAITS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CATEGORY_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_ID_FIELD_NUMBER: _ClassVar[int]
    WRITE_KEY_FIELD_NUMBER: _ClassVar[int]
    type: str
    message_id: str
    user_id: str
    anonymous_id: str
    timestamp: _timestamp_pb2.Timestamp
    original_timestamp: _timestamp_pb2.Timestamp
    sent_at: _timestamp_pb2.Timestamp
    context: _struct_pb2.Struct
    integrations: _struct_pb2.Struct
    event: str
    properties: _struct_pb2.Struct
    traits: _struct_pb2.Struct
    name: str
    category: str
    group_id: str
    previous_id: str
    write_key: str
    def __init__(self, type: _Optional[str] = ..., message_id: _Optional[str] = ..., user_id: _Optional[str] = ..., anonymous_id: _Optional[str] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., original_timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., sent_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., context: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., integrations: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., event: _Optional[str] = ..., properties: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., traits: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., name: _Optional[str] = ..., category: _Optional[str] = ..., group_id: _Optional[str] = ..., previous_id: _Optional[str] = ..., write_key: _Optional[str] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("batch", "sent_at", "context", "integrations", "write_key")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    INTEGRATIONS_FIELD_NUMBER: _ClassVar[int]
    WRITE_KEY_FIELD_NUMBER: _ClassVar[int]
    batch: _containers.RepeatedCompositeFieldContainer[Item]
    sent_at: _timestamp_pb2.Timestamp
    context: _struct_pb2.Struct
    integrations: _struct_pb2.Struct
    write_key: str
    def __init__(self, batch: _Optional[_Iterable[_Union[Item, _Mapping]]] = ..., sent_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., context: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., integrations: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., write_key: _Optional[str] = ...) -> None: ...
