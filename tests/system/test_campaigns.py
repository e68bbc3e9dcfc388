"""Campaigns on the running platform with the event clock: who gets which message, when, and once although workers are killed."""

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import OFFSET_BEGINNING
from typer.testing import CliRunner

from starling_cli.app import build_app
from starling_common.kafka.topic_range import range_consumer, read_range, spans
from starling_common.wire import Registry
from starling_local.instance import Instance
from starling_local.stack.parts.services import API_TOKEN, WRITE_KEY
from starling_local.testing import embedded
from tests.integration.delivery.smtp_sink import SmtpSink
from tests.integration.stream.rig import wait_until
from tests.system.conftest import Platform
from tests.unit.tracker.providers import SECRET, notification

pytestmark = pytest.mark.long

PARTS = {
    "ingest", "normalizer-0", "segmenter-0", "projector-0", "api", "messenger-0", "broadcaster", "delivery-email-0", "tracker",
}  # fmt: skip
NOON = "2026-01-05T12:00:00Z"
USERS = [f"user-{number}" for number in range(200)]
SMTP = {"key": "smtp", "channel": "email", "host": "127.0.0.1", "tls": "none", "from": "shop@example.com", "password": "s3cret"}
CALLBACKS = {"provider": "dsn", "secret": SECRET}
CONTENT = {"subject": "Hello {{ traits.name }}", "text": "Hello"}


@pytest.fixture(scope="module")
def sink() -> Iterator[SmtpSink]:
    found = SmtpSink()
    yield found
    found.close()


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, sink: SmtpSink) -> Iterator[Platform]:
    with (
        embedded(PARTS, tmp_path_factory.mktemp("campaigns"), clock="event", kills_cassandra=False, timeout_seconds=600) as at,
        httpx.Client(base_url=at.api_url, headers={"Authorization": f"Bearer {API_TOKEN}"}, timeout=30, trust_env=False) as api,
        httpx.Client(base_url=at.ingest_url, auth=(WRITE_KEY, ""), timeout=30, trust_env=False) as ingest,
    ):
        found = Platform(at, Instance(at.data_dir), api, ingest)
        made(found, "/v1/segments", {"key": "buyers", "name": "Buyers", "where": {"event": "Order Completed"}})
        lapsing = {"all": [{"event": "Order Completed"}, {"not": {"event": "Order Completed", "within": "1d"}}]}
        made(found, "/v1/segments", {"key": "lapsing", "name": "Lapsing", "where": lapsing})
        made(found, "/v1/targets", {**SMTP, "port": sink.port, "callbacks": CALLBACKS})
        found.settle()
        yield found


def made(platform: Platform, path: str, document: dict[str, Any]) -> None:
    answer = platform.api.post(path, json=document)
    assert answer.status_code == 201, answer.text


def activate(platform: Platform, key: str, trigger: dict[str, Any], **fields: Any) -> None:
    variants = [{"key": "a", "weight": 50, "content": CONTENT}, {"key": "b", "weight": 50, "content": CONTENT}]
    document = {"key": key, "name": key, "trigger": trigger, "channel": "email", "target": "smtp", "variants": variants, **fields}
    made(platform, "/v1/campaigns", {"purpose": "transactional", **document})
    deadline = time.monotonic() + 60
    # A messenger that shares its cores with other tests may start for longer than the call waits; the answer asks to send it again.
    while (answer := platform.api.post(f"/v1/campaigns/{key}/activate")).json().get("code") == "messenger_behind":
        assert time.monotonic() < deadline, answer.text
    assert (answer.status_code, answer.json().get("status")) == (200, "active"), answer.text


def send(platform: Platform, items: list[dict[str, Any]]) -> None:
    for start in range(0, len(items), 100):
        answer = platform.ingest.post("/v1/batch", json={"batch": items[start : start + 100]})
        assert answer.status_code == 200, answer.text


def known(users: list[str]) -> list[dict[str, Any]]:
    traits = {"name": "Ada", "consent": {"email": True}}
    return [
        {"type": "identify", "userId": user, "timestamp": NOON, "traits": {**traits, "email": f"{user}@example.com"}}
        for user in users
    ]


def bought(users: list[str], at: str = NOON) -> list[dict[str, Any]]:
    return [{"type": "track", "userId": user, "event": "Order Completed", "timestamp": at} for user in users]


