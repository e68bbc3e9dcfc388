"""The contract of the edge's `Publish` port, for the real implementation and for the fake of other tests."""

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from starling_common.headers import Headers
from starling_ingest.publishing.intake import Outgoing
from starling_ingest.publishing.publish import Publisher
from tests.conftest import Stack
from tests.integration.ingest.edge_process import headers_of, records, timestamp_ms
from tests.unit.ingest.rig import MemoryLog

HEADERS: Headers = [("correlation_id", b"c"), ("produced_by", b"ingest")]
Seen = tuple[bytes | None, bytes | None, int, dict[str, object]]


class PublishContract(ABC):
    """Subclass it for each implementation."""

    topic = "publish-contract"

    @abstractmethod
    async def publish(self, requests: list[list[Outgoing]]) -> None:
        """Publish requests one after another, each awaited. They go to the topic `self.topic`."""

    @abstractmethod
    def written(self, workspace: str) -> list[Seen]:
        """Key, value, timestamp and headers of that workspace's records of the topic, in order."""

    def test_what_is_acknowledged_is_there_in_order_and_complete(self, workspace: str) -> None:
        key = f"{workspace}/u".encode()
        requests = [[Outgoing(self.topic, key, f"{r}-{n}".encode(), 1_700_000_000_000 + n) for n in range(50)] for r in range(3)]
        asyncio.run(self.publish(requests))
        expected = [(record.key, record.value, record.timestamp_ms, dict(HEADERS)) for request in requests for record in request]
        assert self.written(workspace) == expected


class TestMemory(PublishContract):
    @pytest.fixture(autouse=True)
    def _log(self) -> None:
        self.log = MemoryLog()

    async def publish(self, requests: list[list[Outgoing]]) -> None:
        for request in requests:
            await self.log("w", request, HEADERS, 0)

    def written(self, workspace: str) -> list[Seen]:
        return [(record.key, record.value, record.timestamp_ms, dict(HEADERS)) for record in self.log.records]


class TestKafka(PublishContract):
    @pytest.fixture(autouse=True)
    def _topic(self, stack: Stack) -> Iterator[None]:
        self.brokers = stack.brokers
        self.topic = f"publish-contract-{uuid.uuid4().hex}"
        admin = AdminClient({"bootstrap.servers": self.brokers})
        for created in admin.create_topics([NewTopic(self.topic, 3, 1)]).values():
            created.result(30)
        yield
        for deleted in admin.delete_topics([self.topic]).values():
            deleted.result(30)

    async def publish(self, requests: list[list[Outgoing]]) -> None:
        publisher = Publisher(self.brokers, ack_timeout_ms=30_000, high_water_records=2500, high_water_bytes=2**24)
        for request in requests:
            await publisher.publish("w", request, HEADERS)
        assert publisher.records_in_flight == 0
        assert await publisher.close(10) == 0

    def written(self, workspace: str) -> list[Seen]:
        found = records(self.brokers, self.topic, workspace)
        return [(message.key(), message.value(), timestamp_ms(message), headers_of(message)) for message in found]
