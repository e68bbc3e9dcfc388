"""The push channel, held to the contract of channels with each of its services, and what is particular to each."""

import asyncio
import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from py_vapid import Vapid02

from starling_campaigns import Target
from starling_common.http.outbound.connections import WORKSPACE
from starling_common.settings import Http, Kafka, SchemaRegistry
from starling_common.time.instants import wall_clock_ms
from starling_delivery.channel import Again, Answer, Bounced, Delivered, Impossible, Message, MessageChannel, Unknown
from starling_delivery.channels.push import keys
from starling_delivery.channels.push.channel import PushChannel
from starling_delivery.messages.definitions import Definitions, KnownTarget
from starling_delivery.settings import EmailSettings, Push
from tests.contract.delivery.channel_contract import ChannelContract
from tests.contract.delivery.endpoint import answering
from tests.contract.delivery.push_services import (
    APP,
    KEY_ID,
    PROJECT,
    TEAM,
    Browser,
    Certificates,
    FakeApns,
    FakeGoogle,
    TlsEndpoint,
    fcm_error,
    pem,
    public_bytes,
    raw_key,
    vapid_claims,
)

EC_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(65_537, 2_048)
ANDROID = "dGVzdA:APA91b" + "x" * 130
IPHONE = "0a" * 32


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class PushContract(ChannelContract):
    """The contract, for one kind of target."""

    kind: ClassVar[str]
    allow_private = True
    certificates: Certificates

    @abstractmethod
    def target(self) -> dict[str, Any]:
        """The settings of the target."""

    @property
    @abstractmethod
    def address(self) -> str:
        """A device."""

    def push(self) -> Push:
        return Push(ca_file=self.certificates.ca_file)

    def send(self, opened: Callable[[], MessageChannel], *messages: Message, seconds: float = 10.0) -> list[Answer]:
        """Handshakes of TLS, and the request for a token, belong to the attempt."""
        return super().send(opened, *messages, seconds=max(seconds, 2.0))

    def open(self, passed: Callable[[str], None] = lambda _: None) -> MessageChannel:
        settings = EmailSettings(
            kafka=Kafka(brokers="127.0.0.1:9"),
            registry=SchemaRegistry.model_validate({"url": "http://127.0.0.1:9"}),
            http=Http(port=9),
            instance_id="delivery-0",
            push=self.push(),
            allow_private_addresses=self.allow_private,
        )
        known = Definitions()
        known.targets["default", "main"] = KnownTarget("default", "main", 1, Target("main", "main", self.kind, self.target()))
        return PushChannel.open(settings, known, passed)

    def message(self, delivery_id: str = "d1x", text: str = "Hello", **more: Any) -> Message:
        content = {"title": "News", "body": text, "url": "https://shop.example/sale"}
        fields: dict[str, Any] = {
            "workspace": "default", "user_id": "ada", "delivery_id": delivery_id, "message_id": delivery_id, "target_key": "main",
            "address": self.address, "payload": "", "attempt": 1, "content": content, "purpose": "marketing", "campaign": "welcome",
            "expires_at": wall_clock_ms() + 3_600_500,
        }  # fmt: skip
        return Message(**(fields | more))

    def answer(self, **more: Any) -> Answer:
        """The answer to one message."""
        [answer] = self.send(self.open, self.message(**more))
        return answer

    def test_a_private_address_is_refused_before_anything_is_sent(self) -> None:
        self.allow_private = False
        assert isinstance(self.answer(), Impossible | Again)
        assert self.received() == []

    def test_a_device_of_another_kind_is_not_sent_to(self) -> None:
        others = {"webpush": ANDROID, "fcm": IPHONE, "apns": ANDROID}
        assert isinstance(self.answer(address=others[self.kind]), Impossible)
        assert self.received() == []

    def test_an_archived_target_sends_nothing(self) -> None:
        assert self.answer(target_key="other") == Impossible("target_archived")

    def test_a_message_that_has_no_expiry_is_sent(self) -> None:
        assert self.answer(expires_at=None) == Delivered(self.taken)

    def test_a_key_that_is_none_is_tried_again(self) -> None:
        self.target = lambda: {**type(self).target(self), "private_key": "AAAA"}  # type: ignore[method-assign]
        answer = self.answer()
        assert isinstance(answer, Again)
        assert "private_key" in answer.why
        assert answer.is_of_target
        assert self.received() == []

    taken = 200


