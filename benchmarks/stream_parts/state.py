"""The segmenter with the state of many users: memory, a soak, and a restore with the local disk gone. See `stream.py`.

The stack has Cassandra, which the worker uses as its backing store. Stock Faust recovers from the same changelog: Starling's
records, unwrapped, in the changelog topic of its table.
"""

import json
import os
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from common import segmenting, shop
from common.bench import HERE, PARTITIONS, Progress, Stack, Watched, add_topics, stack, write
from confluent_kafka import Consumer, KafkaError, TopicPartition

from starling_common.kafka.clients import consumer_config
from starling_common.kafka.topics import BEHAVIOUR
from starling_stream.model.changelog import decode_state_changed
from starling_stream.model.rows import META_KEY
from stream_parts import live

CHANGELOG: Final = "segmenter-state-changelog"
_FAUST_CHANGELOG: Final = "stock-segmenter-users-changelog"
_DUE_BYTES: Final = 8
_SOAK_RATE: Final = 5_000
_BACK_SHARE: Final = 0.8


@dataclass(frozen=True)
class Options:
    """Seconds of soak (0: none), events of the backlog, users that stock Faust recovers (0: none)."""

    soak_seconds: int
    restore_events: int
    faust_users: int


def measured(directory: Path, users: int, options: Options) -> dict[str, Any]:
    """Return the results for a number of users: `memory`, `soak` and `stock_faust` (optional), `restore`."""
    with stack(directory / "stack", cassandra=True) as made:
        segmenting.define(made, shop.conditions())
        found: dict[str, Any] = {"users": users}
        worker = segmenting.make_known(made, directory, users, "wall")
        try:
            time.sleep(10)
            found["memory"] = {"resident_mb_with_all_users": round(worker.resident_mb()), "state_bytes_on_disk": _size(directory)}
            if options.soak_seconds:
                found["soak"] = soak(made, worker, options.soak_seconds)
        finally:
            worker.stop()
        found["restore"] = restore(made, directory, options.restore_events)
        if options.faust_users:
            found["stock_faust"] = faust_recovery(made, directory, min(users, options.faust_users), users)
            theirs, ours = found["stock_faust"]["seconds_scaled_to_all_users"], found["restore"]["seconds_to_first_event"]
            found["restore"]["times_faster_than_stock_faust"] = round(theirs / ours, 1)
    return found


