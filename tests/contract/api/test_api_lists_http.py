"""Uploaded lists over HTTP, into the real table and the real topic."""

import json
import uuid
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from starling_common.kafka.clients import consumer_config
from starling_common.kafka.topics import load_catalogue
from starling_common.wire import Registry
from tests.conftest import Stack
from tests.contract.api.answers import faults, is_problem, pages, published
from tests.contract.api.conftest import Client
from tests.integration.projector.feed import Log

PARTITIONS = load_catalogue().profile_partitions


def on_list(client: Client, key: str = "vips", limit: int = 1000) -> list[str]:
    return sorted(item["user_id"] for item in pages(client, f"/v1/lists/{key}/members", limit))


def read_records(stack: Stack, workspace: str, topic: str = "lists.membership") -> list[tuple[int, bytes, dict[str, Any]]]:
    """Return (partition, key, record) of every record of a workspace in a topic."""
    codec = Registry(stack.registry_url).codec(topic, load_catalogue().topics[topic].schema)
    consumer = Consumer(consumer_config(stack.brokers, f"test-{uuid.uuid4().hex}", **{"enable.partition.eof": True}))
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[tuple[int, bytes, dict[str, Any]]] = []
    ended = 0
    try:
        while ended < PARTITIONS:
            message = consumer.poll(20)
            assert message is not None
            if message.error() is not None:
                ended += 1
            elif (message.key() or b"").startswith(f"{workspace}/".encode()):
                found.append((message.partition() or 0, message.key() or b"", codec.decode(message.value() or b"")))
    finally:
        consumer.close()
    return found


def test_the_life_of_a_list(client: Client, stack: Stack) -> None:
    assert is_problem(client.call("PUT", "/v1/lists/vips", {}, role="viewer"), 403, "forbidden")
    made = client.call("PUT", "/v1/lists/vips", role="marketer")
    assert (made.status_code, made.json()["name"], made.json()["status"]) == (201, "vips", "active")
    assert made.headers["etag"] == f'"{made.json()["revision"]}"'
    named = client.call("PUT", "/v1/lists/vips", {"name": "VIPs of the year"}, If_Match=made.headers["etag"])
    assert (named.status_code, named.json()["version"], named.json()["name"]) == (200, 1, "VIPs of the year")
    assert client.call("GET", "/v1/lists/vips", role="viewer").json()["name"] == "VIPs of the year"
    assert [one["key"] for one in client.call("GET", "/v1/lists", role="viewer").json()["items"]] == ["vips"]
    assert faults(client.call("PUT", "/v1/lists/vips", {"colour": "red", "name": 1})) == {
        ("/colour", "unknown_field"),
        ("/name", "wrong_type"),
    }
    client.call("PUT", "/v1/lists/vips/members", {"users": ["ada", "bob"]})
    assert client.call("DELETE", "/v1/lists/vips").status_code == 204
    assert client.call("DELETE", "/v1/lists/vips").status_code == 204
    assert client.call("GET", "/v1/lists/vips").json()["status"] == "archived"
    for method in ("GET", "PUT", "POST", "DELETE"):
        body = None if method == "GET" else {"users": ["ada"]}
        assert is_problem(client.call(method, "/v1/lists/vips/members", body), 409, "archived")
        assert is_problem(client.call(method, "/v1/lists/unknown/members", body), 404, "unknown_list")
    assert is_problem(client.call("PUT", "/v1/lists/vips", {}), 409, "archived")
    assert [one["action"] for one in published(stack, "lists.definitions", client.workspace)] == ["DEFINED", "REVISED", "ARCHIVED"]
    assert {record["user_id"]: record["on_list"] for _, _, record in read_records(stack, client.workspace)} == {
        "ada": False,
        "bob": False,
    }


