"""What tests ask of an answer, and of the definitions topics behind it."""

from typing import Any

import httpx
from confluent_kafka import Consumer, TopicPartition

from starling_common.kafka.clients import consumer_config
from starling_common.wire import Registry
from tests.conftest import Stack
from tests.contract.api.conftest import Client


def is_problem(answer: httpx.Response, status: int, code: str) -> bool:
    body = answer.json()
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    assert (answer.status_code, body["status"], body["code"], body["success"]) == (status, status, code, False), answer.text
    assert body["message"]
    assert "Traceback" not in answer.text
    return True


def faults(answer: httpx.Response) -> set[tuple[str, str]]:
    assert is_problem(answer, 422, "invalid_definition")
    for fault in answer.json()["errors"]:
        assert set(fault) == {"pointer", "code", "message", "expected"}
        assert all(isinstance(part, str) for part in fault.values())
        assert fault["message"]
        assert fault["expected"]
    return {(fault["pointer"], fault["code"]) for fault in answer.json()["errors"]}


def published(stack: Stack, topic: str, workspace: str) -> list[dict[str, Any]]:
    """What is in a definitions topic for a workspace, from the first record on."""
    codec = Registry(stack.registry_url).codec(topic, "DefinitionChanged")
    consumer = Consumer(consumer_config(stack.brokers, f"test-{workspace}", **{"enable.partition.eof": True}))
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    try:
        while (message := consumer.poll(20)) is not None and message.error() is None:
            if (message.key() or b"").startswith(f"{workspace}/".encode()):
                found.append(codec.decode(message.value() or b"") | {"headers": dict(message.headers() or [])})
    finally:
        consumer.close()
    return found


def pages(client: Client, path: str, limit: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = client.call("GET", f"{path}?limit={limit}{cursor}").json()
        assert len(page["items"]) <= limit
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        cursor = f"&cursor={page['next_cursor']}"