def requests(platform: Platform, campaign: str, people: list[str], topic: str = "delivery.requests.email") -> list[dict[str, Any]]:
    """Return the requests of a campaign to these people, in the order of each partition."""
    found = records(platform, topic, "DeliveryRequested")
    return [one for one in found if one["campaign"] == campaign and one["user_id"] in people]


def records(platform: Platform, topic: str, schema: str) -> list[dict[str, Any]]:
    """Return every record of a topic, in the order of each partition."""
    codec = Registry(platform.at.registry_url).codec(topic, schema)
    consumer = range_consumer(platform.at.kafka, "test")
    try:
        places = dict.fromkeys(spans(consumer, topic, 30), OFFSET_BEGINNING)
        return [codec.decode(message.value() or b"") for batch in read_range(consumer, places) for message in batch]
    finally:
        consumer.close()


def advance(platform: Platform, instant: str) -> None:
    done = CliRunner().invoke(
        build_app(), ["clock", "advance", instant, "--data-dir", str(platform.instance.data_dir), "--timeout", "120s"]
    )
    assert done.exit_code == 0, done.output
    platform.settle()


@contextmanager
def killing(platform: Platform, name: str, times: int) -> Iterator[list[int]]:
    """Kills a part several times while the block runs."""
    over, killed = threading.Event(), list[int]()

    def run() -> None:
        for _ in range(times):
            if over.wait(1.5):
                return
            if platform.part(name).pid is not None:
                killed.append(platform.kill(name))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        thread.join()
        over.set()


def test_each_buyer_is_written_to_once_while_the_messenger_is_killed(platform: Platform) -> None:
    send(platform, known(USERS))
    platform.settle()
    activate(platform, "thanks", {"enter": "buyers"})
    with killing(platform, "messenger-0", 3) as killed:
        send(platform, bought(USERS))
        platform.settle()
    assert killed
    platform.settle()
    found = requests(platform, "thanks", USERS)
    assert Counter(one["user_id"] for one in found) == Counter(USERS)
    assert len({one["delivery_id"] for one in found}) == len(USERS)
    one = next(one for one in found if one["user_id"] == "user-7")
    assert (one["address"], one["purpose"], one["version"], one["target_key"]) == ("user-7@example.com", "transactional", 1, "smtp")
    assert Counter(one["variant"] for one in found).keys() == {"a", "b"}


def test_the_mails_arrive_once_and_their_outcomes_come_back(platform: Platform, sink: SmtpSink) -> None:
    wait_until(lambda: len(sink.mails) >= len(USERS), "every mail has arrived", 120)
    assert Counter(sink.recipients()) == Counter(f"{user}@example.com" for user in USERS)
    subject = b"Subject: Hello Ada\r\n"
    assert all(subject in mail for _, mail in sink.mails)

    def outcomes() -> list[str]:
        return [one["outcome"] for one in platform.api.get("/v1/users/user-7/messages").json()["items"][0]["outcomes"]]

    wait_until(lambda: outcomes() == ["SENDING", "SENT"], "the outcome has come back", 60, lambda: str(outcomes()))


def test_a_delay_passes_with_the_clock_and_who_left_meanwhile_gets_nothing(platform: Platform) -> None:
    people = [f"delayed-{number}" for number in range(20)]
    send(platform, known(people))
    activate(platform, "win-back", {"enter": "lapsing"}, delay="2h")
    send(platform, bought(people, "2026-02-01T00:00:00Z"))
    advance(platform, "2026-02-02T01:00:00Z")  # all entered at 00:00
    assert requests(platform, "win-back", people) == []
    send(platform, bought(people[:5], "2026-02-02T02:00:00Z"))  # at the very due instant
    send(platform, bought(people[5:10], "2026-02-02T02:00:00.001Z"))
    advance(platform, "2026-02-02T03:00:00Z")
    found = {one["user_id"]: one for one in requests(platform, "win-back", people)}
    assert sorted(found) == sorted(people[5:])
    answer = platform.api.get(f"/v1/users/{people[0]}/messages").json()
    dropped = next(one for one in answer["items"] if one["campaign"] == "win-back")
    assert (dropped["status"], dropped["reason"]) == ("dropped", "left_segment")
    assert (dropped["due_at"], dropped["decided_at"]) == ("2026-02-02T02:00:00.000Z", "2026-02-02T02:00:00.000Z")
    sent = platform.api.get(f"/v1/users/{people[7]}/messages").json()["items"][0]
    assert (sent["status"], sent["delivery_id"]) == ("requested", found[people[7]]["delivery_id"])


