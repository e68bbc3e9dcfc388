"""Callbacks of providers as requests: what each report becomes, and every request that is not the provider's."""

import json
import time
from typing import Any
from urllib.parse import urlencode

import pytest

from starling_common.kafka.topics import CONSENT, DELIVERY, SUPPRESSIONS
from starling_common.outcome import Done
from starling_common.records.suppressions import SuppressedAddresses, fold_suppression
from starling_messages.links import Links
from starling_policy import SUPPRESSION_KINDS, address_digest
from starling_policy.person import STOP
from starling_tracker.callbacks.targets import CallbackTarget, Provider, TargetKey
from starling_tracker.records import COMPLAINT, DEAD_LETTERS, HARD_BOUNCE, REPLAY_HEADER
from tests.unit.tracker.providers import (
    AUTH_TOKEN,
    CERTIFICATE_URL,
    DIGEST,
    EXPIRED,
    TOPIC,
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

SUBSCRIBE_URL = f"https://sns.eu-central-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=t"


def outcomes(providers: Providers) -> list[tuple[Any, Any, Any]]:
    return [(one["outcome"], one["detail"], one["status_code"]) for one in providers.site.published.of(DELIVERY)]


def effects(providers: Providers) -> list[tuple[str, Any]]:
    """Return the suppressions with their kind, and the changes of consent with their purpose and source."""
    published = providers.site.published
    suppressed = [("suppressed", one["kind"]) for one in published.of(SUPPRESSIONS)]
    refused = [("refused", (one["purpose"], one["source"], one["granted"])) for one in published.of(CONSENT)]
    soft = [("soft", one["soft_bounce"]) for one in published.of(DELIVERY) if one["soft_bounce"]]
    return suppressed + refused + soft


def refused(providers: Providers) -> list[str]:
    return [letter["code"] for letter in providers.site.published.of(DEAD_LETTERS)]


def test_the_kinds_of_suppressions_are_those_of_the_policy() -> None:
    assert {HARD_BOUNCE, COMPLAINT, STOP} <= set(SUPPRESSION_KINDS)


# SES

HARD = {
    "bounceType": "Permanent", "bounceSubType": "General", "feedbackId": "f-1", "timestamp": "2026-01-01T00:00:00.000Z",
    "bouncedRecipients": [{"emailAddress": "ada@example.com", "status": "5.1.1", "diagnosticCode": "smtp; 550 5.1.1 no"}],
}  # fmt: skip


def soft(subtype: str) -> dict[str, Any]:
    return {**HARD, "bounceType": "Transient", "bounceSubType": subtype}


@pytest.mark.parametrize(
    ("kind", "part", "outcome", "effect"),
    [
        ("Bounce", HARD, ("BOUNCED", "Permanent/General 5.1.1 smtp; 550 5.1.1 no", 550), [("suppressed", "hard_bounce")]),
        ("Bounce", soft("MailboxFull"), ("BOUNCED", "Transient/MailboxFull 5.1.1 smtp; 550 5.1.1 no", 550), [("soft", DIGEST)]),
        ("Bounce", soft("ContentRejected"), ("BOUNCED", "Transient/ContentRejected 5.1.1 smtp; 550 5.1.1 no", 550), []),
        ("Complaint", {"complaintFeedbackType": "abuse"}, ("COMPLAINED", "abuse", None), [("suppressed", "complaint")]),
        ("Delivery", {"smtpResponse": "250 2.6.0 queued"}, ("DELIVERED", "250 2.6.0 queued", 250), []),
        ("Open", {"userAgent": "x"}, ("OPENED", None, None), []),
        ("Click", {"link": "https://shop.example.com"}, ("CLICKED", None, None), []),
        ("Reject", {"reason": "Bad content"}, ("FAILED", "Reject: Bad content", None), []),
        (
            "Subscription", {"newTopicPreferences": {"unsubscribeAll": True}}, ("UNSUBSCRIBED", None, None),
            [("refused", ("marketing", "provider", False))],
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("version", ["1", "2"])
def test_events_of_ses(kind: str, part: dict[str, Any], outcome: Any, effect: Any, version: str) -> None:
    providers = Providers()
    answer = providers.ses(sns(ses_event(kind, part, token("ses")), version=version))
    assert (answer.status, outcomes(providers), effects(providers)) == (200, [outcome], effect)
    [report] = providers.site.published.of(DELIVERY)
    assert (report["workspace"], report["user_id"], report["delivery_id"], report["campaign"]) == ("acme", "ada", "d-1", "win-back")


def test_a_suppression_is_of_the_address_to_which_the_message_was_sent() -> None:
    providers = Providers()
    providers.ses(sns(ses_event("Bounce", HARD, token("ses"))))
    [outgoing] = [one for one in providers.site.published.records if one.topic == SUPPRESSIONS]
    assert (outgoing.record["digest"], outgoing.record["channel"]) == (DIGEST, "email")
    assert (outgoing.key, outgoing.profile) == (f"acme/email/{DIGEST}".encode(), None)


def test_a_feedback_notification_is_read_as_an_event() -> None:
    providers, event = Providers(), ses_event("Bounce", HARD, token("ses"))
    event["notificationType"] = event.pop("eventType")
    assert (providers.ses(sns(event)).status, effects(providers)) == (200, [("suppressed", "hard_bounce")])


@pytest.mark.parametrize(
    "message", ["Successfully validated SNS topic for Amazon SES event publishing.", "[]", '{"eventType":"Send"}']
)
def test_what_is_no_outcome_is_accepted_and_changes_nothing(message: str) -> None:
    providers = Providers()
    assert (providers.ses(sns(message)).status, providers.site.published.records) == (200, [])


def test_a_repeated_callback_is_published_once_and_has_the_same_id_in_another_process() -> None:
    one, other = Providers(), Providers()
    for number in ("sns-1", "sns-1", "sns-2"):
        assert one.ses(sns(ses_event("Open", {}, token("ses")), MessageId=number)).status == 200
    other.ses(sns(ses_event("Open", {}, token("ses")), MessageId="sns-2"))
    first, second = (report["event_id"] for report in one.site.published.of(DELIVERY))
    [again] = (report["event_id"] for report in other.site.published.of(DELIVERY))
    assert first != second == again
    labels = {"provider": "ses", "outcome": "repeated"}
    assert one.site.metrics.registry.get_sample_value("starling_tracker_callback_reports_total", labels) == 1


def test_a_callback_that_the_broker_did_not_acknowledge_is_published_when_it_comes_again() -> None:
    providers = Providers()
    providers.site.published.is_down = True
    assert providers.dsn(notification(token("dsn"))).status == 503
    providers.site.published.is_down = False
    assert providers.dsn(notification(token("dsn"))).status == 200
    assert len(providers.site.published.of(DELIVERY)) == 1


@pytest.mark.parametrize(
    "envelope",
    [
        pytest.param(sns({"a": 1}, forged=True), id="forged"),
        pytest.param({**sns({"a": 1}), "Message": "{}"}, id="changed"),
        pytest.param({**sns({"a": 1}), "Signature": "no base64!"}, id="no base64"),
        pytest.param({**sns({"a": 1}), "SignatureVersion": "3"}, id="unknown version"),
        pytest.param(sns({"a": 1}, TopicArn=TOPIC + "2"), id="another topic"),
        pytest.param(sns({"a": 1}, SigningCertURL=CERTIFICATE_URL.replace("https", "http")), id="no TLS"),
        pytest.param(
            sns({"a": 1}, SigningCertURL=CERTIFICATE_URL.replace("amazonaws.com", "amazonaws.com.evil.example")), id="host"
        ),
        pytest.param(sns({"a": 1}, SigningCertURL=CERTIFICATE_URL.replace("sns.", "evil.example/sns.")), id="host in the path"),
        pytest.param(sns({"a": 1}, SigningCertURL=CERTIFICATE_URL.replace("sns.", "sns.eu-central-1.amazonaws.com@")), id="user"),
        pytest.param(sns({"a": 1}, SigningCertURL=CERTIFICATE_URL.replace(".com/", ".com:8443/")), id="port"),
        pytest.param(sns({"a": 1}, SigningCertURL=CERTIFICATE_URL.replace("eu-central-1", "us-east-1")), id="another region"),
        pytest.param(sns({"a": 1}, SigningCertURL="https://sns.eu-central-1.amazonaws.com/other.pem"), id="another file"),
        pytest.param(sns({"a": 1}, SigningCertURL="https://[x/SimpleNotificationService-0.pem"), id="no URL"),
        pytest.param(sns({"a": 1}, SigningCertURL=CERTIFICATE_URL.replace("0123", "4567")), id="no certificate"),
    ],
)
def test_a_message_that_sns_did_not_sign_is_401(envelope: dict[str, str]) -> None:
    providers = Providers()
    assert (providers.ses(envelope).status, providers.site.published.records) == (401, [])


def test_an_expired_certificate_signs_nothing() -> None:
    providers = Providers()
    providers.site.fetched.certificates[CERTIFICATE_URL] = EXPIRED
    assert providers.ses(sns({"a": 1})).status == 401


def test_without_the_certificate_of_sns_the_callback_may_come_again() -> None:
    providers = Providers()
    providers.site.fetched.is_away = True
    answer = providers.ses(sns({"a": 1}))
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")


def confirmation(url: str = SUBSCRIBE_URL, **changed: Any) -> dict[str, str]:
    return sns("Confirm", Type="SubscriptionConfirmation", Token="t", SubscribeURL=url, **changed)


def test_a_subscription_is_confirmed_once_it_is_signed() -> None:
    providers = Providers()
    assert (providers.ses(confirmation()).status, providers.site.fetched.confirmed) == (200, [SUBSCRIBE_URL])


@pytest.mark.parametrize(
    "url",
    [
        SUBSCRIBE_URL.replace("https", "http"),
        SUBSCRIBE_URL.replace("sns.eu-central-1.amazonaws.com", "169.254.169.254"),
        SUBSCRIBE_URL.replace("amazonaws.com", "amazonaws.com.evil.example"),
        SUBSCRIBE_URL.replace("https://", "https://evil.example@"),
        SUBSCRIBE_URL.replace("ConfirmSubscription", "Unsubscribe"),
        SUBSCRIBE_URL.replace(":mails", ":others"),
        "https://[x",
    ],
)
def test_a_confirmation_leads_to_sns_alone(url: str) -> None:
    providers = Providers()
    assert (providers.ses(confirmation(url)).status, providers.site.fetched.confirmed) == (401, [])
    assert (providers.ses({**confirmation(), "SubscribeURL": url}).status, providers.site.fetched.confirmed) == (401, [])


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'{"Type":"Notification"}', b'{"Type":["Notification"]}', b"\xff", b"[" * 9_000]
)
def test_what_is_no_message_of_sns_is_400_with_the_cure(body: bytes) -> None:
    answer = Providers().site.request("POST", "/p/acme/ses", body)
    assert (answer.status, b"raw message delivery" in answer.body) == (400, True)


# SendGrid


@pytest.mark.parametrize(
    ("event", "outcome", "effect"),
    [
        (
            {"event": "bounce", "type": "bounce", "status": "5.1.1", "reason": "550 5.1.1 no"},
            "BOUNCED",
            [("suppressed", "hard_bounce")],
        ),
        ({"event": "bounce", "type": "blocked", "reason": "451 later"}, "BOUNCED", [("soft", DIGEST)]),
        ({"event": "dropped", "reason": "Bounced Address"}, "FAILED", [("suppressed", "hard_bounce")]),
        ({"event": "dropped", "reason": "Spam Content"}, "FAILED", []),
        ({"event": "delivered", "response": "250 OK"}, "DELIVERED", []),
        ({"event": "open"}, "OPENED", []),
        ({"event": "click", "url": "https://shop.example.com"}, "CLICKED", []),
        ({"event": "spamreport"}, "COMPLAINED", [("suppressed", "complaint")]),
        ({"event": "unsubscribe"}, "UNSUBSCRIBED", [("refused", ("marketing", "provider", False))]),
    ],
)
def test_events_of_sendgrid(event: dict[str, Any], outcome: str, effect: Any) -> None:
    providers = Providers()
    answer = providers.sendgrid(sendgrid_event(mark=token("sendgrid"), kind=event["event"]) | event)
    assert (answer.status, [one[0] for one in outcomes(providers)], effects(providers)) == (200, [outcome], effect)
    assert providers.site.published.of(DELIVERY)[0]["event_time"] == 1_767_225_600_000


def test_one_request_has_many_events_and_each_its_own_fate() -> None:
    providers = Providers()
    mark = token("sendgrid")
    answer = providers.sendgrid(
        sendgrid_event("open", mark, sg_machine_open=True), sendgrid_event("deferred", mark), "no event",
        sendgrid_event("newest", mark), sendgrid_event("click", None), sendgrid_event("click", mark),
    )  # fmt: skip
    assert answer.status == 200
    assert outcomes(providers) == [("OPENED", "machine", None), ("CLICKED", None, None)]
    assert refused(providers) == ["bad_report", "bad_report", "unknown_message"]
    counted = providers.site.metrics.registry
    assert counted.get_sample_value("starling_tracker_callback_reports_total", {"provider": "sendgrid", "outcome": "unknown"}) == 3
    assert counted.get_sample_value("starling_tracker_callback_reports_total", {"provider": "sendgrid", "outcome": "ignored"}) == 1


@pytest.mark.parametrize("at", [-301, 301, -1e9])
def test_a_replayed_signature_of_sendgrid_is_401(at: float) -> None:
    providers = Providers()
    answer = providers.sendgrid(sendgrid_event("open", token("sendgrid")), at=max(0.0, time.time() + at))
    assert (answer.status, providers.site.published.records) == (401, [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-twilio-email-event-webhook-signature", "AAAA"),
        ("x-twilio-email-event-webhook-signature", ""),
        ("x-twilio-email-event-webhook-signature", "ü"),
        ("x-twilio-email-event-webhook-timestamp", "now"),
        ("x-twilio-email-event-webhook-timestamp", "²"),
        ("x-twilio-email-event-webhook-timestamp", "9" * 5_000),
    ],
)
def test_a_forged_request_of_sendgrid_is_401(name: str, value: str) -> None:
    providers, body = Providers(), json.dumps([sendgrid_event("open", token("sendgrid"))]).encode()
    signed = sendgrid_headers(body)
    assert providers.site.request("POST", "/p/acme/sendgrid", body, {**signed, name: value}).status == 401
    assert providers.site.request("POST", "/p/acme/sendgrid", body + b" ", signed).status == 401
    assert providers.site.request("POST", "/p/acme/sendgrid", body, signed).status == 200


def test_a_signed_body_of_sendgrid_that_is_no_array_is_400() -> None:
    providers = Providers()
    for body in (b"{}", b"[", b"1"):
        assert providers.site.request("POST", "/p/acme/sendgrid", body, sendgrid_headers(body)).status == 400


def test_a_stored_key_that_is_no_point_of_the_curve_signs_nothing() -> None:
    providers, place = Providers(), TargetKey("acme", "sendgrid")
    providers.site.targets[place] = CallbackTarget(
        place, Provider.SENDGRID, "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE" + "A" * 86 + "=="
    )
    answer = providers.sendgrid(sendgrid_event("open", token("sendgrid")))
    assert (answer.status, b"public_key" in answer.body) == (401, True)


# Twilio


@pytest.mark.parametrize(
    ("fields", "outcome", "effect"),
    [
        ({"MessageStatus": "delivered"}, [("DELIVERED", None, None)], []),
        ({"MessageStatus": "read"}, [("OPENED", None, None)], []),
        ({"MessageStatus": "sent"}, [], []),
        ({"MessageStatus": "undelivered", "ErrorCode": "30005"}, [("BOUNCED", "30005", None)], [("suppressed", "hard_bounce")]),
        ({"MessageStatus": "undelivered", "ErrorCode": "30003"}, [("BOUNCED", "30003", None)], [("soft", DIGEST)]),
        ({"MessageStatus": "failed", "ErrorCode": "30007"}, [("FAILED", "30007", None)], []),
        ({"MessageStatus": "failed", "ErrorCode": "21610"}, [("FAILED", "21610", None)], [("suppressed", "stop")]),
        ({"MessageStatus": "failed", "ErrorCode": "²"}, [("FAILED", "²", None)], []),
    ],
)
def test_status_callbacks_of_twilio(fields: dict[str, str], outcome: Any, effect: Any) -> None:
    providers = Providers()
    answer = providers.twilio(token("twilio", channel="sms"), fields=fields)
    assert (answer.status, outcomes(providers), effects(providers)) == (200, outcome, effect)


PHONE = "+4915112345678"
TEXT = {"MessageSid": "SM9", "SmsSid": "SM9", "SmsStatus": "received", "From": PHONE, "To": "+4915187654321"}


def texted(providers: Providers, body: str, **more: str) -> Response:
    """Return the answer to a text that a person has sent to the number of the target."""
    fields = {name: value for name, value in {**TEXT, "Body": body, **more}.items() if value}
    headers = {"x-twilio-signature": twilio_signature("https://t.example.com/p/acme/twilio", fields)}
    return providers.site.request("POST", "/p/acme/twilio", urlencode(fields).encode(), headers)


def known_after(providers: Providers, known: SuppressedAddresses | None = None) -> SuppressedAddresses:
    found = known or SuppressedAddresses()
    for record in providers.site.published.of(SUPPRESSIONS):
        assert isinstance(fold_suppression(found, b"", record), Done)
    return found


@pytest.mark.parametrize(
    "word", ["STOP", "stop", " Stop. ", "UNSUBSCRIBE", "Cancel", "END", "QUIT\r\n", "StopAll", "revoke", "OptOut"]
)
def test_the_reply_stop_suppresses_the_number_for_every_user_who_has_it(word: str) -> None:
    providers = Providers()
    answer = texted(providers, word)
    assert (answer.status, answer.body, answer.headers["content-type"]) == (200, b"<Response/>", "text/xml; charset=utf-8")
    [outgoing] = providers.site.published.records
    digest = address_digest(PHONE)
    assert (outgoing.topic, outgoing.key, outgoing.profile) == (SUPPRESSIONS, f"acme/sms/{digest}/stop".encode(), None)
    assert known_after(providers).kind("acme", "sms", digest) == "stop" == STOP
    labels = {"provider": "twilio", "outcome": "stopped"}
    assert providers.site.metrics.registry.get_sample_value("starling_tracker_callback_reports_total", labels) == 1


@pytest.mark.parametrize("word", ["START", "unstop", "Start!"])
@pytest.mark.parametrize("earlier", [None, "uploaded", "hard_bounce"])
def test_the_reply_start_ends_that_of_stop_and_no_other_suppression(word: str, earlier: str | None) -> None:
    providers, digest = Providers(), address_digest(PHONE)
    before = SuppressedAddresses()
    if earlier is not None:
        before.kinds["acme", "sms"] = {bytes.fromhex(digest): earlier}
    texted(providers, "STOP")
    assert texted(providers, word, MessageSid="SM10").status == 200
    assert known_after(providers, before).kind("acme", "sms", digest) == earlier


def test_a_repeated_start_does_not_end_a_later_stop() -> None:
    providers = Providers()
    for sid, word in (("SM1", "START"), ("SM2", "STOP"), ("SM1", "START")):
        assert texted(providers, word, MessageSid=sid).status == 200
    assert known_after(providers).kind("acme", "sms", address_digest(PHONE)) == "stop"
    labels = {"provider": "twilio", "outcome": "repeated"}
    assert providers.site.metrics.registry.get_sample_value("starling_tracker_callback_reports_total", labels) == 1


@pytest.mark.parametrize(
    ("body", "more", "kind"),
    [
        ("STOP", {"OptOutType": "HELP"}, None),
        ("Arrêt", {"OptOutType": "STOP"}, "stop"),
        ("Please stop", {}, None),
        ("YES", {}, None),
        ("STOP", {"From": "whatsapp:+4915112345678"}, None),
        ("STOP", {"From": "Shop"}, None),
        ("\U0001f600" * 300, {}, None),
    ],
)
def test_what_the_provider_has_understood_counts_and_other_texts_do_not(body: str, more: dict[str, str], kind: str | None) -> None:
    providers = Providers()
    answer = texted(providers, body, **more)
    assert (answer.status, answer.body) == (200, b"<Response/>")
    assert known_after(providers).kind("acme", "sms", address_digest(PHONE)) == kind


def test_a_text_that_is_forged_unacknowledged_or_incomplete_changes_nothing() -> None:
    providers = Providers()
    fields = {**TEXT, "Body": "STOP"}
    for signature in ("", twilio_signature("https://t.example.com/p/acme/twilio", {**fields, "From": "+4915100000000"})):
        headers = {"x-twilio-signature": signature}
        assert providers.site.request("POST", "/p/acme/twilio", urlencode(fields).encode(), headers).status == 401
    assert (texted(providers, "STOP", From="").status, texted(providers, "STOP", MessageSid="", SmsSid="").status) == (400, 400)
    providers.site.published.is_down = True
    assert texted(providers, "STOP").status == 503
    assert providers.site.published.records == []
    providers.site.published.is_down = False
    assert texted(providers, "STOP").status == 200
    assert len(providers.site.published.records) == 1


def test_twilio_signs_the_address_with_or_without_its_port() -> None:
    for url, signed in (("https://t.example.com:8443", ""), ("https://t.example.com", ":443"), ("http://[::1]:80", "")):
        site = Site(public_url=url)
        providers = Providers(site)
        signature = twilio_signature(f"{url}{signed}/p/acme/twilio", {"MessageSid": "SM1", "MessageStatus": "sent"})
        body = b"MessageSid=SM1&MessageStatus=sent"
        assert providers.site.request("POST", "/p/acme/twilio", body, {"x-twilio-signature": signature}).status == 200, url


def test_without_a_public_address_that_of_the_request_is_signed() -> None:
    providers = Providers(Site(public_url=None))
    fields = {"MessageSid": "SM1", "MessageStatus": "sent"}
    for scheme in ("https", "http"):
        headers = {"host": "a.example", "x-twilio-signature": twilio_signature(f"{scheme}://a.example/p/acme/twilio", fields)}
        assert providers.site.request("POST", "/p/acme/twilio", b"MessageSid=SM1&MessageStatus=sent", headers).status == 200


@pytest.mark.parametrize(
    "sign",
    [
        lambda url, fields: twilio_signature(url, fields, "another token"),
        lambda url, fields: twilio_signature(url, {**fields, "MessageStatus": "failed"}),
        lambda url, fields: twilio_signature(url.replace("starling=", "starling=x"), fields),
        lambda url, fields: twilio_signature(url.replace("/twilio", "/other"), fields),
        lambda _url, _fields: "",
        lambda _url, _fields: "ü\ud800",
    ],
)
def test_a_forged_callback_of_twilio_is_401(sign: Any) -> None:
    providers = Providers()
    assert (providers.twilio(token("twilio"), sign).status, providers.site.published.records) == (401, [])


@pytest.mark.parametrize("body", [b"", b"MessageSid=SM1", b"%ff=1", b"\xff", b"&".join([b"a=1"] * 500)])
def test_a_form_without_a_message_is_400_or_401(body: bytes) -> None:
    signature = twilio_signature("https://t.example.com/p/acme/twilio", {"MessageSid": "SM1"} if b"SM1" in body else {})
    assert Providers().site.request("POST", "/p/acme/twilio", body, {"x-twilio-signature": signature}).status == 400


# Delivery status notifications


@pytest.mark.parametrize(
    ("action", "status", "outcome", "effect"),
    [
        ("failed", "5.1.1", ["BOUNCED"], [("suppressed", "hard_bounce")]),
        ("failed", "5.2.2", ["BOUNCED"], [("soft", DIGEST)]),
        ("failed", "4.4.7", ["BOUNCED"], [("soft", DIGEST)]),
        ("failed", "5.7.1", ["BOUNCED"], []),
        ("failed", "", ["BOUNCED"], [("soft", DIGEST)]),
        ("Delivered", "2.0.0", ["DELIVERED"], []),
        ("delayed", "4.4.1", [], []),
    ],
)
def test_delivery_status_notifications(action: str, status: str, outcome: list[str], effect: Any) -> None:
    providers = Providers()
    answer = providers.dsn(notification(token("dsn"), action, status))
    assert (answer.status, [one[0] for one in outcomes(providers)], effects(providers)) == (200, outcome, effect)


def test_a_notification_with_the_whole_mail_names_the_message_too() -> None:
    providers = Providers()
    whole = notification(token("dsn")).replace(b"text/rfc822-headers", b"message/rfc822")
    assert (providers.dsn(whole).status, refused(providers)) == (200, [])
    assert outcomes(providers) == [("BOUNCED", "5.1.1 smtp; 550 5.1.1 no", 550)]


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer wrong", "Basic 0123456789abcdef", "Bearer ü\ud800"])
def test_a_notification_without_the_secret_is_401(authorization: str) -> None:
    site = Providers().site
    answer = site.request("POST", "/p/acme/dsn", notification(token("dsn")), {"authorization": authorization})
    assert (answer.status, site.published.records) == (401, [])


@pytest.mark.parametrize(
    "body",
    [
        b"", b"Subject: no report\r\n\r\nHello", b"\xff\xfe", notification(None).replace(b"Action", b"Reaction"),
        b"Content-Type: multipart/report; boundary=b\r\n\r\n" + b"--b\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n" * 50,
    ],
)  # fmt: skip
def test_what_is_no_notification_is_400_with_the_cure(body: bytes) -> None:
    answer = Providers().dsn(body)
    assert (answer.status, b"expected" in answer.body or b"each needs" in answer.body) == (400, True), answer.body


# Every provider


def test_another_address_names_no_target() -> None:
    providers = Providers()
    providers.site.targets[TargetKey("default", "dsn")] = CallbackTarget(
        TargetKey("default", "dsn"), Provider.DSN, "0123456789abcdef"
    )
    request, body = providers.site.request, notification("test")
    for path in ("/p/", "/p/acme", "/p/acme/", "/p/acme/none", "/p/acme/ses/x", "/p//ses", "/p/" + "a" * 2_000):
        assert request("POST", path, body).status == 404, path
    assert request("POST", "/p/dsn", body, {"authorization": "Bearer 0123456789abcdef"}).status == 200
    assert request("GET", "/p/acme/ses").headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        (None, "names no message"),
        ("AAAA", "none of the keys"),
        (token("dsn", workspace="other"), "correct the address"),
        (token("other"), "correct the address"),
    ],
)
def test_a_report_of_no_message_is_a_dead_letter_that_can_be_replayed(mark: str | None, text: str) -> None:
    providers = Providers()
    body = notification(mark)
    assert providers.dsn(body).status == 200
    [letter] = providers.site.published.of(DEAD_LETTERS)
    assert (letter["stage"], letter["code"], letter["workspace"]) == ("tracker", "unknown_message", "acme")
    assert (letter["origin_topic"], letter["origin_partition"], letter["value"]) == ("/p/acme/dsn", -1, body)
    assert text in letter["message"]
    assert providers.site.published.of(DELIVERY) == []


