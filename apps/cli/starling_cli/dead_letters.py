"""Adapter: reads dead letters and replays them."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import httpx
from confluent_kafka import KafkaException, Producer

from starling_cli.api_client import refusal
from starling_common.headers import CONTENT_TYPE, record_headers
from starling_common.kafka.clients import producer_config
from starling_common.kafka.topic_range import read_topic
from starling_common.kafka.topics import load_catalogue
from starling_common.records.dead_letters import FOLD_ORIGIN, SWITCH_ORIGIN, TIMER_ORIGIN
from starling_common.time.instants import wall_clock_ms
from starling_common.wire import PROTOBUF, Codec, DecodeError, Registry, batch_of_one
from starling_local.errors import UserError
from starling_local.stack.parts.services import WRITE_KEY

REPLAYS = "dlq.replays"
TRACKER = "tracker"
_SUFFIX = ".dlq"
_REPEATED_HEADERS = frozenset({"starling-replay", "content-type"})
"""Headers of a dead letter of the tracker that its request had, or gets."""
_TIMEOUT_SECONDS = 30.0


class UnknownLetter(UserError):
    """No dead letter has the id."""


class UnreadableLetter(UserError):
    """A record of a dead-letter topic cannot be decoded."""


class ReplayFailed(UserError):
    """The record was not replayed; its dead letter is unchanged."""


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter. Shape: `id` is `stage:partition:offset` in the stage's dead-letter topic."""

    id: str
    record: Mapping[str, Any]
    replayed: bool

    @property
    def stage(self) -> str:
        """Return the stage that refused the record."""
        return self.id.partition(":")[0]


