"""Lag, clock, catalog and dead letters against a real broker and registry."""

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from starling_cli.settle.broker import Offsetter
from starling_cli.settle.settle import NotSettled, Pipeline, settle, stage_lag
from starling_common.kafka.clients import consumer_config, producer_config
from starling_common.kafka.topic_range import read_topic
from starling_common.kafka.topics import CLOCK, INGEST_TOPICS, PRODUCTS, Stage
from starling_common.wire import Registry
from starling_local.testing import Addresses
from tests.transactions import until_markers_are_written

Starling = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def topic(deployed: Addresses) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": deployed.kafka})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    return name


@pytest.fixture
def stage(topic: str) -> Stage:
    return Stage("reader", f"g-{topic}", (topic,), optional=False)


@pytest.fixture
def offsets(deployed: Addresses) -> Iterator[Offsetter]:
    with Offsetter(deployed.kafka) as found:
        yield found


def produce(deployed: Addresses, topic: str, count: int, *, transaction: str = "none") -> None:
    """`transaction`: none, commit or abort."""
    more = {} if transaction == "none" else {"transactional.id": uuid.uuid4().hex}
    producer = Producer(producer_config(deployed.kafka, **more))
    if transaction != "none":
        producer.init_transactions(30)
        producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, b"v", partition=number % 2)
    producer.flush(30)
    if transaction != "none":
        (producer.commit_transaction if transaction == "commit" else producer.abort_transaction)(30)
        until_markers_are_written(deployed.kafka, [topic])


def commit(deployed: Addresses, stage: Stage, *positions: int) -> None:
    consumer = Consumer(consumer_config(deployed.kafka, stage.group))
    wanted = [TopicPartition(stage.inputs[0], number, offset) for number, offset in enumerate(positions)]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


def test_an_empty_topic_has_no_lag(offsets: Offsetter, stage: Stage) -> None:
    assert stage_lag(offsets, stage) == 0


def test_unread_records_are_lag(deployed: Addresses, offsets: Offsetter, stage: Stage) -> None:
    produce(deployed, stage.inputs[0], 10)
    assert stage_lag(offsets, stage) == 10
    commit(deployed, stage, 5, 3)
    assert stage_lag(offsets, stage) == 2
    commit(deployed, stage, 5, 5)
    assert stage_lag(offsets, stage) == 0


def test_the_marker_after_the_last_record_is_no_lag(deployed: Addresses, offsets: Offsetter, stage: Stage) -> None:
    produce(deployed, stage.inputs[0], 4, transaction="commit")
    commit(deployed, stage, 2, 2)
    assert offsets.ends([(stage.inputs[0], 0)]) == {(stage.inputs[0], 0): 3}
    assert stage_lag(offsets, stage) == 0


def test_a_record_between_markers_is_lag(deployed: Addresses, offsets: Offsetter, stage: Stage) -> None:
    for _ in range(2):
        produce(deployed, stage.inputs[0], 2, transaction="commit")
    commit(deployed, stage, 2, 1)
    assert stage_lag(offsets, stage) > 0


def test_what_was_aborted_is_no_lag(deployed: Addresses, offsets: Offsetter, stage: Stage) -> None:
    produce(deployed, stage.inputs[0], 4, transaction="abort")
    assert stage_lag(offsets, stage) == 0


def test_settle_returns_when_the_group_is_at_the_end(deployed: Addresses, offsets: Offsetter, stage: Stage) -> None:
    produce(deployed, stage.inputs[0], 2)
    commit(deployed, stage, 1, 1)
    settle(Pipeline([stage], offsets, list), 30)


def test_settle_names_the_stage_that_lags(deployed: Addresses, offsets: Offsetter, stage: Stage) -> None:
    produce(deployed, stage.inputs[0], 3)
    with pytest.raises(NotSettled, match=r"not settled after 0.5 s: reader lags by 3 records"):
        settle(Pipeline([stage], offsets, list), 0.5)


def test_settle_waits_for_a_segment_that_is_backfilling(offsets: Offsetter, stage: Stage) -> None:
    with pytest.raises(NotSettled, match="segment vips is backfilling"):
        settle(Pipeline([stage], offsets, lambda: ["segment vips is backfilling"]), 0.5)


def test_settle_waits_for_an_open_transaction(deployed: Addresses, offsets: Offsetter, stage: Stage) -> None:
    """Committed by its stage, not to be read yet: as between the markers that one transaction leaves in several partitions."""
    produce(deployed, stage.inputs[0], 2)
    commit(deployed, stage, 1, 1)
    producer = Producer(producer_config(deployed.kafka, **{"transactional.id": uuid.uuid4().hex}))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(stage.inputs[0], b"v", partition=0)
    producer.flush(30)
    with pytest.raises(NotSettled, match="records are still being written"):
        settle(Pipeline([stage], offsets, list), 0.5)
    producer.abort_transaction(30)
    settle(Pipeline([stage], offsets, list), 30)


def test_settle_without_a_broker_reports_it(starling: Starling, stage: Stage) -> None:
    with Offsetter("127.0.0.1:9") as unreachable, pytest.raises(NotSettled, match="the broker does not answer"):
        settle(Pipeline([stage], unreachable, list), 0.5)