def test_a_replayed_dead_letter_needs_no_signature_and_finds_its_message_once_the_key_is_back() -> None:
    old = Links({"old": b"2" * 32})
    body = notification(token("dsn"))
    lost = Providers(Site(links=old))
    assert lost.dsn(body).status == 200
    [letter] = lost.site.published.of(DEAD_LETTERS)
    proof = letter["headers"][REPLAY_HEADER].decode()
    assert lost.site.request("POST", letter["origin_topic"], letter["value"], {REPLAY_HEADER: proof}).status == 422
    assert len(lost.site.published.records) == 1

    back = Providers(Site(links=Links({"old": b"2" * 32, "first": b"1" * 32})))
    for path, value, given, status in (
        (letter["origin_topic"], letter["value"], proof, 200),
        (letter["origin_topic"], letter["value"] + b" ", proof, 401),
        ("/p/acme/ses", letter["value"], proof, 400),
        (letter["origin_topic"], letter["value"], proof[:-2], 401),
    ):
        assert back.site.request("POST", path, value, {REPLAY_HEADER: given}).status == status
    assert outcomes(back) == [("BOUNCED", "5.1.1 smtp; 550 5.1.1 no", 550)]


def test_a_single_event_of_a_batch_is_replayed_alone() -> None:
    providers = Providers()
    providers.sendgrid(sendgrid_event("open", token("sendgrid")), sendgrid_event("click", "lost"))
    [letter] = providers.site.published.of(DEAD_LETTERS)
    assert [event["event"] for event in json.loads(letter["value"])] == ["click"]