class DeadLetters:
    """Reads and replays dead letters; a context manager, which closes the connections of replays.

    Methods raise BrokerUnavailable, SchemaMissing, RegistryUnavailable.
    """

    def __init__(self, brokers: str, registry_url: str, ingest_url: str, tracker_url: str | None = None) -> None:
        """Store the addresses; no connection is opened. `tracker_url` None: dead letters of the tracker are not replayed."""
        self._brokers = brokers
        self._registry = Registry(registry_url)
        self._ingest_url = ingest_url
        self._tracker_url = tracker_url
        # One for all letters: a client takes 25 ms to read the authorities of the system.
        self._http = httpx.Client(timeout=_TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections that replays opened."""
        self._http.close()

    def letters(self, stage: str | None = None) -> Iterator[Letter]:
        """Yield every dead letter of one stage, or of all stages."""
        replayed = self._replayed()
        for name in stages() if stage is None else (stage,):
            codec = self._registry.codec(f"{name}{_SUFFIX}", "DeadLetter")
            for message in read_topic(self._brokers, f"{name}{_SUFFIX}"):
                letter_id = f"{name}:{message.partition()}:{message.offset()}"
                yield Letter(letter_id, _decoded(codec, message.value() or b""), letter_id in replayed)

    def find(self, ids: Iterable[str]) -> list[Letter]:
        """Return the dead letters with these ids. Raises UnknownLetter with the ids that were not found."""
        wanted = set(ids)
        known = [stage for stage in stages() if any(one.startswith(f"{stage}:") for one in wanted)]
        found = [letter for stage in known for letter in self.letters(stage) if letter.id in wanted]
        if missing := sorted(wanted - {letter.id for letter in found}):
            raise UnknownLetter(f"no dead letter is called {', '.join(missing)}: see `starling dlq list`")
        return found

    def replay(self, letter: Letter) -> None:
        """Publish the original bytes to their origin and mark the dead letter as replayed. Raises ReplayFailed.

        The dead letter of a timer, a switch or a fold has no record: it is only marked.
        """
        if letter.record["origin_topic"] in (TIMER_ORIGIN, SWITCH_ORIGIN, FOLD_ORIGIN):
            self._in_transaction(letter, original=False)
        elif letter.record["origin_topic"].startswith("/"):
            if letter.stage == TRACKER:
                self._call_back(letter)
            else:
                self._post(letter)
            self._in_transaction(letter, original=False)
        else:
            self._in_transaction(letter, original=True)

    def _replayed(self) -> set[str]:
        codec = self._registry.codec(REPLAYS, "DeadLetterReplayed")
        return {codec.decode(message.value() or b"")["letter"] for message in read_topic(self._brokers, REPLAYS)}

    def _in_transaction(self, letter: Letter, *, original: bool) -> None:
        """Publish the original and the mark in one transaction; neither is visible without the other."""
        record = letter.record
        codec = self._registry.codec(REPLAYS, "DeadLetterReplayed")
        producer = Producer(producer_config(self._brokers, **{"transactional.id": f"starling-dlq-replay-{letter.id}"}))
        mark = codec.encode({"letter": letter.id, "origin_topic": record["origin_topic"], "replayed_at": wall_clock_ms()})
        headers = record_headers(record["correlation_id"] or str(uuid.uuid4()), "starling-local")
        try:
            producer.init_transactions(_TIMEOUT_SECONDS)
            producer.begin_transaction()
            if original:
                producer.produce(
                    record["origin_topic"],
                    record["value"],
                    record["key"],
                    partition=record["origin_partition"],
                    headers=list(record["headers"].items()),
                )
            producer.produce(REPLAYS, mark, letter.id.encode(), headers=headers)
            producer.commit_transaction(_TIMEOUT_SECONDS)
        except KafkaException as cause:
            raise ReplayFailed(f"{letter.id} was not replayed: {cause.args[0].str()}") from cause

    def _post(self, letter: Letter) -> None:
        """Send a dead letter of the ingest service to the same endpoint again, in the same format."""
        body, headers = repeated(letter.record)
        url = f"{self._ingest_url}{letter.record['origin_topic']}"
        try:
            answer = self._http.post(url, content=body, headers=headers, auth=(WRITE_KEY, ""))
        except httpx.HTTPError as error:
            raise ReplayFailed(f"{self._ingest_url} does not answer ({error}): see `starling status`") from error
        if answer.status_code != httpx.codes.OK or not answer.json().get("success"):
            raise ReplayFailed(f"{letter.id} was refused again: {refusal(answer)}")

    def _call_back(self, letter: Letter) -> None:
        """Send the report of a provider to the tracker again, with the proof that the tracker has authenticated it before."""
        record = letter.record
        headers = {name: value for name, value in record["headers"].items() if name in _REPEATED_HEADERS}
        try:
            url = f"{self._tracker_url}{record['origin_topic']}"
            answer = self._http.post(url, content=record["value"], headers=headers)
        except httpx.HTTPError as error:
            raise ReplayFailed(f"the tracker {self._tracker_url} does not answer ({error}): see `starling status`") from error
        if answer.status_code != httpx.codes.OK:
            raise ReplayFailed(f"{letter.id} was refused again: {answer.text.strip()}")


def repeated(record: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    """Return the body and headers of a request that repeats one dead letter of the ingest service."""
    value, one_of_many = record["value"], record["origin_topic"] in ("/v1/batch", "/v1/b", "/v1/import")
    if record["headers"].get(CONTENT_TYPE) == PROTOBUF.encode():
        return batch_of_one(value) if one_of_many else value, {"Content-Type": PROTOBUF}
    return b'{"batch":[' + value + b"]}" if one_of_many else value, {}


def stages() -> list[str]:
    """Return the names of the stages that have a dead-letter topic."""
    return [name.removesuffix(_SUFFIX) for name in load_catalogue().topics if name.endswith(_SUFFIX)]


def _decoded(codec: Codec, value: bytes) -> Mapping[str, Any]:
    try:
        return codec.decode(value)
    except DecodeError as error:
        raise UnreadableLetter(f"a dead letter cannot be read: {error}") from error
