"""Changed callbacks of every provider: an answer below 500, and never a record that a valid callback would not cause."""

import json
import os
from typing import Any, Final
from urllib.parse import urlencode

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from starling_common.http.rate_limits import Rate
from starling_common.kafka.topics import DELIVERY, SUPPRESSIONS
from starling_tracker.records import DEAD_LETTERS, REPLAY_HEADER
from tests.unit.tracker.providers import (
    AUTH_TOKEN,
    SECRET,
    Providers,
    notification,
    sendgrid_event,
    sendgrid_headers,
    ses_event,
    sns,
    token,
    twilio_signature,
)
from tests.unit.tracker.rig import Response, Site

CASES: Final = int(os.environ.get("STARLING_ORACLE_DELIVERY_CASES", "100"))
"""For each of the two tests; `make oracle-delivery` raises it."""
GENERATED = settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
BOUNCE = {
    "bounceType": "Permanent", "bounceSubType": "General", "feedbackId": "f", "timestamp": "2026-01-01T00:00:00Z",
    "bouncedRecipients": [{"status": "5.1.1", "diagnosticCode": "smtp; 550 no"}], "newTopicPreferences": {"unsubscribeAll": True},
}  # fmt: skip
EVENTS = ["bounce", "dropped", "delivered", "open", "click", "spamreport", "unsubscribe", "processed", "newest"]
KINDS = ["Bounce", "Complaint", "Delivery", "Open", "Click", "Reject", "Rendering Failure", "Subscription", "Send"]
HEADERS = ["authorization", "x-twilio-signature", "x-twilio-email-event-webhook-signature", "host", "content-type", REPLAY_HEADER]
TEXT = st.text(max_size=60)


def providers() -> Providers:
    return Providers(Site(rate=Rate(1e6, 1e6)))


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """Return the document with some values replaced or removed."""
    if draw(st.integers(0, 5)) == 0:
        return draw(JSON)
    if isinstance(document, dict):
        kept = {name: draw(changed(value)) for name, value in document.items() if draw(st.integers(0, 9))}
        return kept | draw(st.dictionaries(TEXT, JSON, max_size=1))
    return [draw(changed(value)) for value in document] if isinstance(document, list) else document


@st.composite
def spoilt(draw: st.DrawFn, body: bytes) -> bytes:
    """Return the bytes with some of them replaced, removed, or repeated."""
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(body)))
        end = min(len(body), start + draw(st.integers(0, 30)))
        body = body[:start] + draw(st.binary(max_size=10) | st.just(body[start:end] * 3)) + body[end:]
    return body


def check(found: Providers, answer: Response) -> None:
    assert answer.status < 500, answer.body
    published = found.site.published
    if answer.status != 200:
        assert published.records == []
    for report in published.of(DELIVERY):
        assert (report["workspace"], report["user_id"], report["delivery_id"]) == ("acme", "ada", "d-1")
        assert report["event_time"] >= 0
    assert {one["kind"] for one in published.of(SUPPRESSIONS)} <= {"hard_bounce", "complaint", "stop", None}
    for letter in published.of(DEAD_LETTERS):
        assert letter["message"]
    for one in published.records:
        json.dumps(one.record, default=repr).encode()  # no text that UTF-8 cannot contain
        str(one.record).encode("utf-8")


@GENERATED
@given(st.data())
def test_signed_callbacks_with_any_content(data: st.DataObject) -> None:
    found = providers()
    provider = data.draw(st.sampled_from(["ses", "sendgrid", "dsn", "twilio"]))
    mark = data.draw(st.sampled_from([token(provider), token("other"), "test", "AAAA", None]))
    if provider == "ses":
        event = data.draw(changed(ses_event(data.draw(st.sampled_from(KINDS)), BOUNCE, mark)))
        check(found, found.ses(sns(event, MessageId=data.draw(TEXT.filter(_is_plain)))))
    elif provider == "sendgrid":
        kinds = data.draw(st.lists(st.sampled_from(EVENTS), max_size=4))
        body = data.draw(changed([sendgrid_event(kind, mark, reason="Bounced Address", type="blocked") for kind in kinds]))
        check(found, found.sendgrid(*body) if isinstance(body, list) else _signed(found, json.dumps(body).encode()))
    elif provider == "dsn":
        action = data.draw(st.sampled_from(["failed", "delivered", "delayed", "é"]))
        status = data.draw(st.sampled_from(["5.1.1", "4.2.2", "", "x"]))
        check(found, found.dsn(data.draw(spoilt(notification(mark, action, status)))))
    else:
        status = data.draw(st.sampled_from(["delivered", "failed", "undelivered", "read", "sent"]) | TEXT.filter(_is_plain))
        more = {"ErrorCode": data.draw(TEXT.filter(_is_plain)), "MessageSid": data.draw(TEXT.filter(_is_plain))}
        if data.draw(st.booleans()):
            more["ErrorCode"] = data.draw(st.sampled_from(["21610", "30005", "30003"]))
        check(found, found.twilio(mark, fields={"MessageStatus": status, **more}))
        word = data.draw(st.sampled_from(["STOP", "Start", "stop please"]) | TEXT.filter(_is_plain))
        address = data.draw(st.sampled_from(["+4915112345678", "Shop", "whatsapp:+4915112345678"]) | TEXT.filter(_is_plain))
        texted = providers()
        check(texted, texted.twilio(None, fields={"MessageStatus": "", "Body": word, "From": address, **more}))


def _is_plain(text: str) -> bool:
    return text.isprintable()


def _signed(found: Providers, body: bytes) -> Response:
    return found.site.request("POST", "/p/acme/sendgrid", body, sendgrid_headers(body))


@GENERATED
@given(st.data())
def test_any_request_from_outside(data: st.DataObject) -> None:
    """Without a valid signature there is no record, whatever the path, the headers and the body are."""
    found = providers()
    bodies = [
        json.dumps(sns(ses_event("Bounce", BOUNCE, token("ses")), forged=True)).encode(),
        json.dumps([sendgrid_event("bounce", token("sendgrid"))]).encode(),
        notification(token("dsn")),
        urlencode({"MessageSid": "SM1", "MessageStatus": "delivered"}).encode(),
        urlencode({"MessageSid": "SM1", "From": "+4915112345678", "Body": "STOP"}).encode(),
    ]
    body = data.draw(spoilt(data.draw(st.sampled_from(bodies))) | st.binary(max_size=200))
    known = [f"/p/acme/{name}" for name in ("ses", "sendgrid", "dsn", "twilio")]
    path = data.draw(st.sampled_from(known) | TEXT.map(lambda text: "/p/" + text))
    headers = data.draw(st.dictionaries(st.sampled_from(HEADERS), TEXT | st.just(f"Bearer {SECRET}x"), max_size=4))
    headers.setdefault("x-twilio-signature", twilio_signature("https://t.example.com/", {}, AUTH_TOKEN))
    answer = found.site.request("POST", path, body, headers, data.draw(TEXT))
    assert answer.status in {400, 401, 404}, answer.body
    assert found.site.published.records == []
