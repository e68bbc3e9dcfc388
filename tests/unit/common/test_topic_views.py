"""A topic folded into one value."""

from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import Message

from starling_common.topic_views import TopicFold
from starling_common.topics import PROGRESS, load_catalogue
from starling_common.wire import Codec, DecodeError, Record

CODEC = Codec(load_catalogue().topics[PROGRESS].schema, 1, lambda _id: "")


def message(partition: int) -> Message:
    record = {"recorded_at": 1, "partition": partition, "stream_time": 2, "definitions": {}}
    return cast("Message", SimpleNamespace(value=lambda: CODEC.encode(record), offset=lambda: 0))


UNDECODABLE = cast("Message", SimpleNamespace(value=lambda: b"{}", offset=lambda: 7))


def fold_of(*, skips_undecodable: bool) -> TopicFold[list[int]]:
    def fold(partitions: list[int], record: Record) -> list[int]:
        return [*partitions, record["partition"]]

    return TopicFold("127.0.0.1:1", PROGRESS, CODEC, [], fold, skips_undecodable=skips_undecodable)


def test_an_undecodable_record_is_skipped_where_the_fold_allows_it() -> None:
    partitions = fold_of(skips_undecodable=True)
    for each in (message(1), UNDECODABLE, message(2)):
        partitions._apply(each)
    assert partitions.value() == [1, 2]


def test_an_undecodable_record_stops_the_view_otherwise() -> None:
    partitions = fold_of(skips_undecodable=False)
    partitions._apply(message(1))
    with pytest.raises(DecodeError):
        partitions._apply(UNDECODABLE)
    assert partitions.value() == [1]
