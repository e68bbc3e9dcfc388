"""Offsets that do not fit the states, with real workers: the start is refused, and the operators' commands cure it."""

import urllib.error
import urllib.request

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from starling_common.kafka.clients import consumer_config
from starling_common.kafka.lost_input import InputLost, check_input
from starling_common.kafka.topics import Catalogue, Stage
from starling_stream.inspect import positions
from starling_stream.inspect.operations import main
from tests.integration.stream.checks import counts_by_key, expected_counts, send_events
from tests.integration.stream.rig import Rig, Worker, wait_until


@pytest.fixture
def addressed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """The commands find the stack in the environment."""
    monkeypatch.setenv("STARLING_KAFKA__BROKERS", rig.brokers)
    monkeypatch.setenv("STARLING_REGISTRY__URL", rig.registry_url)
    monkeypatch.setenv("STARLING_CASSANDRA__CONTACT_POINTS", "127.0.0.1")  # not needed, and not reached
    return rig


def _readiness(worker: Worker) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/readyz", timeout=2) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as answer:
        return str(answer.read().decode())
    except OSError:
        return ""


def _refused(rig: Rig, why: str) -> None:
    """Start a worker that must refuse its partitions and report the reason; stop it."""
    written = sorted(rig.read(f"{rig.stage}.out"))
    worker = rig.start()
    wait_until(lambda: why in _readiness(worker) or not worker.alive(), why, details=lambda: worker.log.read_text()[-3_000:])
    assert f"starling stage resume {rig.stage}" in _readiness(worker)
    assert "offsets_refused" in worker.log.read_text()
    assert worker.terminate(leave=True) == 0
    assert sorted(rig.read(f"{rig.stage}.out")) == written, "nothing was processed"


@pytest.mark.long
def test_a_deleted_group_does_not_fold_history_a_second_time(addressed: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    rig = addressed
    sent = send_events(rig, 300)
    first = rig.start()
    rig.wait_settled([first])
    assert main(["--stage", rig.stage, "resume", "--timeout", "0"]) == 1
    assert "has running workers: stop all of them" in capsys.readouterr().err
    assert first.terminate(leave=True) == 0
    admin = AdminClient({"bootstrap.servers": rig.brokers})
    admin.delete_consumer_groups([rig.group])[rig.group].result()
    _refused(rig, "the group has no committed offset, but the states contain the records before offset")
    assert main(["--stage", rig.stage, "resume"]) == 0
    assert f"{rig.inputs[0]} 0: none -> " in capsys.readouterr().out
    sent += send_events(rig, 100)
    rig.wait_settled([rig.start()])
    assert counts_by_key(rig) == expected_counts(sent)


@pytest.mark.long
def test_offsets_that_were_set_forwards_skip_nothing(addressed: Rig) -> None:
    rig = addressed
    sent = send_events(rig, 300)
    first = rig.start()
    rig.wait_settled([first])
    assert first.terminate(leave=True) == 0
    sent += send_events(rig, 100)
    consumer = Consumer(consumer_config(rig.brokers, rig.group))
    ends = [TopicPartition(topic, number) for topic in rig.inputs for number in range(rig.partitions)]
    for end in ends:
        end.offset = consumer.get_watermark_offsets(end, timeout=10)[1]
    consumer.commit(offsets=ends, asynchronous=False)
    consumer.close()
    _refused(rig, "but the states contain only the records before offset")
    assert main(["--stage", rig.stage, "resume"]) == 0
    rig.wait_settled([rig.start()])
    assert counts_by_key(rig) == expected_counts(sent)


@pytest.mark.long
def test_input_that_expired_while_a_stage_was_down_is_not_skipped_in_silence(
    addressed: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = addressed
    sent = send_events(rig, 300)
    first = rig.start()
    rig.wait_settled([first])
    assert first.terminate(leave=True) == 0
    lost = send_events(rig, 100)
    admin = AdminClient({"bootstrap.servers": rig.brokers})
    everything = [TopicPartition(rig.inputs[0], number, -1) for number in range(rig.partitions)]
    for deleted in admin.delete_records(everything).values():
        deleted.result()
    _refused(rig, "expired before they were processed")
    assert main(["--stage", rig.stage, "resume"]) == 1
    assert "the states continue at offset" in capsys.readouterr().err
    assert main(["--stage", rig.stage, "accept-loss"]) == 0
    sent += [record for record in lost if record[0] == rig.inputs[1]] + send_events(rig, 100)
    rig.wait_settled([rig.start()])
    assert counts_by_key(rig) == expected_counts(sent)


def test_a_stage_without_states_continues_with_the_records_that_exist(
    addressed: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rig, topic = addressed, addressed.inputs[0]
    stage = Stage("letters", f"letters-{rig.stage}", (topic,), optional=False)
    monkeypatch.setattr(positions, "load_catalogue", lambda: Catalogue({}, (stage,)))
    rig.send_to_each_partition([(topic, b"k", b"v")] * 5)
    consumer = Consumer(consumer_config(rig.brokers, stage.group))
    committed = {0: 1, 1: 3, 2: 100}
    consumer.commit(offsets=[TopicPartition(topic, number, offset) for number, offset in committed.items()], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": rig.brokers})
    for deleted in admin.delete_records([TopicPartition(topic, number, 2) for number in range(4)]).values():
        deleted.result()
    with pytest.raises(
        InputLost, match=f"{topic} 0: offsets 1 to 2 expired .*; {topic} 2: the committed offset 100 is after the end, 5"
    ):
        check_input(consumer, "letters", [topic], 10)
    assert main(["--stage", "letters", "resume"]) == 1
    assert "letters has no states to resume from" in capsys.readouterr().err
    assert main(["--stage", "letters", "accept-loss"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{topic} 0: 1 -> 2", f"{topic} 2: 100 -> 2", f"{topic} 3: none -> 2", "3 offsets changed: start the workers"]
    check_input(consumer, "letters", [topic], 10)
    consumer.close()
