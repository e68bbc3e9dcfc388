"""A broadcast to many members through the real broadcaster, messenger and channel process, with a no-op channel, beside triggers.

The members are written to the read model in Cassandra, and their profiles and entries to the messenger's inputs, before the
measurement. The benchmark takes the place of the segmenter: it writes `segments.clock`, and the entries of the triggers. A
broadcast begins when the read model passes its instant, and ends when the channel has the last message.
"""

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
from common.bench import PARTITIONS, Progress, Stack, percentile, stack
from common.segmenting import load
from confluent_kafka import Producer

from delivery_parts import records
from delivery_parts.latencies import RATE
from delivery_parts.noop_process import BULK_PREFIX
from delivery_parts.processes import MESSAGES, Service, running
from delivery_parts.stages import Sample, report
from starling_common.cassandra.database import Database
from starling_common.cassandra.read_models import member_bucket
from starling_common.kafka.clients import producer_config
from starling_common.kafka.topics import BROADCASTS, MEMBERSHIP_STATE, PROFILE, SEGMENT_CLOCK, load_catalogue
from starling_common.kafka.topics import stage as stage_of
from starling_common.partitioning import partition_of
from starling_common.settings import Cassandra
from starling_common.time.instants import format_instant
from starling_common.values import record_key
from starling_common.wire import Registry

SEGMENT: Final = "sale"
MOST_RATE: Final = 100_000
"""The highest `rate` of a campaign, so that the pace does not limit."""
MOST_ROUNDS_OF: Final = 50_000
"""Of more members there is one round."""
_PEOPLE: Final = 20_000
"""The people of the triggers: each enters once."""
_WARM_UP: Final = 40
_ALONE_SECONDS: Final = 15.0
_AHEAD_MS: Final = 3_000
_CHUNK: Final = 5_000
_CLOCK_SECONDS: Final = 0.2
_LOOK_SECONDS: Final = 0.25
_PATIENCE_SECONDS: Final = 1_800.0
_POLICY: Final = {"timezone": "UTC", "consent": {"email": "opt_out"}, "caps": [{"limit": 100, "per": "7d"}]}
_MEMBER: Final = (
    "INSERT INTO {ks}.segment_members (workspace, segment_key, bucket, user_id, entered_at_ms, sequence) VALUES (?, ?, ?, ?, ?, 1)"
)
_READ_MODEL: Final = "INSERT INTO {ks}.segmenter_progress (id, source_partition, stream_time_ms) VALUES (0, ?, ?)"


class Threaded:
    """Runs `_run` in a thread until `close`, which raises what ended it."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        if self._failure is not None:
            raise self._failure

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as failure:  # noqa: BLE001 - `close` raises it
            self._failure = failure

    def _run(self) -> None:
        raise NotImplementedError


class SegmentsClock(Threaded):
    """Publishes that the memberships of every partition are complete up to now."""

    def __init__(self, made: Stack) -> None:
        super().__init__()
        self._encode = Registry(made.registry_url).codec(SEGMENT_CLOCK, load_catalogue().topics[SEGMENT_CLOCK].schema).encode
        self._producer = Producer(producer_config(made.brokers, log_level=0))

    def _run(self) -> None:
        while not self._stopping.wait(_CLOCK_SECONDS):
            now_ms = int(time.time() * 1000)
            value = self._encode({"received_at": now_ms * 1000, "instant": now_ms, "correlation_id": "benchmark"})
            for partition in range(PARTITIONS):
                self._producer.produce(SEGMENT_CLOCK, value, b"", partition, headers=records.HEADERS)
            assert self._producer.flush(30) == 0


class Triggers(Threaded):
    """Lets people enter the segment of the triggered campaign. `entered`: person -> when the broker had the entry."""

    def __init__(self, made: Stack, first: int) -> None:
        super().__init__()
        self._encode = Registry(made.registry_url).codec(MEMBERSHIP_STATE, load_catalogue().topics[MEMBERSHIP_STATE].schema).encode
        self._producer = Producer(producer_config(made.brokers, **{"linger.ms": 0, "log_level": 0}))
        self._first = first
        self.entered: dict[str, float] = {}

    @property
    def next(self) -> int:
        """Return the number of the next person."""
        return self._first + len(self.entered)

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stopping.wait(max(0.0, began + len(self.entered) / RATE - time.monotonic())):
            number = self.next
            if number >= _PEOPLE:
                raise RuntimeError(f"the broadcast took longer than {_PEOPLE / RATE:.0f} s: the triggers have no person left")
            person = _person(number)
            value = self._encode(records.change(person, records.CAMPAIGN, 1, int(time.time() * 1000)))
            key = record_key(records.WORKSPACE, f"{person}/{records.CAMPAIGN}")
            partition = partition_of(record_key(records.WORKSPACE, person), PARTITIONS)
            self._producer.produce(MEMBERSHIP_STATE, value, key, partition, headers=records.HEADERS)
            assert self._producer.flush(30) == 0
            self.entered[person] = time.monotonic()


def _person(number: int) -> str:
    return f"person-{number}"


class Notes:
    """Reads what the channel notes in its file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open()
        self._rest = ""
        self.bulk = 0
        self.arrived: dict[str, float] = {}
        """Person of a trigger -> when the channel got the message."""

    def read(self) -> None:
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        for line in lines:
            kind, at, what = line.split(" ")
            if kind == "N":
                self.bulk = int(what)
            else:
                self.arrived.setdefault(what, float(at))


