"""Which targets take callbacks, and how the certificates of SNS are fetched."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from starling_common.outcome import Done, Refused
from starling_common.security.sealing import Place, Sealer
from starling_tracker.callbacks.certificates import Certificates, NotReached
from starling_tracker.callbacks.report import Unauthorised
from starling_tracker.callbacks.targets import CallbackTargets, Provider, TargetKey, fold_target
from tests.unit.tracker.providers import CERTIFICATE, CERTIFICATE_URL, PUBLIC_KEY, SECRET, TOPIC

SEALER = Sealer({"first": b"1" * 32})


def record(document: dict[str, Any] | str, action: str = "DEFINED", kind: str = "target") -> dict[str, Any]:
    text = document if isinstance(document, str) else json.dumps(document)
    return {"workspace": "acme", "kind": kind, "key": "a", "version": 1, "action": action, "document": text}


def folded(*records: dict[str, Any]) -> CallbackTargets:
    known = CallbackTargets(SEALER, {})
    for one in records:
        assert isinstance(fold_target(known, one), Done)
    return known


def sealed(text: str, field: str, sealer: Sealer = SEALER) -> str:
    return sealer.seal(text, Place("acme", "target/a", field))


def email(callbacks: dict[str, str] | None) -> dict[str, Any]:
    return {"channel": "email", "host": "smtp.example.com"} | ({} if callbacks is None else {"callbacks": callbacks})


@pytest.mark.parametrize(
    ("document", "provider", "credential"),
    [
        (email({"provider": "ses", "topic_arn": TOPIC}), Provider.SES, TOPIC),
        (email({"provider": "sendgrid", "public_key": PUBLIC_KEY}), Provider.SENDGRID, PUBLIC_KEY),
        (email({"provider": "dsn", "secret": sealed(SECRET, "callbacks/secret")}), Provider.DSN, SECRET),
        (email({"provider": "dsn", "secret": SECRET}), Provider.DSN, SECRET),
        ({"channel": "sms", "auth_token": sealed("t", "auth_token")}, Provider.TWILIO, "t"),
    ],
)
def test_a_target_names_its_provider(document: dict[str, Any], provider: Provider, credential: str) -> None:
    known = folded(record(document))
    found = known.targets[TargetKey("acme", "a")]
    assert (found.provider, found.credential, found.problem) == (provider, credential, None)
    assert known.problems() == []
    assert folded(record(document), record(document, "ARCHIVED")).targets == {}


def test_other_definitions_take_no_callbacks() -> None:
    ses = email({"provider": "ses", "topic_arn": TOPIC})
    assert folded(record(email(None)), record({"channel": "slack"}), record(ses, kind="campaign")).targets == {}
    assert folded(record(ses), record(email(None), "REVISED")).targets == {}


def test_a_secret_of_another_key_is_a_problem_that_names_its_place() -> None:
    document = email({"provider": "dsn", "secret": sealed(SECRET, "callbacks/secret", Sealer({"other": b"2" * 32}))})
    [problem] = folded(record(document)).problems()
    assert problem.startswith("callbacks/secret of target/a in the workspace acme")


@pytest.mark.parametrize("document", ["", "[]", "{}", '{"channel":"sms"}', '{"channel":"email","callbacks":{"provider":"x"}}'])
def test_an_unreadable_definition_is_refused_and_keeps_the_former(document: str) -> None:
    known = folded(record(email({"provider": "ses", "topic_arn": TOPIC})))
    assert isinstance(fold_target(known, record(document, "REVISED")), Refused)
    assert len(known.targets) == 1


def fetched(*answers: httpx.Response | Exception) -> tuple[Certificates, list[str]]:
    """Return certificates over the answers, and the URLs that were requested."""
    asked, left = list[str](), list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    return Certificates(httpx.AsyncClient(transport=httpx.MockTransport(answer))), asked


PEM = CERTIFICATE.public_bytes(Encoding.PEM)


def test_a_certificate_is_fetched_once() -> None:
    certificates, asked = fetched(httpx.Response(200, content=PEM))

    async def several() -> list[Any]:
        return await asyncio.gather(*(certificates.certificate(CERTIFICATE_URL, "acme") for _ in range(3)))

    assert asyncio.run(several()) == [CERTIFICATE] * 3
    assert asked == [CERTIFICATE_URL]


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, content=PEM),
        httpx.Response(302, headers={"location": "https://evil.example/"}),
        httpx.Response(200, content=b"no certificate"),
        httpx.Response(200, content=PEM + b" " * 70_000),
    ],
)
def test_a_url_without_a_certificate_is_not_requested_again_at_once(answer: httpx.Response) -> None:
    certificates, asked = fetched(answer)

    async def twice() -> None:
        for _ in range(2):
            with pytest.raises(Unauthorised):
                await certificates.certificate(CERTIFICATE_URL, "acme")

    asyncio.run(twice())
    assert len(asked) == 1


def test_a_host_that_does_not_answer_is_asked_again() -> None:
    certificates, asked = fetched(httpx.ConnectError("no route"), httpx.Response(200, content=PEM))

    async def twice() -> Any:
        with pytest.raises(NotReached, match="no route"):
            await certificates.certificate(CERTIFICATE_URL, "acme")
        return await certificates.certificate(CERTIFICATE_URL, "acme")

    assert asyncio.run(twice()) == CERTIFICATE
    assert len(asked) == 2


def test_a_confirmation_that_sns_refuses_is_not_confirmed() -> None:
    certificates, _ = fetched(httpx.Response(200), httpx.Response(403))

    async def twice() -> None:
        await certificates.confirm("https://sns.eu-central-1.amazonaws.com/", "acme")
        with pytest.raises(NotReached, match="403"):
            await certificates.confirm("https://sns.eu-central-1.amazonaws.com/", "acme")

    asyncio.run(twice())


def test_no_certificate_is_fetched_from_a_private_network() -> None:
    """As if the name of SNS led there."""

    async def once() -> None:
        certificates = Certificates()
        with pytest.raises(NotReached, match="private network"):
            await certificates.certificate("https://127.0.0.1/SimpleNotificationService-0123456789abcdef.pem", "acme")
        await certificates.close()

    asyncio.run(once())