def test_members_are_replaced_added_and_removed(client: Client, another: Client, stack: Stack) -> None:
    for one in (client, another):
        one.call("PUT", "/v1/lists/vips", {})
    users = [f"user/{number} ü" for number in range(40)]
    sent = client.call("PUT", "/v1/lists/vips/members", {"users": users}, role="marketer", X_Correlation_Id="up-1")
    assert (sent.status_code, sent.json()) == (200, {"key": "vips", "users": 40})
    for limit in (7, 1000):
        assert on_list(client, limit=limit) == sorted(users)
    assert client.call("POST", "/v1/lists/vips/members", b'eve\r\n"a,b"\r\n', content_type="text/csv").json()["users"] == 2
    assert client.call("DELETE", "/v1/lists/vips/members", {"users": [users[0], "unknown"]}).status_code == 200
    assert on_list(client) == sorted([*users[1:], "eve", "a,b"])
    client.call("PUT", "/v1/lists/vips/members", "\n".join(users[:3]).encode(), content_type="text/csv; charset=utf-8")
    assert on_list(client) == sorted(users[:3])
    assert on_list(another) == []
    records = read_records(stack, client.workspace)
    last = {record["user_id"]: record["on_list"] for _, _, record in records}
    assert {user for user, is_on in last.items() if is_on} == set(users[:3])
    assert last.keys() == {*users, "eve", "a,b", "unknown"}
    assert records[0][2]["list_key"] == "vips"
    assert "up-1" in {record["correlation_id"] for _, _, record in records}
    assert all(key == f"{client.workspace}/{record['user_id']}/vips".encode() for _, key, record in records)


def test_a_record_is_in_the_partition_of_the_users_events(client: Client, stack: Stack) -> None:
    log = Log(stack.brokers, Registry(stack.registry_url), client.workspace)
    users = [f"user-{number}" for number in range(30)]
    for user in users:
        log.profile(user, {})
    client.call("PUT", "/v1/lists/vips", {})
    client.call("PUT", "/v1/lists/vips/members", {"users": users})
    there = {record["user_id"]: partition for partition, _, record in read_records(stack, client.workspace, "events.profile")}
    here = {record["user_id"]: partition for partition, _, record in read_records(stack, client.workspace)}
    assert here == there


def test_invalid_uploads_have_no_effect(client: Client) -> None:
    client.call("PUT", "/v1/lists/vips", {})
    client.call("PUT", "/v1/lists/vips/members", {"users": ["ada"]})
    assert faults(client.call("PUT", "/v1/lists/vips/members", {"users": ["bob", 1, ""]})) == {
        ("/users/1", "wrong_type"),
        ("/users/2", "wrong_type"),
    }
    assert is_problem(client.call("PUT", "/v1/lists/vips/members", b"{"), 400, "not_json")
    assert is_problem(client.call("PUT", "/v1/lists/vips/members", b"\xff", content_type="text/csv"), 400, "not_csv")
    many = json.dumps({"users": ["x"] * 1_000_001}).encode()
    assert is_problem(client.call("PUT", "/v1/lists/vips/members", many), 413, "too_large")
    assert on_list(client) == ["ada"]


def test_an_upload_is_applied_once_for_one_idempotency_key(client: Client) -> None:
    client.call("PUT", "/v1/lists/vips", {})
    first = client.call("POST", "/v1/lists/vips/members", {"users": ["ada"]}, Idempotency_Key="k")
    client.call("DELETE", "/v1/lists/vips/members", {"users": ["ada"]})
    again = client.call("POST", "/v1/lists/vips/members", {"users": ["ada"]}, Idempotency_Key="k")
    assert again.content == first.content
    assert on_list(client) == []
    other = client.call("POST", "/v1/lists/vips/members", {"users": ["bob"]}, Idempotency_Key="k")
    assert is_problem(other, 422, "idempotency_key_reused")


def test_a_list_is_deleted_once_for_one_idempotency_key(client: Client) -> None:
    for key in ("vips", "press"):
        client.call("PUT", f"/v1/lists/{key}", {})
    for _ in range(2):
        assert client.call("DELETE", "/v1/lists/vips", Idempotency_Key="drop").status_code == 204
    assert is_problem(client.call("DELETE", "/v1/lists/press", Idempotency_Key="drop"), 422, "idempotency_key_reused")
    assert client.call("GET", "/v1/lists/press").json()["status"] == "active"


def test_a_large_upload_is_applied_in_chunks(client: Client) -> None:
    client.call("PUT", "/v1/lists/vips", {})
    users = [f"user-{number}" for number in range(12_000)]
    assert client.call("PUT", "/v1/lists/vips/members", {"users": users}).json()["users"] == 12_000
    assert len(on_list(client)) == 12_000
    client.call("PUT", "/v1/lists/vips/members", {"users": users[:5]})
    assert on_list(client) == sorted(users[:5])
