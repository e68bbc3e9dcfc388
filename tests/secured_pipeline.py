"""The whole pipeline on a secured broker: one process and one user for each service, with the rights that the command computes."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from starling_common.security.sealing import new_key
from starling_common.settings import Cassandra
from starling_common.testing import Service, eventually, own_keyspace, running
from tests.conftest import Stack
from tests.secured_broker import Secured

SERVICES = (
    "ingest", "normalizer", "segmenter", "projector", "api", "delivery", "feeds", "messenger", "broadcaster", "audience", "tracker",
)  # fmt: skip
MODULES = {"feeds": "starling_delivery"}
"""Service -> its module, where the name differs."""
USERS = (*SERVICES, "deploy", "audience-report", "auditor", "operator")
WRITE_KEY, TOKEN = "a-write-key", "an-api-token"
SECRETS_KEY = new_key("a")


@dataclass(frozen=True)
class Secure:
    """A secured broker whose topics are created, and the settings of its services."""

    broker: Secured
    stack: Stack
    cassandra: Cassandra
    home: Path

    def environment(self, service: str, user: str | None = None) -> dict[str, str]:
        """Return the settings of a service. `user`: the service whose user it has instead of its own."""
        return {
            **self.stack.environment(),
            **self.broker.as_user(f"starling-{user or service}"),
            "STARLING_CASSANDRA__KEYSPACE": self.cassandra.keyspace,
            "STARLING_ACKNOWLEDGE_SINGLE_COPY": "true",
            "STARLING_PROFILE_PARTITIONS": "2",
            "STARLING_STATE_DIR": str(self.home / f"state-{uuid.uuid4().hex}"),
            "STARLING_WRITE_KEYS": f"{WRITE_KEY}=default",
            "STARLING_TOKENS": f"{TOKEN}=admin:default",
            "STARLING_SECRETS__KEYS": SECRETS_KEY,
            "STARLING_LINKS__KEYS": SECRETS_KEY,
            "STARLING_ALLOW_PRIVATE_ADDRESSES": "true",
            # A group that lost a member without a goodbye waits for the session to end.
            "STARLING_SESSION_TIMEOUT_SECONDS": "6",
            "STARLING_LEAVE_GROUP": "true",
            **({"STARLING_CHANNEL": service} if service in MODULES else {}),
        }

    @contextmanager
    def process(self, service: str, user: str | None = None, *, ready: bool = True, **more: str) -> Iterator[Service]:
        """Run a service as a process."""
        log = self.home / f"{service}-{uuid.uuid4().hex[:6]}.log"
        with running(
            MODULES.get(service, f"starling_{service}"), self.environment(service, user) | more, log, ready=ready
        ) as found:
            yield found

    def command(self, *words: str, user: str | None = None) -> "subprocess.CompletedProcess[str]":
        """Run `starling` as the administrator of the broker, or as a user of a service."""
        own = self.broker.with_password() if user is None else self.broker.as_user(f"starling-{user}")
        return run([sys.executable, "-m", "starling_cli", *words], own)

    def acls(self, *words: str) -> list[str]:
        """Run `starling deploy acls`; return the lines that it prints."""
        done = self.command("deploy", "acls", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


def run(words: Sequence[str], environment: Mapping[str, str], timeout_seconds: float = 120) -> "subprocess.CompletedProcess[str]":
    """Run a command with these settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("STARLING_")}
    return subprocess.run(
        words, env={**inherited, **environment}, capture_output=True, text=True, check=False, timeout=timeout_seconds
    )


@contextmanager
def secure_installation(broker: Secured, stack: Stack, home: Path) -> Iterator[Secure]:
    """Create the users, their rights by the command, and the topics by the deploy step with the rights of its own user."""
    with own_keyspace(stack.cassandra) as cassandra:
        found = Secure(broker, stack, cassandra, home)
        broker.add_users(f"starling-{name}" for name in USERS)
        found.acls("--apply")
        done = run([sys.executable, "-m", "starling_common.deploy"], found.environment("deploy"))
        assert done.returncode == 0, done.stderr
        yield found


@dataclass(frozen=True)
class Pipeline:
    """Clients of the running services."""

    ingest: httpx.Client
    api: httpx.Client
    tracker: httpx.Client
    services: Mapping[str, Service]

    def track(self, user: str, event: str, **properties: object) -> None:
        answer = self.ingest.post("/v1/track", json={"userId": user, "event": event, "properties": properties})
        assert (answer.status_code, answer.json()["success"]) == (200, True), answer.text

    def identify(self, user: str, traits: Mapping[str, object]) -> None:
        answer = self.ingest.post("/v1/identify", json={"userId": user, "traits": traits})
        assert (answer.status_code, answer.json()["success"]) == (200, True), answer.text

    def define(self, path: str, document: Mapping[str, object]) -> None:
        answer = self.api.post(path, json=document)
        assert answer.status_code == 201, answer.text

    def has_metric(self, service: str, sample: str) -> bool:
        """Return whether a service shows this sample, as `name{labels} value`."""
        return sample in httpx.get(f"{self.services[service].url}/metrics", trust_env=False).text.splitlines()

    def members(self, key: str) -> set[str]:
        return {item["user_id"] for item in self.api.get(f"/v1/segments/{key}/members").json()["items"]}


@contextmanager
def secure_pipeline(secure: Secure) -> Iterator[Pipeline]:
    """Run one process of each service, started at once."""
    with ExitStack() as last:
        services = {name: last.enter_context(secure.process(name, ready=False)) for name in SERVICES}
        for service in services.values():
            eventually(_is_ready_or_ended(service))
        headers = {"Authorization": f"Bearer {TOKEN}"}
        ingest = httpx.Client(base_url=services["ingest"].url, auth=(WRITE_KEY, ""), timeout=30, trust_env=False)
        api = httpx.Client(base_url=services["api"].url, headers=headers, timeout=30, trust_env=False)
        tracker = httpx.Client(base_url=services["tracker"].url, timeout=30, trust_env=False)
        yield Pipeline(last.enter_context(ingest), last.enter_context(api), last.enter_context(tracker), services)
        for service in services.values():
            service.process.terminate()  # all at once; the end of each block waits for its own


def _is_ready_or_ended(service: Service) -> Callable[[], bool]:
    def ask() -> bool:
        assert service.process.poll() is None, service.log.read_text()[-4_000:]
        return service.is_ready()

    return ask