def measured(directory: Path, members: int, rounds: int) -> dict[str, Any]:
    """Return the figures of each broadcast, with the medians."""
    rounds = rounds if members <= MOST_ROUNDS_OF else 1
    with stack(directory / "stack", cassandra=True) as made, ExitStack() as ends:
        site = Site(made, directory, members)
        ends.callback(site.database.close)
        setup_began = time.monotonic()
        site.define()
        site.write_members()
        site.load()
        with site.started():
            setup_seconds = time.monotonic() - setup_began
            alone = site.triggered_alone()
            if members <= MOST_ROUNDS_OF:
                site.broadcast(rounds)  # not kept: the processes, the broker and Cassandra are cold
            each = [site.broadcast(number) for number in range(rounds)]
    return {
        "members": members,
        "rounds": rounds,
        "setup_seconds": round(setup_seconds),
        "triggers_per_second": RATE,
        "triggers_alone": alone,
        **{
            name: statistics.median(one[name] for one in each)
            for name in ("seconds", "members_per_second", "seconds_for_a_million")
        },
        "triggers_p99_ms": statistics.median(one["triggers"]["p99_ms"] for one in each),
        "limiting_stages": [one["limiting_stage"] for one in each],
        "each": each,
    }


class Site:
    """The stack with its members, and the processes."""

    def __init__(self, made: Stack, directory: Path, members: int) -> None:
        host, _, port = made.cassandra.partition(":")
        self.database = Database(Cassandra(contact_points=host, port=int(port)))
        self._made = made
        self._directory = directory
        self._members = [f"user-{number}" for number in range(members)]
        self._entered_ms = int(time.time() * 1000) - 3_600_000
        self._next_person = 0
        self._services: dict[str, Service] = {}
        self._notes_file = directory / "notes.txt"
        self._notes_file.parent.mkdir(parents=True, exist_ok=True)
        self._notes_file.touch()
        self._notes = Notes(self._notes_file)

    def define(self) -> None:
        """Define the target, the policy, and the campaign of the triggers."""
        records.define(self._made, "policy", _POLICY)
        records.define_mails(self._made, records.relay(1))

    def write_members(self) -> None:
        """Write the members of the broadcasts as the projector does."""
        for start in range(0, len(self._members), _CHUNK):
            chunk = self._members[start : start + _CHUNK]
            rows = [(records.WORKSPACE, SEGMENT, member_bucket(user), user, self._entered_ms) for user in chunk]
            self.database.write_each(_MEMBER, rows)

    def load(self) -> None:
        """Write the profiles of everyone, and the entries of the members."""
        people = [_person(number) for number in range(_PEOPLE)]
        load(self._made, PROFILE, records.profiles([*self._members, *people], self._entered_ms))
        records.write_entries(self._made, ((user, SEGMENT, self._entered_ms) for user in self._members))

    @contextmanager
    def started(self) -> Iterator[None]:
        """Run the processes; yield when the messenger knows all people."""
        clock = SegmentsClock(self._made)
        clock.start()
        with ExitStack() as ends:
            ends.callback(clock.close)
            self._services["messenger"] = ends.enter_context(self._running("messenger-0", "starling_messenger"))
            self._await_people()
            noop = ("delivery_parts.noop_process", "at_most_once", str(self._notes_file))
            self._services["channel"] = ends.enter_context(self._running("delivery-email-0", *noop, **MESSAGES))
            self._services["broadcaster"] = ends.enter_context(self._running("broadcaster", "starling_broadcaster"))
            yield

    def triggered_alone(self) -> dict[str, Any]:
        """Return the latency of triggers without a broadcast, after a warm-up."""
        triggers = self._triggers()
        time.sleep(_WARM_UP / RATE + _ALONE_SECONDS)
        return self._latencies(triggers, _WARM_UP)

    def broadcast(self, number: int) -> dict[str, Any]:
        """Run one broadcast to all members beside triggers."""
        key, before = f"{BULK_PREFIX}{number}", self._done()
        at_ms = int(time.time() * 1000) + _AHEAD_MS
        trigger = {"broadcast": SEGMENT, "at": format_instant(at_ms)}
        records.define(
            self._made, "campaign", records.campaign(key, trigger=trigger, purpose="marketing", rate=MOST_RATE), "ACTIVATED"
        )
        time.sleep(max(0.0, at_ms / 1000 - time.time()) + 1.0)
        triggers = self._triggers()
        cpu = {name: service.process.cpu_seconds() for name, service in self._services.items()}
        psutil.cpu_percent()
        samples = [Sample(time.monotonic(), dict.fromkeys(self._services, 0.0))]
        self.database.write_each(_READ_MODEL, [(partition, at_ms + 1) for partition in range(PARTITIONS)])
        while samples[-1].done["channel"] < len(self._members):
            time.sleep(_LOOK_SECONDS)
            self._check(samples)
            done = {name: count - before[name] for name, count in self._done().items()}
            samples.append(Sample(time.monotonic(), done))
        busy = psutil.cpu_percent() / 100
        spent = {name: service.process.cpu_seconds() - cpu[name] for name, service in self._services.items()}
        found = self._latencies(triggers, 0)
        self._check_counts(samples[-1])
        return {
            **report(samples, len(self._members), spent),
            "machine_busy": round(busy, 2),
            "triggers": found,
        }

    def _running(self, name: str, *command: str, **settings: str) -> AbstractContextManager[Service]:
        return running(self._made, self._directory, name, *command, **settings)

    def _await_people(self) -> None:
        process, group = self._services["messenger"].process, stage_of("messenger").group
        for topic, count in ((PROFILE, len(self._members) + _PEOPLE), (MEMBERSHIP_STATE, len(self._members))):
            progress = Progress(self._made.brokers, group, topic)
            try:
                progress.wait(count, process, _PATIENCE_SECONDS)
            finally:
                progress.close()

    def _triggers(self) -> Triggers:
        triggers = Triggers(self._made, self._next_person)
        triggers.start()
        return triggers

    def _latencies(self, triggers: Triggers, skipped: int) -> dict[str, Any]:
        """Stop the triggers, wait for their messages, and return the latencies of those after the first `skipped`, in ms."""
        triggers.close()
        self._next_person = triggers.next
        deadline = time.monotonic() + 60
        while missing := triggers.entered.keys() - self._notes.arrived.keys():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(missing)} of {len(triggers.entered)} triggers caused no message within 60 s")
            time.sleep(0.1)
            self._notes.read()
        taken = [max(0.0, self._notes.arrived[one] - at) * 1000 for one, at in triggers.entered.items()][skipped:]
        taken.sort()
        return {
            "messages": len(taken),
            "p50_ms": round(percentile(taken, 0.5), 1),
            "p99_ms": round(percentile(taken, 0.99), 1),
            "max_ms": round(taken[-1], 1),
        }

    def _done(self) -> dict[str, float]:
        """Return the members that each stage has finished since its start."""
        self._notes.read()
        return {
            "broadcaster": self._services["broadcaster"].count("starling_broadcaster_members_total", channel="email"),
            "messenger": self._services["messenger"].count("starling_stream_records_total", topic=BROADCASTS),
            "channel": float(self._notes.bulk),
        }

    def _check(self, samples: list[Sample]) -> None:
        for service in self._services.values():
            service.process.check()
        if time.monotonic() - samples[0].at > _PATIENCE_SECONDS:
            done = {name: round(count) for name, count in samples[-1].done.items()}
            raise TimeoutError(f"the broadcast was not over after {_PATIENCE_SECONDS:.0f} s: {done}, logs in {self._directory}")

    def _check_counts(self, last: Sample) -> None:
        """Every member was listed once, and got one message."""
        counts = {round(last.done[name]) for name in ("broadcaster", "channel")}
        assert counts == {len(self._members)}, f"{last.done} for {len(self._members)} members"