def soak(made: Stack, worker: Watched, seconds: int) -> dict[str, Any]:
    """Return resident memory under steady traffic; flat when the last third's median is within 2 % of the middle one's.

    `events_behind`: sent and not processed at the end. A worker that cannot keep up reads ahead up to its limit, so such a run
    does not show whether memory is flat.
    """
    traffic, progress = live.Traffic(made, _SOAK_RATE, 0, "soak"), segmenting.events(made)
    before = progress.done()
    traffic.start()
    sampled = []
    for _ in range(seconds):
        time.sleep(1)
        worker.check()
        sampled.append(worker.resident_mb())
    behind = before + traffic.sent - progress.done()
    traffic.stop()
    progress.close()
    third = max(1, len(sampled) // 3)
    middle, last = statistics.median(sampled[third : 2 * third]), statistics.median(sampled[-third:])
    return {
        "seconds": seconds,
        "events_per_second": _SOAK_RATE,
        "resident_mb_max": round(max(sampled)),
        "resident_mb_middle_third": round(middle),
        "resident_mb_last_third": round(last),
        "resident_mb_each_minute": [round(statistics.median(sampled[at : at + 60])) for at in range(0, len(sampled), 60)],
        "events_behind": behind,
    }


def restore(made: Stack, directory: Path, events: int) -> dict[str, Any]:
    """Kill the worker in a backlog, delete its disk and restart it; return the times to its first event and its former speed."""
    before = segmenting.events(made)
    done = before.done()
    begins_ms = int(time.time() * 1000) - segmenting.HOUR_MS
    segmenting.load(made, BEHAVIOUR, shop.behaviour(events, 1, begins_ms, segmenting.HOUR_MS))
    worker = segmenting.start(made, directory, "wall")
    before.wait(done + events // 10, worker)
    os.kill(worker.pid, signal.SIGKILL)
    worker.stop()
    shutil.rmtree(directory / "state")
    reached = before.done()
    home = directory / "restored"
    worker = segmenting.start(made, home, "wall")
    try:
        return _watch_restore(worker, before, (reached, done + events))
    finally:
        worker.stop()
        before.close()


def _watch_restore(worker: Watched, progress: Progress, span: tuple[int, int]) -> dict[str, Any]:
    """`span`: the events committed at its start, and the end of the backlog."""
    reached, end = span
    marks = [(time.time(), reached)]
    while marks[-1][1] < end:
        worker.check()
        done = progress.done()
        if done > marks[-1][1]:
            marks.append((time.time(), done))
        time.sleep(0.02)
    wanted = {"assigned", "task_running"}
    # The last entry of each: all partitions are assigned together, and run one after the other.
    at = {entry["event"]: _instant(entry["timestamp"]) for entry in _entries(worker.log) if entry["event"] in wanted}
    return {
        "seconds_to_first_event": round(marks[1][0] - at["assigned"], 2),
        "seconds_to_all_partitions": round(at["task_running"] - at["assigned"], 2),
        **_steady(marks[1:], at["assigned"]),
    }


def _steady(marks: Sequence[tuple[float, int]], assigned: float) -> dict[str, Any]:
    """Return the rate of the last third of the events, and when the rate over two seconds first reached 80 % of it."""
    last_at, last_done = marks[-1]
    from_at, from_done = next(mark for mark in marks if mark[1] >= marks[0][1] + 2 * (last_done - marks[0][1]) // 3)
    steady = (last_done - from_done) / max(0.001, last_at - from_at)
    back = None
    for at, done in marks:
        later = next((mark for mark in marks if mark[0] >= at + 2), None)
        if later is not None and (later[1] - done) / (later[0] - at) >= _BACK_SHARE * steady:
            back = at
            break
    return {
        "steady_events_per_second": round(steady),
        "seconds_to_80_percent": None if back is None else round(back - assigned, 1),
    }


def faust_recovery(made: Stack, directory: Path, replayed: int, users: int) -> dict[str, Any]:
    """Measure stock Faust with `replayed` states in its changelog, from its assignment to its first event."""
    add_topics(made.brokers, dict.fromkeys(("stock-segmenter-membership", "stock-segmenter-membership-state"), PARTITIONS))
    add_topics(made.brokers, {_FAUST_CHANGELOG: PARTITIONS}, {"cleanup.policy": "compact"})
    count = write(made.brokers, _FAUST_CHANGELOG, _states(made, replayed))
    environment = made.environment() | {
        "PYTHONPATH": str(HERE),
        "PEER_INPUT": BEHAVIOUR,
        "PEER_COUNT": "1",
        "PEER_DATA_DIR": str(directory / "faust"),
    }
    log = directory / "faust.log"
    command = [sys.executable, str(HERE / "peers" / "stock_faust" / "app.py"), "worker", "--without-web", "-l", "error"]
    worker = Watched(command, environment, log)
    try:
        while "first_event_at" not in (output := _output(log)):
            worker.check()
            time.sleep(0.2)
    finally:
        worker.stop(5)
    seconds = output["first_event_at"] - output["assigned_at"]
    return {
        "records_replayed": count,
        "seconds_to_first_event": round(seconds, 2),
        "records_per_second": round(count / seconds),
        "seconds_scaled_to_all_users": round(seconds * max(1.0, users / count), 1),
    }


def _states(made: Stack, limit: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and states of the changelog, without version and due instant, up to the limit."""
    consumer = Consumer(consumer_config(made.brokers, "bench-changelog", **{"enable.partition.eof": True}))
    consumer.assign([TopicPartition(CHANGELOG, number, 0) for number in range(PARTITIONS)])
    ended, given = set[int](), 0
    while len(ended) < PARTITIONS and given < limit:
        for message in consumer.consume(5_000, 1.0):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public constant
                    ended.add(message.partition() or 0)
                continue
            key, (_, state) = message.key() or b"", decode_state_changed(message.value() or b"")
            if key != META_KEY and state and given < limit:
                given += 1
                yield key, state[_DUE_BYTES:]
    consumer.close()


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in (directory / "state").rglob("*") if path.is_file())


def _entries(log: Path) -> Iterator[dict[str, Any]]:
    for line in log.read_text().splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def _instant(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp()


def _output(log: Path) -> dict[str, float]:
    """Return the peer's JSON output between its log lines."""
    found: dict[str, float] = {}
    for line in log.read_text().splitlines():
        at = line.find('{"')  # a terminal's control codes may come before it
        if at >= 0:
            found |= json.loads(line[at:])
    return found