class TestWebPush(PushContract):
    kind = "webpush"
    taken = 201

    @pytest.fixture(autouse=True)
    def _services(self, certificates: Certificates) -> Iterator[None]:
        self.certificates, self.browser = certificates, Browser()
        self.service = TlsEndpoint(certificates)
        self.service.respond = answering(201)
        yield
        self.service.close()

    def target(self) -> dict[str, Any]:
        return {"subject": "mailto:push@shop.example", "private_key": raw_key(EC_KEY)}

    @property
    def address(self) -> str:
        return self.browser.subscription(f"{self.service.url}/send/1")

    def open_broken(self) -> MessageChannel:
        self.service.close()
        return self.open()

    def open_losing(self) -> MessageChannel:
        self.service.respond = self.service.lose
        return self.open()

    def open_silent(self) -> MessageChannel:
        self.service.respond = self.service.hang
        return self.open()

    def received(self) -> list[str]:
        return [self.browser.decrypted(request.body) for request in self.service.requests]

    def test_the_browser_decrypts_the_notification(self) -> None:
        assert self.answer() == Delivered(201)
        [payload] = self.received()
        assert json.loads(payload) == {
            "title": "News", "body": "Hello", "url": "https://shop.example/sale", "delivery_id": "d1x",
        }  # fmt: skip

    def test_the_push_service_knows_the_sender_and_how_long_to_keep_the_message(self) -> None:
        self.answer()
        [request] = self.service.requests
        claims, public = vapid_claims(request.headers["authorization"], self.service.url)
        assert public == public_bytes(EC_KEY)
        assert claims["sub"] == "mailto:push@shop.example"
        assert wall_clock_ms() / 1000 < claims["exp"] < wall_clock_ms() / 1000 + 86_400
        assert request.path == "/send/1"
        assert (request.headers["content-encoding"], request.headers["ttl"]) == ("aes128gcm", "3600")
        topic = request.headers["topic"]
        assert len(topic) == 32
        assert set(topic) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")

    def test_an_implementation_of_others_takes_the_authorization(self) -> None:
        self.answer()
        assert Vapid02.verify(self.service.requests[0].headers["authorization"])

    def test_a_topic_is_that_of_its_campaign(self) -> None:
        self.send(self.open, self.message("d1x"), self.message("d2x"), self.message("d3x", campaign="other"))
        topics = [request.headers["topic"] for request in self.service.requests]
        assert sorted(topics.count(one) for one in topics) == [1, 2, 2]

    def test_a_message_that_has_just_expired_is_not_kept(self) -> None:
        self.answer(expires_at=wall_clock_ms() - 5)
        assert self.service.requests[0].headers["ttl"] == "0"

    @pytest.mark.parametrize("status", [404, 410])
    def test_a_subscription_that_does_not_exist_any_more_bounces_without_a_suppression(self, status: int) -> None:
        self.service.respond = answering(status)
        answer = self.answer()
        assert isinstance(answer, Bounced)
        assert not answer.is_hard

    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (200, Delivered), (202, Delivered), (301, Impossible), (307, Impossible), (400, Impossible), (401, Again), (403, Again),
            (413, Impossible), (429, Again), (500, Unknown), (502, Unknown), (503, Again),
        ],
    )  # fmt: skip
    def test_every_other_status_has_its_answer_and_none_counts_against_the_target(self, status: int, kind: type) -> None:
        self.service.respond = answering(status, Retry_After="7", Location=f"{self.service.url}/elsewhere")
        answer = self.answer()
        assert isinstance(answer, kind)
        assert len(self.service.requests) == 1
        if isinstance(answer, Again | Unknown):
            assert not answer.is_of_target
        if isinstance(answer, Again) and status in {429, 503}:
            assert answer.retry_after_seconds == 7.0

    def test_no_failure_of_the_connection_counts_against_the_target(self) -> None:
        [lost] = self.send(self.open_losing, self.message())
        [refused] = self.send(self.open_broken, self.message())
        assert isinstance(lost, Unknown)
        assert isinstance(refused, Again)
        assert not lost.is_of_target
        assert not refused.is_of_target

    @pytest.mark.parametrize(
        "changed", [{"auth": "AAAA"}, {"auth": "!"}, {"p256dh": "AAAA"}, {"p256dh": keys.base64url(b"\x04" + bytes(64))}]
    )
    def test_a_subscription_with_invalid_keys_bounces_or_is_refused(self, changed: Mapping[str, str]) -> None:
        answer = self.answer(address=self.browser.subscription(f"{self.service.url}/send/1", **changed))
        assert isinstance(answer, Bounced | Impossible)
        assert self.service.requests == []

    def test_http_is_refused_outside_of_tests(self) -> None:
        self.allow_private = False
        answer = self.answer(address=self.browser.subscription("http://push.example.com/send/1"))
        assert answer == Impossible("the address must start with https://")

    def test_a_certificate_of_another_authority_is_refused(self, tmp_path: Path) -> None:
        self.certificates = Certificates(tmp_path)
        answer = self.answer()
        assert isinstance(answer, Again)
        assert "certificate" in answer.why.lower()

    def test_a_notification_of_the_largest_size_arrives_and_a_larger_one_is_refused(self) -> None:
        overhead = len('{"title":"","body":"","delivery_id":"d1x"}')
        fitting, longer = ({"title": "", "body": "x" * (3_993 - overhead + more)} for more in (0, 1))
        assert self.answer(content=fitting) == Delivered(201)
        assert len(self.service.requests[0].body) == 4_096
        assert isinstance(self.answer(content=longer), Impossible)


