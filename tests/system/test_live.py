"""The whole platform on the wall clock: exits on time without events, and invalid input at every edge."""

import base64
import gzip
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from google.protobuf import json_format

from starling_cli.dead_letters import DeadLetters
from starling_common.kafka.clients import produce_and_wait, producer_config
from starling_common.values import record_key
from starling_common.wire import Item
from starling_demo.receiver import Receiver
from starling_local.stack.parts.services import WRITE_KEY
from tests.integration.stream.rig import wait_until
from tests.system.conftest import Platform
from tests.system.live import define, members, starling, track

WAIT_SECONDS = 60.0


def wait_for_members(platform: Platform, key: str, wanted: set[str]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while (found := members(platform, key)) != wanted:
        assert time.monotonic() < deadline, f"{key}: {found}, wanted {wanted}"
        time.sleep(0.1)


def test_a_user_enters_and_leaves_on_time_without_events(live: Platform) -> None:
    key = define(live, {"event": "Cart Updated", "within": "4s"})
    track(live, "ada", "Cart Updated")
    wait_for_members(live, key, {"ada"})
    wait_for_members(live, key, set())
    counted = live.api.get(f"/v1/segments/{key}/size").json()
    assert (counted["size"], counted["entered"], counted["exited"]) == (0, 1, 1)


def test_what_happened_before_a_segment_was_defined_counts(live: Platform) -> None:
    name = f"Order {uuid.uuid4().hex}"
    for user, times in (("once", 1), ("twice", 2)):
        for _ in range(times):
            track(live, user, name)
    live.settle()
    assert members(live, define(live, {"event": name, "op": "gte", "value": 2})) == {"twice"}


def upload(platform: Platform, method: str, key: str, users: list[str]) -> None:
    answer = platform.api.request(method, f"/v1/lists/{key}/members", json={"users": users})
    assert (answer.status_code, answer.json()["users"]) == (200, len(users))


@pytest.mark.long
def test_people_enter_and_leave_with_an_uploaded_list(live: Platform) -> None:
    vips = f"l{uuid.uuid4().hex[:10]}"
    assert live.api.put(f"/v1/lists/{vips}").status_code == 201
    ada, bob, eve = (f"{name}-{vips}" for name in ("ada", "bob", "eve"))
    upload(live, "PUT", vips, [ada, bob])
    live.settle()
    key = define(live, {"list": vips})
    wait_for_members(live, key, {ada, bob})
    upload(live, "POST", vips, [eve])
    wait_for_members(live, key, {ada, bob, eve})
    upload(live, "PUT", vips, [bob, eve])
    wait_for_members(live, key, {bob, eve})
    live.settle()
    feed = live.api.get("/v1/feed", params={"segment": key, "limit": 100}).json()["items"]
    changes = [(item["user_id"], item["status"], item["sequence"], item["cause"]["kind"]) for item in feed]
    assert sorted(changes) == [
        (ada, "ENTERED", 1, "DEFINITION"),
        (ada, "EXITED", 2, "LIST"),
        (bob, "ENTERED", 1, "DEFINITION"),
        (eve, "ENTERED", 1, "LIST"),
    ]
    assert live.api.get(f"/v1/lists/{vips}").json()["used_by"] == [key]
    assert (refused := live.api.delete(f"/v1/lists/{vips}")).status_code == 409, refused.text
    assert live.api.delete(f"/v1/segments/{key}").status_code == 204
    assert live.api.delete(f"/v1/lists/{vips}").status_code == 204


@pytest.mark.long
def test_what_one_of_an_account_does_moves_all_of_it(live: Platform) -> None:
    team = f"team-{uuid.uuid4().hex}"
    key = define(live, {"account": {"match": "any", "where": {"event": f"Opened {team}", "within": "8s"}}})
    users = {f"{team}-{number}" for number in range(5)}
    for user in users:
        answer = live.ingest.post("/v1/group", json={"userId": user, "groupId": team, "traits": {}})
        assert (answer.status_code, answer.json()["success"]) == (200, True)
    live.settle()
    assert members(live, key) == set()
    track(live, f"{team}-3", f"Opened {team}")
    wait_for_members(live, key, users)
    wait_for_members(live, key, set())


def test_what_became_of_a_message_moves_its_user(live: Platform) -> None:
    secret = "whsec_" + base64.b64encode(os.urandom(32)).decode()
    receiver, name = Receiver(secret, failures=1), f"Signed up {uuid.uuid4().hex}"
    new = define(live, {"event": name})
    about_new = {"property": "segment_key", "op": "eq", "value": new}
    reached = define(live, {"event": "Message Delivered", "where": about_new})
    tried = define(live, {"event": "Message *", "where": about_new, "op": "gte", "value": 2})
    webhook = {"key": f"w{uuid.uuid4().hex[:10]}", "url": receiver.url, "secret": secret, "segments": [new]}
    assert live.api.post("/v1/webhooks", json=webhook).status_code == 201
    try:
        track(live, "reachable", name)
        wait_for_members(live, reached, {"reachable"})
    finally:
        receiver.close()
        assert live.api.delete(f"/v1/webhooks/{webhook['key']}").status_code == 204
    live.settle()
    later = define(live, {"event": "Message Delivered", "where": about_new, "within": "1d"})
    assert (members(live, later), members(live, tried)) == ({"reachable"}, set())  # the attempt that failed is no outcome
    asked = live.api.post("/v1/segments/preview", json={"where": {"event": "Message *", "where": about_new, "within": "1d"}}).json()
    assert (asked["sample"], asked["exact"]) == (["reachable"], True)
    assert [event["name"] for event in events_of(live, "reachable")] == ["Message Delivered", "Message Retrying", name]


def test_traits_nested_segments_and_a_new_version(live: Platform) -> None:
    user = f"u{uuid.uuid4().hex}"
    plan = define(live, {"trait": "plan_of_test", "op": "eq", "value": user})
    nested = define(live, {"all": [{"segment": plan}, {"not": {"event": "Churned"}}]})
    assert live.ingest.post("/v1/identify", json={"userId": user, "traits": {"plan_of_test": user}}).status_code == 200
    wait_for_members(live, nested, {user})
    held = live.api.get(f"/v1/users/{user}/segments").json()["items"]
    assert {item["segment"] for item in held} >= {plan, nested}
    where = {"trait": "plan_of_test", "op": "eq", "value": "unknown"}
    assert live.api.put(f"/v1/segments/{plan}", json={"key": plan, "name": plan, "where": where}).status_code == 200
    wait_for_members(live, nested, set())
    assert live.api.delete(f"/v1/segments/{plan}").status_code == 409
    assert live.api.delete(f"/v1/segments/{nested}").status_code == 204


def test_a_repeat_counts_once(live: Platform) -> None:
    key = define(live, {"event": "Paid", "op": "gte", "value": 2})
    item = {"userId": "repeats", "event": "Paid", "messageId": str(uuid.uuid4())}
    for _ in range(3):
        assert live.ingest.post("/v1/track", json=item).status_code == 200
    live.settle()
    assert members(live, key) == set()
    track(live, "repeats", "Paid")
    wait_for_members(live, key, {"repeats"})


@pytest.mark.long
def test_invalid_input_is_reported_and_stored_and_stops_no_service(live: Platform) -> None:
    key = define(live, {"event": "Good One"})
    refused = {
        "not JSON": live.ingest.post("/v1/track", content=b"{"),
        "no id": live.ingest.post("/v1/track", json={"event": "x"}),
        "no event": live.ingest.post("/v1/track", json={"userId": "x"}),
        "bad gzip": live.ingest.post("/v1/batch", content=b"junk", headers={"Content-Encoding": "gzip"}),
        "too large": live.ingest.post("/v1/batch", content=b" " * (600 * 1024)),
        "zip bomb": live.ingest.post("/v1/batch", content=gzip.compress(b" " * 5_000_000), headers={"Content-Encoding": "gzip"}),
        "unknown key": live.ingest.post("/v1/track", json={"userId": "x", "event": "x"}, auth=("unknown", "")),
    }
    wanted = [400, 400, 400, 400, 413, 413, 401]
    assert [answer.status_code for answer in refused.values()] == wanted, {name: a.text for name, a in refused.items()}
    for answer in refused.values():
        assert answer.headers["content-type"] == "application/problem+json"
        assert {"code", "message"} <= answer.json().keys()
        assert answer.json()["success"] is False
    mixed = live.ingest.post(
        "/v1/batch", json={"batch": [{"type": "track", "userId": "good", "event": "Good One"}, {"type": "track"}]}
    )
    assert (mixed.status_code, mixed.json()["success"], mixed.json()["accepted"]) == (200, False, 1)
    # Past the edge: what no client sends, but what a broken producer might write.
    producer = Producer(producer_config(live.at.kafka))
    for topic in ("ingest.track", "events.behaviour", "segments.membership"):
        for value in (b"not avro", b"\x00\x7f\xff\xff\xff12345"):
            produce_and_wait(producer, topic, key=record_key("default", "poison"), value=value, headers=[])
    # Well-formed all the way to the normalizer, which refuses it.
    odd = live.ingest.post("/v1/track", json={"userId": "odd", "event": "Dated Oddly", "timestamp": "the day before yesterday"})
    assert odd.status_code == 200
    live.settle()
    wait_for_members(live, key, {"good"})
    letters = list(DeadLetters(live.at.kafka, live.at.registry_url, live.at.ingest_url).letters())
    stages = [letter.stage for letter in letters]
    assert {stage: stages.count(stage) for stage in ("normalizer", "segmenter", "delivery", "projector")} == {
        "normalizer": 3,
        "segmenter": 2,
        "delivery": 2,
        "projector": 4,
    }
    # Two that came alone and one of a batch; what could not be read at all was answered and not kept.
    assert stages.count("ingest") == 3
    assert all(letter.record["code"] and letter.record["message"] for letter in letters)
    listed = starling(live, "dlq", "list")
    assert all(letter.id in listed for letter in letters)
    # A record that is refused again is in the list twice.
    [undated] = [letter for letter in letters if letter.record["key"] == b"default/odd"]
    starling(live, "dlq", "replay", undated.id)
    live.settle()
    assert starling(live, "dlq", "list", "--stage", "normalizer").count("replayed") == 1
    became = [json.loads(line) for line in starling(live, "outcomes", "--user", "odd", "--json").splitlines()]
    assert [(one["outcome"], one["code"]) for one in became] == [("REFUSED", undated.record["code"])] * 2
    assert became[0]["message_id"] in starling(live, "outcomes", "--outcome", "refused")


PACKED = {"Content-Type": "application/x-protobuf"}


def events_of(platform: Platform, user: str) -> list[dict[str, Any]]:
    found = platform.api.get(f"/v1/users/{user}/events").json()["items"]
    return [{name: event[name] for name in ("name", "time", "properties", "context")} for event in found]


def test_an_item_becomes_the_same_event_in_either_form(live: Platform) -> None:
    call = {"event": "Order Completed", "timestamp": "2026-01-02T03:04:05.678Z", "context": {"app": {"version": "1.2"}}}
    call |= {"properties": {"revenue": 29.9, "quantity": 2, "tags": ["a", None], "gift": True}}
    for user in ("as-json", "as-protobuf"):
        item = {"userId": user, "messageId": f"form-{user}", **call}
        packed = json_format.ParseDict(item, Item()).SerializeToString()
        sent = {"json": item} if user == "as-json" else {"content": packed, "headers": PACKED}
        assert live.ingest.post("/v1/track", **sent).json()["success"] is True
    broken = Item(user_id="broken-form", event="Order Completed")
    broken.properties["revenue"] = math.nan
    assert live.ingest.post("/v1/track", content=broken.SerializeToString(), headers=PACKED).status_code == 200
    live.settle()
    (event,) = events_of(live, "as-json")
    assert event["properties"]["revenue"] == 29.9
    assert events_of(live, "as-protobuf") == [event]
    letters = DeadLetters(live.at.kafka, live.at.registry_url, live.at.ingest_url).letters("normalizer")
    (letter,) = [found for found in letters if found.record["key"] == b"default/broken-form"]
    assert (letter.record["code"], "properties.revenue" in letter.record["message"]) == ("bad_protobuf", True)


def test_the_client_of_the_guide_works(live: Platform, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    (code,) = re.findall(r"^```python\n(.*?)^```", (root / "docs/how-to/protocol-buffers.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "client.py").write_text(code)
    shutil.copy(root / "libs/common/starling_common/wire/ingest_pb2.py", tmp_path)
    environment = os.environ | {"INGEST_URL": live.at.ingest_url, "WRITE_KEY": WRITE_KEY}
    command = [sys.executable, str(tmp_path / "client.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["success"] is True
    live.settle()
    assert [event["properties"]["revenue"] for event in events_of(live, "proto-ada")] == [13.99]
    assert live.api.get("/v1/users/proto-ada").json()["traits"] == {"plan": "pro"}


def test_definitions_with_faults_are_refused_with_all_of_them(live: Platform) -> None:
    document = {"key": "Bad Key", "name": "", "where": {"all": [{"event": "x", "op": "glows"}, {"any": []}]}, "colour": "red"}
    answer = live.api.post("/v1/segments", json=document)
    assert answer.status_code == 422
    codes = {(fault["pointer"], fault["code"]) for fault in answer.json()["errors"]}
    assert {("/key", "bad_key"), ("/colour", "unknown_field"), ("/where/all/0/op", "unknown_operator")} <= codes
    assert any(code == "empty_group" for _, code in codes)
    nowhere = live.api.post("/v1/segments", json={"key": "nowhere", "name": "x", "where": {"list": "no-such-list"}})
    assert (nowhere.status_code, nowhere.json()["errors"][0]["code"]) == (422, "unknown_list")


@pytest.mark.long
def test_the_stores_of_a_state_agree_and_a_partition_can_be_rebuilt(live: Platform) -> None:
    track(live, "tiers", "Order Completed", revenue=1)
    live.settle()
    wait_until(lambda: '"cassandra": {' in starling(live, "state", "inspect", "tiers"), "the state to be flushed")
    shown = json.loads(starling(live, "state", "inspect", "tiers"))
    assert {found["version"] for found in shown["stores"].values()} == {1}
    assert set(shown["stores"]) == {"changelog", "cassandra", "disk segmenter-0"}
    assert all((found["state"]["known"], found["state"]["user_id"]) == (True, "tiers") for found in shown["stores"].values())
    assert f"partition {shown['partition']}: rebuilt" in starling(live, "state", "rebuild", str(shown["partition"]))
    for stage in ("segmenter", "normalizer"):
        assert f"{stage}: no violations" in starling(live, "state", "verify", "--stage", stage)


@pytest.mark.long
def test_it_goes_on_where_it_stopped(live: Platform) -> None:
    key = define(live, {"event": "Stayed", "op": "gte", "value": 2})
    track(live, "stays", "Stayed")
    live.settle()
    starling(live, "down")
    starling(live, "up", "--detach")
    track(live, "stays", "Stayed")
    wait_for_members(live, key, {"stays"})


def test_status_is_one_json_document_with_everything_ready(live: Platform) -> None:
    document = json.loads(starling(live, "status", "--json"))
    assert document["ready"] is True
    assert document["endpoints"]["ingest"] == live.at.ingest_url
    assert all(part["state"] in {"ready", "done"} for part in document["parts"])
