"""Tokens over HTTP with two API processes and a real broker: what one changes, the other follows."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Message

from starling_common.cassandra.database import Database
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.followed_topic import FollowedTopic
from starling_common.kafka.topic_range import read_topic
from starling_common.kafka.topics import TOKENS
from starling_common.records.credentials import Credentials, fold_credentials
from starling_common.telemetry.health import Degraded
from starling_common.testing import Service, eventually, running
from starling_common.wire import Registry
from tests.conftest import Stack
from tests.contract.api.answers import is_problem
from tests.contract.api.conftest import Client


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("apis")


@pytest.fixture(scope="module")
def apis(api_environment: dict[str, str], logs: Path) -> Iterator[tuple[Service, Service]]:
    with (
        running("starling_api", api_environment, logs / "one") as one,
        running("starling_api", api_environment, logs / "two") as two,
    ):
        yield one, two


def read_with(api: Service, token: str) -> int:
    return httpx.get(f"{api.url}/v1/segments", headers={"Authorization": f"Bearer {token}"}, trust_env=False).status_code


def bytes_of(message: Message) -> bytes:
    return b"".join(
        part if isinstance(part, bytes) else b""
        for part in (message.key(), message.value(), *dict(message.headers() or []).values())
    )


def test_a_token_follows_its_changes_in_every_process_and_its_secret_is_nowhere(
    apis: tuple[Service, Service], logs: Path, client: Client, stack: Stack, database: Database
) -> None:
    one, two = apis
    with httpx.Client(base_url=one.url, timeout=30, trust_env=False) as http:
        admin = Client(client.workspace, one.url, http)
        made = admin.call("POST", "/v1/tokens", {"name": "ci", "role": "viewer"}, Idempotency_Key="make")
        assert made.status_code == 201, made.text
        first = made.json()["secret"]
        eventually(lambda: read_with(two, first) == 200, 5)
        assert read_with(one, first) == 200

        path = f"/v1/tokens/{made.json()['id']}"
        second = admin.call("POST", f"{path}/rotate", {"overlap": "1h"}, Idempotency_Key="turn").json()["secret"]
        eventually(lambda: [read_with(two, secret) for secret in (first, second)] == [200, 200], 5)
        third = admin.call("POST", f"{path}/rotate", {"overlap": "0s"}).json()["secret"]
        eventually(lambda: [read_with(two, secret) for secret in (first, second, third)] == [401, 401, 200], 5)
        assert admin.call("DELETE", path).status_code == 204
        assert read_with(one, third) == 401
        eventually(lambda: read_with(two, third) == 401, 5)

        misused = admin.call("POST", "/v1/tokens", {"name": first, "role": second, third: third})
        assert is_problem(misused, 422, "invalid_definition")
        assert is_problem(admin.call("GET", "/v1/tokens/tok_unknown"), 404, "unknown_token")
        listed = admin.call("GET", "/v1/tokens").text

    statement = "SELECT body FROM {ks}.idempotency WHERE workspace = ? AND idempotency_key = ?"
    rows = [database.read(statement, [client.workspace, key]) for key in ("make", "turn")]
    assert all(rows)
    records = b"".join(bytes_of(message) for message in read_topic(stack.brokers, TOKENS))
    assert client.workspace.encode() in records  # the records of this test are among them
    for secret in (first, second, third):
        assert secret.encode() not in records
        assert secret not in listed + misused.text + repr(rows)
        for name in ("one", "two"):
            assert secret not in (logs / name).read_text()


def test_what_is_known_stays_in_use_while_the_topic_cannot_be_read(stack: Stack) -> None:
    codec = Registry(stack.registry_url).codec(TOKENS, "CredentialChanged")
    followed = FollowedTopic[Credentials](
        (stack.brokers, TOKENS), lambda: codec, Credentials, fold_credentials, most_age_seconds=-1
    )
    assert "has not been read yet" in (followed.problem() or "")
    assert not isinstance(followed.problem(), Degraded)
    followed.start()
    try:
        known = followed.refresh(30)
        assert followed.value() is known
        assert isinstance(followed.problem(), Degraded)  # any age is too high here
    finally:
        followed.stop()
    with pytest.raises(BrokerUnavailable, match=r"access\.tokens could not be read to its end"):
        followed.refresh(0.1)
    assert followed.value() is known


def test_a_process_without_a_broker_is_not_ready_and_retries() -> None:
    def codec() -> None:
        raise BrokerUnavailable("away")

    followed = FollowedTopic[Credentials](("127.0.0.1:1", TOKENS), codec, Credentials, fold_credentials)  # type: ignore[arg-type]
    followed.start()
    try:
        eventually(lambda: "away" in (followed.problem() or ""), 10)
        assert not followed.is_read()
    finally:
        followed.stop()