def test_the_clock_reaches_every_partition_once_and_never_goes_back(deployed: Addresses, starling: Starling) -> None:
    moved = starling(deployed.data_dir, "clock", "advance", "1998-07-01T00:00:00Z")
    assert (moved.returncode, moved.stdout) == (0, "stream time is 1998-07-01T00:00:00.000Z\n")
    back = starling(deployed.data_dir, "clock", "advance", "867628800000")
    assert (back.returncode, back.stdout) == (0, "the clock is at 1998-07-01T00:00:00.000Z already: nothing to do\n")

    codec = Registry(deployed.registry_url).codec(CLOCK, "ClockAdvanced")
    found = [
        (message.partition(), codec.decode(message.value() or b"")["instant"]) for message in read_topic(deployed.kafka, CLOCK)
    ]
    assert sorted(found) == [(number, 899_251_200_000) for number in range(8)]


@pytest.mark.parametrize("instant", ["tomorrow", "1e99"])
def test_the_clock_refuses_what_is_no_instant(deployed: Addresses, starling: Starling, instant: str) -> None:
    refused = starling(deployed.data_dir, "clock", "advance", instant)
    assert refused.returncode == 2
    assert "no ISO 8601 time" in refused.stderr


def test_products_are_keyed_by_workspace_and_id(deployed: Addresses, starling: Starling, tmp_path: Path) -> None:
    file = tmp_path / "products.csv"
    file.write_text("product_id,category,price,brand,name\ncd-1,music,9.5,,One\ncd-2,music,,,Two\n")
    loaded = starling(deployed.data_dir, "catalog", "load", str(file))
    assert (loaded.returncode, loaded.stdout) == (0, "loaded 2 products\n")
    codec = Registry(deployed.registry_url).codec(PRODUCTS, "ProductListed")
    found = {message.key(): codec.decode(message.value() or b"") for message in read_topic(deployed.kafka, PRODUCTS)}
    assert set(found) == {b"default/cd-1", b"default/cd-2"}
    assert (found[b"default/cd-1"]["price"], found[b"default/cd-2"]["price"]) == (9.5, None)


def test_topics_shows_what_is_there(deployed: Addresses, starling: Starling) -> None:
    shown = starling(deployed.data_dir, "topics")
    assert shown.returncode == 0
    lines = {line.split()[0]: line.split()[1:] for line in shown.stdout.splitlines()}
    assert lines["ingest.track"][0] == "8"
    assert lines["segments.definitions"][:2] == ["1", "0"]


def dead_letter(origin_topic: str, **changed: Any) -> dict[str, Any]:
    return {
        "received_at": 1_700_000_000_000_000,
        "stage": "normalizer",
        "code": "bad_framing",
        "message": "no header",
        "origin_topic": origin_topic,
        "origin_partition": 3,
        "origin_offset": 17,
        "key": b"default/u1",
        "value": b"\x01\xff not avro",
        "headers": {"correlation_id": b"c-1"},
        "workspace": "default",
        "correlation_id": "c-1",
        "refused_at": 1_700_000_000_000,
        **changed,
    }


def bury(deployed: Addresses, stage: str, letter: dict[str, Any]) -> None:
    codec = Registry(deployed.registry_url).codec(f"{stage}.dlq", "DeadLetter")
    producer = Producer(producer_config(deployed.kafka))
    producer.produce(f"{stage}.dlq", codec.encode(letter), letter["key"])
    assert producer.flush(30) == 0


def test_a_dead_letter_is_listed_shown_and_put_back_once(deployed: Addresses, starling: Starling) -> None:
    bury(deployed, "normalizer", dead_letter(INGEST_TOPICS[0]))
    listed = starling(deployed.data_dir, "dlq", "list", "--stage", "normalizer").stdout
    assert "normalizer:0:0" in listed
    assert f"{INGEST_TOPICS[0]}:3:17" in listed
    assert listed.endswith("1 dead letter\n")

    shown = json.loads(starling(deployed.data_dir, "dlq", "show", "normalizer:0:0").stdout)
    assert (shown["value"], shown["key"], shown["replayed"]) == ("hex:01ff206e6f74206176726f", "default/u1", False)

    put_back = starling(deployed.data_dir, "dlq", "replay", "--all")
    assert put_back.stdout == f"normalizer:0:0 replayed to {INGEST_TOPICS[0]}\nreplayed 1\n", put_back.stderr
    (message,) = read_topic(deployed.kafka, INGEST_TOPICS[0])
    assert (message.partition(), message.key(), message.value()) == (3, b"default/u1", b"\x01\xff not avro")
    assert message.headers() == [("correlation_id", b"c-1")]

    assert "replayed" in starling(deployed.data_dir, "dlq", "list").stdout
    assert starling(deployed.data_dir, "dlq", "replay", "--all").stdout == "replayed 0\n"


def test_a_letter_that_is_not_there_is_named(deployed: Addresses, starling: Starling) -> None:
    for wrong in ("normalizer:0:99", "frog:0:0", "x"):
        refused = starling(deployed.data_dir, "dlq", "show", wrong)
        assert refused.returncode == 1
        assert f"no dead letter is called {wrong}" in refused.stderr


def test_replay_wants_to_know_what(deployed: Addresses, starling: Starling) -> None:
    refused = starling(deployed.data_dir, "dlq", "replay")
    assert refused.returncode == 2
    assert "--all" in refused.stderr


def test_an_item_of_the_edge_goes_back_over_http(deployed: Addresses, starling: Starling) -> None:
    letter = dead_letter("/v1/track", stage="ingest", origin_partition=-1, origin_offset=-1, key=None, value=b'{"userId": "u"}')
    bury(deployed, "ingest", letter)
    refused = starling(deployed.data_dir, "dlq", "replay", "ingest:0:0")
    # Nothing listens at the ingest address of this stack: the letter stays as it was.
    assert refused.returncode == 1
    assert f"{deployed.ingest_url} does not answer" in refused.stderr
    assert json.loads(starling(deployed.data_dir, "dlq", "show", "ingest:0:0").stdout)["replayed"] is False