def test_consent_quiet_hours_and_caps_hold(platform: Platform) -> None:
    policy = {"timezone": "UTC", "quiet_hours": {"from": "21:00", "to": "08:00"}, "caps": [{"limit": 1, "per": "1d"}]}
    assert platform.api.put("/v1/policy", json=policy).status_code in {200, 201}
    people = ["plain", "refusing", "capped"]
    send(platform, known(people))
    platform.settle()
    answer = platform.api.put("/v1/users/refusing/consent", json={"channel": "email", "granted": False})
    assert answer.status_code == 200, answer.text
    activate(platform, "news", {"event": {"event": "Signed Up"}}, purpose="marketing", reentry="always")
    night, morning = "2026-03-01T23:00:00Z", "2026-03-02T08:00:00.000Z"
    signed_up = [{"type": "track", "userId": user, "event": "Signed Up", "timestamp": night} for user in people]
    send(platform, [*signed_up, {**signed_up[2], "timestamp": "2026-03-01T23:30:00Z"}])
    platform.settle()
    assert requests(platform, "news", people) == []
    advance(platform, "2026-03-02T09:00:00Z")
    assert Counter(one["user_id"] for one in requests(platform, "news", people)) == {"plain": 1, "capped": 1}
    refused = platform.api.get("/v1/users/refusing/messages").json()["items"][0]
    assert (refused["status"], refused["reason"]) == ("dropped", "no_consent")
    first = platform.api.get("/v1/users/plain/messages").json()["items"][0]
    assert first["decided_at"] == morning
    check = platform.api.post("/v1/policy/check", json={"user": "capped", "channel": "email", "policy": policy}).json()
    assert check["reason"] == "capped"
    assert check["until"] == "2026-03-03T08:00:00.000Z"


