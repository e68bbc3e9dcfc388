"""The sender of one target on an exchange in memory: halves, named elements, problems, access tokens."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jwt
import pytest

from starling_audience.adapters.adapter import Again, AudienceRequest, Ended, Response, to_json
from starling_audience.adapters.generic import Generic
from starling_audience.adapters.google import Google
from starling_audience.adapters.google_tokens import GoogleToken
from starling_audience.following.sending import Sender, Sent
from tests.unit.audience.making import GOOGLE, HTTP, body_of, change, private_key

KEY = private_key()

Answer = Callable[[AudienceRequest], Response | Again | Ended]


@dataclass
class Side:
    """The other side: `answer` decides. `requests`: what it got."""

    answer: Answer
    requests: list[AudienceRequest] = field(default_factory=list)

    async def exchange(self, workspace: str, request: AudienceRequest) -> Response | Again | Ended:
        self.requests.append(request)
        return self.answer(request)


def users_in(request: AudienceRequest) -> set[str]:
    return {one.user_id for one in request.changes}


def sent_to(answer: Answer, users: int) -> tuple[Sent, Side]:
    side = Side(answer)
    sender = Sender("acme", Generic(HTTP, "ads"), side)
    return asyncio.run(sender.send([change(f"u{number}") for number in range(users)])), side


def test_a_taken_batch_is_one_request() -> None:
    sent, side = sent_to(lambda _: Response(200), 100)
    assert (len(sent.taken), sent.rejected, sent.problem, len(side.requests)) == (100, [], None, 1)


def test_a_change_because_of_which_requests_are_refused_is_found_in_halves() -> None:
    sent, side = sent_to(lambda request: Response(422 if "u37" in users_in(request) else 200), 100)
    assert [(one.user_id, why) for one, why in sent.rejected] == [("u37", "the endpoint answered 422")]
    assert {one.user_id for one in sent.taken} == {f"u{number}" for number in range(100)} - {"u37"}
    assert sent.problem is None
    assert len(side.requests) < 20


def test_a_side_that_refuses_each_change_is_a_problem_of_the_target() -> None:
    sent, side = sent_to(lambda _: Response(404), 1_000)
    assert isinstance(sent.problem, Again)
    assert sent.taken == []
    assert len(side.requests) < 40


def test_few_changes_that_are_refused_alone_are_rejected() -> None:
    sent, _ = sent_to(lambda _: Response(400), 2)
    assert (len(sent.rejected), sent.problem) == (2, None)


@pytest.mark.parametrize(("status", "kind"), [(429, Again), (500, Again), (401, Ended), (410, Ended)])
def test_a_problem_of_the_target_ends_the_batch(status: int, kind: type) -> None:
    sent, side = sent_to(lambda _: Response(status, retry_after_seconds=3), 100)
    assert isinstance(sent.problem, kind)
    assert len(side.requests) == 1


@dataclass
class GoogleSide:
    """Google: a token endpoint, and the Data Manager API that refuses the tokens in `revoked` and the members in `invalid`."""

    token_status: int = 200
    revoked: set[str] = field(default_factory=set)
    invalid: set[int] = field(default_factory=set)
    tokens: int = 0
    claims: Any = None
    bodies: list[Any] = field(default_factory=list)

    async def exchange(self, workspace: str, request: AudienceRequest) -> Response | Again | Ended:
        if request.url.endswith("/token"):
            self.tokens += 1
            assertion = request.body.decode().rpartition("assertion=")[2]
            self.claims = jwt.decode(assertion, options={"verify_signature": False})
            return Response(self.token_status, to_json({"access_token": f"token-{self.tokens}", "expires_in": 3_600}))
        if request.headers["authorization"].removeprefix("Bearer ") in self.revoked:
            return Response(401, b"{}")
        body = body_of(request)
        self.bodies.append(body)
        if self.invalid and len(body["audienceMembers"]) > 2:
            violations = [{"field": f"audience_members.audience_members[{one}]", "reason": "BAD"} for one in sorted(self.invalid)]
            return Response(400, to_json({"error": {"message": "no", "details": [{"fieldViolations": violations}]}}))
        return Response(200)


def send_to_google(side: GoogleSide, batches: int = 1, key: str = KEY) -> list[Sent]:
    settings = {**GOOGLE, "private_key": key, "token_url": "https://oauth.example.com/token"}

    async def send() -> list[Sent]:
        sender = Sender("acme", Google(settings), side, GoogleToken("acme", settings))
        changes = [change(f"u{number}", email=f"u{number}@example.com") for number in range(4)]
        return [await sender.send(changes) for _ in range(batches)]

    return asyncio.run(send())


def test_an_access_token_serves_several_batches() -> None:
    side = GoogleSide()
    sent = send_to_google(side, 2)
    assert [len(one.taken) for one in sent] == [4, 4]
    assert side.tokens == 1
    assert side.claims["scope"] == "https://www.googleapis.com/auth/datamanager"
    assert side.claims["aud"] == "https://oauth.example.com/token"


def test_a_revoked_token_is_replaced_once() -> None:
    assert [one.problem for one in send_to_google(GoogleSide(revoked={"token-1"}))] == [None]
    [sent] = send_to_google(GoogleSide(revoked={"token-1", "token-2"}))
    assert isinstance(sent.problem, Ended)


@pytest.mark.parametrize(("status", "kind"), [(400, Ended), (401, Ended), (429, Again), (500, Again)])
def test_without_a_token_nothing_is_sent(status: int, kind: type) -> None:
    side = GoogleSide(token_status=status)
    [sent] = send_to_google(side)
    assert isinstance(sent.problem, kind)
    assert side.bodies == []


def test_a_key_of_another_kind_ends_the_target() -> None:
    [sent] = send_to_google(GoogleSide(), key="no key")
    assert sent.problem == Ended("the private_key of the target is no private key in PEM without a password")


def test_named_members_are_rejected_and_the_others_sent() -> None:
    side = GoogleSide(invalid={1, 3})
    [sent] = send_to_google(side)
    assert [(one.user_id, why) for one, why in sent.rejected] == [("u1", "BAD"), ("u3", "BAD")]
    assert [one.user_id for one in sent.taken] == ["u0", "u2"]
    assert len(side.bodies) == 2