def test_what_becomes_of_a_test_is_reported_nowhere() -> None:
    providers = Providers()
    assert (providers.dsn(notification("test")).status, providers.site.published.records) == (200, [])


def test_nothing_is_confirmed_that_the_broker_has_not() -> None:
    providers = Providers()
    providers.site.published.is_down = True
    for answer in (
        providers.dsn(notification(token("dsn"))),
        providers.dsn(notification(None)),
        providers.sendgrid(sendgrid_event("open", token("sendgrid"))),
        providers.ses(sns(ses_event("Open", {}, token("ses")))),
        providers.twilio(token("twilio")),
    ):
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")


def test_a_target_whose_secret_cannot_be_decrypted_takes_nothing() -> None:
    providers, place = Providers(), TargetKey("acme", "dsn")
    providers.site.targets[place] = CallbackTarget(place, Provider.DSN, "", "no key")
    assert providers.dsn(notification(token("dsn")), secret="").status == 503


def test_a_body_above_the_limit_is_413() -> None:
    providers = Providers()
    assert providers.dsn(notification(token("dsn")) + b"x" * 262_144).status == 413
    assert providers.dsn(notification(token("dsn")) + b"x" * 200_000).status == 200


def test_no_credential_is_shown() -> None:
    assert AUTH_TOKEN not in repr(Providers().site.targets)