class TestFcm(PushContract):
    kind = "fcm"
    address = ANDROID

    @pytest.fixture(autouse=True)
    def _services(self, certificates: Certificates) -> Iterator[None]:
        self.certificates = certificates
        self.google = FakeGoogle(certificates, RSA_KEY.public_key())
        yield
        self.google.close()

    def push(self) -> Push:
        return Push.model_validate(
            {"ca_file": self.certificates.ca_file, "fcm_url": self.google.url, "fcm_token_url": f"{self.google.url}/token"}
        )

    def target(self) -> dict[str, Any]:
        return {"project_id": PROJECT, "client_email": f"sender@{PROJECT}.example", "private_key": pem(RSA_KEY)}

    def open_broken(self) -> MessageChannel:
        self.google.close()
        return self.open()

    def open_losing(self) -> MessageChannel:
        self.google.of_message = self.google.lose
        return self.open()

    def open_silent(self) -> MessageChannel:
        self.google.of_message = self.google.hang
        return self.open()

    def received(self) -> list[str]:
        return [request.body.decode() for request in self.google.messages]

    def test_fcm_gets_the_notification_and_how_long_to_keep_it(self) -> None:
        assert self.answer() == Delivered(200)
        [request] = self.google.messages
        assert request.path == f"/v1/projects/{PROJECT}/messages:send"
        assert request.headers["authorization"] == "Bearer token-1"
        found = json.loads(request.body)["message"]
        until = int(found.pop("apns")["headers"]["apns-expiration"])
        assert abs(until - wall_clock_ms() / 1000 - 3_600) < 60
        assert found == {
            "token": ANDROID,
            "notification": {"title": "News", "body": "Hello"},
            "data": {"delivery_id": "d1x", "url": "https://shop.example/sale"},
            "android": {"ttl": "3600s"},
            "webpush": {"headers": {"TTL": "3600"}},
        }

    def test_messages_share_one_access_token(self) -> None:
        answers = self.send(self.open, *(self.message(f"d{n}x") for n in range(5)))
        assert answers == [Delivered(200)] * 5
        assert self.google.tokens == ["token-1"]

    def test_a_refused_token_is_replaced_once(self) -> None:
        async def sending(channel: MessageChannel) -> None:
            try:
                assert await channel.send(self.message("d1x")) == Delivered(200)
                self.google.revoked.add("token-1")
                assert await channel.send(self.message("d2x")) == Delivered(200)
                self.google.revoked |= {"token-2", "token-3"}
                answer = await channel.send(self.message("d3x"))
                assert isinstance(answer, Again)
                assert answer.status_code == 401
            finally:
                await channel.close()

        asyncio.run(self.in_workspace(sending))
        assert self.google.tokens == ["token-1", "token-2", "token-3"]

    async def in_workspace(self, sending: Callable[[MessageChannel], Any]) -> None:
        WORKSPACE.set("default")
        await sending(self.open())

    def test_a_refused_account_is_tried_again_with_the_reason_of_google(self) -> None:
        self.google.refuses_accounts = True
        answer = self.answer()
        assert isinstance(answer, Again)
        assert "invalid_grant" in answer.why or "Invalid JWT Signature" in answer.why
        assert self.google.messages == []

    @pytest.mark.parametrize(
        ("status", "name", "code", "kind"),
        [
            (404, "NOT_FOUND", "UNREGISTERED", Bounced), (404, "NOT_FOUND", None, Again),
            (400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", Impossible),
            (400, "INVALID_ARGUMENT", None, Impossible), (403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH", Impossible),
            (403, "PERMISSION_DENIED", None, Again), (429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", Again),
            (503, "UNAVAILABLE", "UNAVAILABLE", Again), (500, "INTERNAL", "INTERNAL", Unknown),
            (401, "UNAUTHENTICATED", "THIRD_PARTY_AUTH_ERROR", Again),
        ],
    )  # fmt: skip
    def test_each_error_has_its_answer(self, status: int, name: str, code: str | None, kind: type) -> None:
        self.google.of_message = fcm_error(status, name, "what is wrong", code, Retry_After="7")
        answer = self.answer()
        assert isinstance(answer, kind)
        assert len(self.google.messages) == 1
        assert (code or name) in getattr(answer, "why", "")
        if isinstance(answer, Bounced):
            assert not answer.is_hard
        if isinstance(answer, Again):
            assert answer.retry_after_seconds == 7.0

    @pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"error":[]}', b'{"error":{"details":[1,{"@type":7}]}}', b"<html>"])
    def test_an_error_of_another_form_is_an_answer(self, body: bytes) -> None:
        self.google.of_message = answering(404, body)
        assert isinstance(self.answer(), Again)


class TestApns(PushContract):
    kind = "apns"
    address = IPHONE

    @pytest.fixture(autouse=True)
    def _services(self, certificates: Certificates) -> Iterator[None]:
        self.certificates = certificates
        self.apns = FakeApns(certificates, EC_KEY.public_key())
        yield
        self.apns.close()

    def push(self) -> Push:
        return Push.model_validate({"ca_file": self.certificates.ca_file, "apns_sandbox_url": self.apns.url})

    def target(self) -> dict[str, Any]:
        return {"team_id": TEAM, "key_id": KEY_ID, "topic": APP, "environment": "sandbox", "private_key": pem(EC_KEY)}

    def open_broken(self) -> MessageChannel:
        self.apns.close()
        return self.open()

    def open_losing(self) -> MessageChannel:
        self.apns.loses = True
        return self.open()

    def open_silent(self) -> MessageChannel:
        self.apns.hangs = True
        return self.open()

    def received(self) -> list[str]:
        return [request.body.decode() for request in self.apns.requests]

    def test_apns_gets_the_notification_and_how_long_to_keep_it(self) -> None:
        delivery_id = str(uuid4())
        assert self.answer(delivery_id=delivery_id) == Delivered(200)
        [request] = self.apns.requests
        assert request.path == f"/3/device/{IPHONE}"
        found = {name: request.headers[name] for name in ("apns-id", "apns-push-type", "apns-priority", "apns-topic")}
        assert found == {"apns-id": delivery_id, "apns-push-type": "alert", "apns-priority": "10", "apns-topic": APP}
        assert abs(int(request.headers["apns-expiration"]) - wall_clock_ms() / 1000 - 3_600) < 60
        assert json.loads(request.body) == {
            "aps": {"alert": {"title": "News", "body": "Hello"}}, "url": "https://shop.example/sale", "delivery_id": delivery_id,
        }  # fmt: skip

    def test_messages_share_a_connection_and_a_token(self) -> None:
        answers = self.send(self.open, *(self.message(f"d{n}x") for n in range(10)))
        assert answers == [Delivered(200)] * 10
        assert self.apns.connections == 1
        assert len({request.headers["authorization"] for request in self.apns.requests}) == 1

    @pytest.mark.parametrize(
        ("status", "reason", "kind", "of_target"),
        [
            (410, "Unregistered", Bounced, False), (410, "ExpiredToken", Bounced, False), (410, "", Bounced, False),
            (400, "BadDeviceToken", Bounced, False), (400, "DeviceTokenNotForTopic", Impossible, False),
            (400, "PayloadEmpty", Impossible, False), (400, "TopicDisallowed", Again, True),
            (403, "InvalidProviderToken", Again, True),
            (404, "BadPath", Impossible, False), (413, "PayloadTooLarge", Impossible, False),
            (429, "TooManyRequests", Again, False), (429, "TooManyProviderTokenUpdates", Again, True),
            (500, "InternalServerError", Unknown, True), (503, "ServiceUnavailable", Again, True), (503, "Shutdown", Again, True),
            (301, "", Impossible, False),
        ],
    )  # fmt: skip
    def test_each_error_has_its_answer(self, status: int, reason: str, kind: type, of_target: bool) -> None:
        self.apns.answers[IPHONE], self.apns.headers = (status, reason), {"retry-after": "7"}
        answer = self.answer()
        assert isinstance(answer, kind)
        assert len(self.apns.requests) == 1
        assert reason in getattr(answer, "why", "")
        if isinstance(answer, Again | Unknown):
            assert answer.is_of_target == of_target
        if isinstance(answer, Again):
            assert answer.retry_after_seconds == 7.0
        if isinstance(answer, Bounced):
            assert not answer.is_hard

    def test_an_expired_token_is_replaced_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(keys, "LEAST_TOKEN_SECONDS", 0)
        self.apns.expired = ExpiresFirst()
        [answer] = self.send(self.open, self.message())
        assert answer == Delivered(200)
        assert len(self.apns.requests) == 2

    def test_a_young_token_that_is_called_expired_is_kept(self) -> None:
        """APNs refuses a token that changes more often than every 20 minutes."""
        self.apns.expired = ExpiresFirst()
        answer = self.answer()
        assert isinstance(answer, Again)
        assert "ExpiredProviderToken" in answer.why
        assert len(self.apns.requests) == 1


class ExpiresFirst(set[str]):
    """The first token that is seen has expired."""

    def __contains__(self, token: object) -> bool:
        if not self:
            self.add(str(token))
        return super().__contains__(token)