def test_links_of_a_mail_unsubscribe_its_reader_and_count_clicks(platform: Platform, sink: SmtpSink) -> None:
    content = {"subject": "Offer", "text": "Offer", "html": '<body><a href="https://shop.example.com/?a=1&amp;b=2">Shop</a></body>'}
    variants = [{"key": "a", "weight": 100, "content": content}]
    send(platform, known(["reader"]))
    activate(platform, "offers", {"event": {"event": "Looked"}}, purpose="marketing", variants=variants)
    looked = {"type": "track", "userId": "reader", "event": "Looked", "timestamp": "2026-03-04T12:00:00Z"}
    send(platform, [looked])
    platform.settle()
    wait_until(lambda: sink.recipients().count("reader@example.com") == 1, "the mail has arrived", 60)
    mail = message_from_bytes(next(data for to, data in sink.mails if to == "reader@example.com"), policy=default)
    page = mail["List-Unsubscribe"].strip("<>")
    part = mail.get_body(("html",))
    assert part is not None
    clicked = re.search(r'href="([^"]+)"', part.get_content())
    assert clicked is not None
    tracker = httpx.Client(trust_env=False, headers={"user-agent": "Mozilla/5.0 Thunderbird/140.0"})

    def outcomes() -> list[str]:
        items = platform.api.get("/v1/users/reader/messages").json()["items"]
        return [one["outcome"] for one in next(one for one in items if one["campaign"] == "offers")["outcomes"]]

    answer = tracker.get(clicked[1])
    assert (answer.status_code, answer.headers["location"]) == (302, "https://shop.example.com/?a=1&b=2")
    wait_until(lambda: "CLICKED" in outcomes(), "the click has come back", 60)
    assert tracker.get(page[:-2] + ("AA" if page[-2:] != "AA" else "BB")).status_code == 404
    assert tracker.get(page).status_code == 200
    assert "UNSUBSCRIBED" not in outcomes()
    # As a mail client does by RFC 8058.
    assert mail["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    answer = tracker.post(page, data={"List-Unsubscribe": "One-Click"})
    assert answer.status_code == 200, answer.text
    tracker.close()
    wait_until(lambda: "UNSUBSCRIBED" in outcomes(), "the refusal has come back", 60)
    changes = platform.api.get("/v1/users/reader/consent").json()["items"]
    (consent,) = [one for one in changes if one["source"] != "trait"]
    assert (consent["granted"], consent["source"], consent["purpose"]) == (False, "one_click", "marketing")
    send(platform, [{**looked, "timestamp": "2026-03-04T13:00:00Z"}])
    platform.settle()
    dropped = platform.api.get("/v1/users/reader/messages").json()["items"][0]
    assert (dropped["status"], dropped["reason"]) == ("dropped", "no_consent")
    assert sink.recipients().count("reader@example.com") == 1


def test_a_bounce_that_comes_back_later_suppresses_the_address(platform: Platform, sink: SmtpSink) -> None:
    """The server took the mail, and its notification is posted to the tracker, twice."""
    send(platform, known(["mover"]))
    activate(platform, "moved", {"event": {"event": "Moved"}}, purpose="marketing")
    moved = {"type": "track", "userId": "mover", "event": "Moved"}
    send(platform, [{**moved, "timestamp": "2026-03-04T12:00:00Z"}])
    wait_until(lambda: sink.recipients().count("mover@example.com") == 1, "the mail has arrived", 60)
    mail = message_from_bytes(next(data for to, data in sink.mails if to == "mover@example.com"), policy=default)
    tracker = mail["List-Unsubscribe"].strip("<>").partition("/u/")[0]

    def report() -> httpx.Response:
        body = notification("".join(mail["X-Starling-Delivery"].split()))
        return httpx.post(f"{tracker}/p/smtp", content=body, headers={"Authorization": f"Bearer {SECRET}"}, trust_env=False)

    assert httpx.post(f"{tracker}/p/smtp", content=notification(None), trust_env=False).status_code == 401
    assert [report().status_code for _ in range(2)] == [200, 200]

    def message() -> dict[str, Any]:
        found: dict[str, Any] = platform.api.get("/v1/users/mover/messages").json()["items"][0]
        return found

    wait_until(lambda: "BOUNCED" in [one["outcome"] for one in message()["outcomes"]], "the bounce has come back", 60)
    send(platform, [{**moved, "timestamp": "2026-03-04T13:00:00Z"}])
    platform.settle()
    assert (message()["status"], message()["reason"]) == ("dropped", "suppressed")
    assert sink.recipients().count("mover@example.com") == 1


def test_a_broken_definition_and_a_hostile_trait_cost_no_one_else(platform: Platform) -> None:
    send(
        platform,
        [{"type": "identify", "userId": "huge", "timestamp": NOON, "traits": {"email": "huge@example.com", "bio": "x" * 20_000}}],
    )
    activate(platform, "welcome", {"event": {"event": "Joined", "where": {"property": "plan", "op": "eq", "value": "pro"}}})
    joined = {"type": "track", "event": "Joined", "timestamp": "2026-03-05T12:00:00Z"}
    odd = [{"plan": {"plan": "pro"}}, {"plan": None}, {"plan": "pro" * 5000}, {"plan": "pro"}]
    send(platform, [{**joined, "userId": "huge", "properties": properties} for properties in odd])
    platform.settle()
    assert len(requests(platform, "welcome", ["huge"])) == 1


def test_a_broadcast_goes_to_the_members_at_its_instant_once_although_the_broadcaster_is_killed(
    platform: Platform, sink: SmtpSink
) -> None:
    people = [f"called-{number}" for number in range(120)]
    members, leaving, gone, late = people[:90], people[90:100], people[100:], ["called-late-1", "called-late-2"]
    after = "2026-03-08T12:00:00.001Z"
    made(platform, "/v1/segments", {"key": "callers", "name": "Callers", "where": {"event": "Called", "within": "2d"}})
    send(platform, known([*people, *late]))
    # Some have left before the instant, and others leave a millisecond after it.
    for users, instant in (
        (gone, "2026-03-06T11:00:00Z"), (leaving, "2026-03-06T12:00:00.001Z"), (members, "2026-03-07T12:00:00Z"),
    ):  # fmt: skip
        send(platform, [{"type": "track", "userId": user, "event": "Called", "timestamp": instant} for user in users])
    platform.settle()
    activate(platform, "sale", {"broadcast": "callers", "at": "2026-03-08T12:00:00Z"}, rate=40)
    shown = platform.api.get("/v1/campaigns/sale").json()
    assert shown["broadcast"] == {"state": "waiting", "written": 0}
    with killing(platform, "broadcaster", 2) as killed:
        send(platform, [{"type": "track", "userId": user, "event": "Called", "timestamp": after} for user in late])
        advance(platform, after)
    assert killed
    platform.settle()
    done = platform.api.get("/v1/campaigns/sale").json()["broadcast"]
    assert done["state"] == "done"
    assert len(members) <= done["written"] <= len(members) + len(leaving)
    found = requests(platform, "sale", [*people, *late], "delivery.bulk.email")
    assert Counter(one["user_id"] for one in found) == Counter(members)
    assert requests(platform, "sale", people) == []
    for user in leaving:
        items = [one for one in platform.api.get(f"/v1/users/{user}/messages").json()["items"] if one["campaign"] == "sale"]
        assert [(one["status"], one["reason"]) for one in items] in ([], [("dropped", "left_segment")])

    def called() -> list[str]:
        return [address for address in sink.recipients() if address.startswith("called-")]

    wait_until(lambda: len(called()) >= len(members), "every mail has arrived", 120)
    assert Counter(called()) == Counter(f"{user}@example.com" for user in members)
    frozen = platform.api.put("/v1/campaigns/sale", json={**shown, "rate": 50})
    assert (frozen.status_code, frozen.json()["code"]) == (409, "frozen_field")


@pytest.mark.long
def test_the_report_equals_the_log_although_the_projector_is_killed(platform: Platform) -> None:
    people = [f"reported-{number}" for number in range(60)]
    at = "2026-03-10T12:00:00Z"
    goal = {"event": "Order Completed", "within": "1d", "value": "revenue"}
    rules = {"purpose": "marketing", "caps": "drop", "holdout": {"percent": 30}, "goal": goal}
    activate(platform, "goals", {"event": {"event": "Asked"}}, **rules)
    send(platform, known(people))
    platform.settle()
    with killing(platform, "projector-0", 2) as killed:
        send(platform, [{"type": "track", "userId": user, "event": "Asked", "timestamp": at} for user in [*people, *people[:20]]])
        orders = [{**one, "properties": {"revenue": 2.5}} for one in bought(people[::2], "2026-03-10T12:30:00Z")]
        send(platform, orders)
        platform.settle()
    assert killed
    advance(platform, "2026-03-12T00:00:00Z")
    answer = platform.api.get("/v1/campaigns/goals/report").json()
    log = [one for one in records(platform, "campaigns.progress", "MessageProgressed") if one["campaign"] == "goals"]
    steps = Counter((one["version"], one["variant"], one["step"], one["held_out"], one["reason"]) for one in log)
    shown: Counter[tuple[Any, ...]] = Counter()
    for row in answer["funnel"]:
        place = row["version"], row["variant"]
        for name in ("requested", "sent", "converted"):
            shown[*place, name.upper(), False, None] += row[name]
        shown[*place, "HELD_OUT", True, "holdout"] += row["held_out"]
        shown[*place, "CONVERTED", True, None] += row["held_out_converted"]
        for reason, count in row["suppressed"].items():
            shown[*place, "DROPPED", False, reason] += count
        assert row["value"] == 2.5 * row["converted"]
    assert +shown == steps
    assert {one["step"] for one in log} >= {"REQUESTED", "HELD_OUT", "CONVERTED", "DROPPED"}
    firsts = {one["user_id"]: one for one in log if one["is_first"] and one["step"] != "CONVERTED"}
    converted = {one["user_id"] for one in log if one["is_first"] and one["step"] == "CONVERTED"}
    overall = answer["lift"][0]
    for arm, held_out in (("written_to", False), ("held_out", True)):
        users = {user for user, one in firsts.items() if one["held_out"] is held_out}
        assert overall[arm] == {"people": len(users), "converted": len(users & converted)}
    assert set(firsts) == set(people)
    assert overall["inconclusive"]


def test_the_log_of_the_messenger_has_no_error(platform: Platform) -> None:
    text = Path(platform.instance.log_file("messenger-0")).read_text()
    assert '"level": "error"' not in text
    assert "Traceback" not in text
