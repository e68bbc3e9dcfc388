"""The group's metadata in the producer's format, the offsets that a transaction needs, and failpoints."""

import re
import struct
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from starling_stream.kafka.membership import Membership
from starling_stream.kafka.transactions import Naming, NextGeneration, NotOwner, Offset, Replaced, Transactions, group_metadata
from starling_stream.model.failpoints import FAILPOINTS, Failpoints
from starling_stream.model.meta import TaskMeta
from starling_stream.model.ports import Sealed
from starling_stream.model.settings import StreamSettings


@pytest.mark.parametrize("instance", [None, "pod-1"])
def test_group_metadata_is_laid_out_as_the_client_itself_does(instance: str | None) -> None:
    named = {} if instance is None else {"group.instance.id": instance}
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, **named})
    reference: object = consumer.consumer_group_metadata()
    consumer.close()
    assert group_metadata(Membership("g", -1, "", instance)) == reference


def test_group_metadata_carries_generation_and_member() -> None:
    assert group_metadata(Membership("g", 7, "m-1", None)) == b"CGMDv2:" + struct.pack("<i", 7) + b"g\0m-1\0\1"


@pytest.mark.parametrize(
    ("partitions", "offsets", "named"), [((0,), (), "[0]"), ((), (), "[]"), ((0, 1, 2), (Offset("in", 1, 5),), "[0, 2]")]
)
def test_a_transaction_without_an_offset_of_each_partition_is_not_begun(
    partitions: tuple[int, ...], offsets: tuple[Offset, ...], named: str
) -> None:
    naming = Naming("s", "s-state-changelog", "s.dlq", b"", lambda _: b"")
    transactions = Transactions("127.0.0.1:1", "t", 1, naming, Failpoints(None))
    units = [Sealed(partition, TaskMeta(1), {}, (), (), 1, drained=True) for partition in partitions]
    with pytest.raises(RuntimeError, match=re.escape(f"no input offset of partitions {named}")):
        transactions.submit(units, offsets)


def test_an_unknown_failpoint_is_refused() -> None:
    with pytest.raises(ValueError, match="after_lunch"):
        Failpoints("after_lunch:2")


def test_no_failpoint_is_active_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise AssertionError("it would have killed this process")

    monkeypatch.setattr("os.kill", killed)
    assert StreamSettings.model_fields["failpoint"].default is None
    for name in FAILPOINTS:
        Failpoints(None).passed(name)


class Broker:
    """A broker whose clients get a retriable error 100 times, 30 s apart; `answers_new`: a new client gets an answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, answers_new: bool) -> None:
        self.now = 0.0
        self.calls = 0
        self.new_ids: list[str] = []
        self._answers_new = answers_new
        monkeypatch.setattr("starling_stream.kafka.transactions.monotonic", lambda: self.now)
        monkeypatch.setattr("starling_stream.kafka.transactions.Producer", self._open)

    def call(self) -> None:
        self.now += 30
        self.calls += 1
        if self.calls <= 100:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "timed out", False, True))

    def _open(self, config: dict[str, Any]) -> "Broker":
        self.new_ids.append(config["transactional.id"])
        return self

    def init_transactions(self, _seconds: float) -> None:
        if not self._answers_new:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_a_client_without_an_answer_that_a_new_one_gets_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, answers_new=True)
    transactions = Transactions("b", "t", 1, Naming("s", "s", "s.dlq", b"", lambda _: b""), Failpoints(None))
    with pytest.raises(Replaced, match="a new client had an answer"):
        transactions._until_done(broker.call)
    assert (broker.now, broker.new_ids, transactions.returned_at) == (150.0, ["t-check"], 120.0)


def test_a_broker_without_an_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, answers_new=False)
    transactions = Transactions("b", "t", 1, Naming("s", "s", "s.dlq", b"", lambda _: b""), Failpoints(None))
    transactions._until_done(broker.call)
    assert (broker.calls, transactions.returned_at) == (101, broker.now)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.ILLEGAL_GENERATION, NextGeneration),
        (KafkaError.REBALANCE_IN_PROGRESS, NextGeneration),
        (KafkaError.UNKNOWN_MEMBER_ID, NotOwner),
        (KafkaError.FENCED_INSTANCE_ID, Replaced),
    ],
)
def test_a_removed_member_is_distinguished_from_one_of_an_earlier_generation(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception]
) -> None:
    class Refusing:
        aborted = 0

        def init_transactions(self, _seconds: float) -> None:
            """The id is accepted."""

        def begin_transaction(self) -> None:
            """No request."""

        def send_offsets_to_transaction(self, *_: object) -> None:
            raise KafkaException(KafkaError(code))

        def abort_transaction(self, _seconds: float) -> None:
            self.aborted += 1

        def poll(self, _seconds: float) -> None:
            """No report."""

    producer = Refusing()
    monkeypatch.setattr("starling_stream.kafka.transactions.Producer", lambda _: producer)
    transactions = Transactions("b", "t", 1, Naming("s", "s", "s.dlq", b"", lambda _: b""), Failpoints(None))
    transactions.begin()
    submitted = transactions.submit([], [Offset("in", 0, 5)])
    with pytest.raises(kind) as raised:
        transactions.commit(submitted, Membership("g", 7, "m", "w0"))
    assert raised.type is kind
    assert producer.aborted == (0 if kind is Replaced else 1)
