"""Compares what came out with what should have: feed, memberships, states, stores, dead letters."""

import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from rocksdict import AccessType, Options, Rdict

from starling_common.kafka.topics import (
    BEHAVIOUR,
    CLOCK,
    MEMBERSHIP,
    MEMBERSHIP_STATE,
    PROFILE,
    SEGMENT_DEFINITIONS,
    load_catalogue,
)
from starling_common.settings import Cassandra
from starling_common.wire import Codec, Registry
from starling_segments import UserState, decode_state, encode_state, plain
from starling_stream.inspect.audit import Audit, Source
from tests.faults.log import Logged, read_all
from tests.faults.oracle import Truth, folded
from tests.faults.segments import WHERES

CHANGELOG: Final = "segmenter-state-changelog"
LETTERS: Final = "segmenter.dlq"
_TOPICS: Final = (BEHAVIOUR, PROFILE, CLOCK, MEMBERSHIP, MEMBERSHIP_STATE, CHANGELOG, LETTERS)
_META: Final = b"\x00meta"
_EXAMPLES: Final = 20
_NEVER: Final = b"\xff" * 8

Rows = dict[bytes, tuple[int, bytes]]
"""Key -> version and `due | payload`."""


@dataclass
class Findings:
    """`counts`: what was compared. A run is good when nothing was lost, doubled or wrong."""

    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)

    def add(self, name: str, count: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + count

    def found(self, kind: str, what: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < _EXAMPLES:
            self.examples.append(f"{kind}: {what}")


def checked(brokers: str, registry_url: str, disks: Iterable[Path], cassandra: Cassandra | None = None) -> Findings:
    """Reads every topic and store, and the tier behind them. The workers must have stopped with everything processed."""
    registry, catalogue = Registry(registry_url), load_catalogue().topics
    codecs = {topic: registry.codec(topic, catalogue[topic].schema) for topic in _TOPICS}
    log = read_all(brokers, (*_TOPICS, SEGMENT_DEFINITIONS))
    truth = folded(log, codecs)
    truth.switches = sum(len(records) for records in log[SEGMENT_DEFINITIONS].values()) - len(WHERES)
    findings = Findings()
    findings.counts["records in"] = truth.records
    findings.counts["records out"] = sum(len(records) for records in log[MEMBERSHIP].values())
    last = check_feed(truth, log[MEMBERSHIP], codecs[MEMBERSHIP], findings)
    check_memberships(last, log[MEMBERSHIP_STATE], codecs[MEMBERSHIP_STATE], findings)
    check_states(truth, log[CHANGELOG], codecs[CHANGELOG], findings)
    check_letters(truth, log[LETTERS][0], codecs[LETTERS], findings)
    for disk in disks:
        for path in sorted(disk.glob("segmenter/*")):
            check_store(path, log[CHANGELOG][int(path.name)], codecs[CHANGELOG], findings)
    if cassandra is not None:
        check_backing_store(Source(brokers, registry_url, cassandra), findings)
    return findings


def check_backing_store(source: Source, findings: Findings) -> None:
    """Every row of Cassandra is one that was committed, up to the flushed offset the last one, and in the due index."""
    with closing(Audit("segmenter", source)) as audit:
        for number in range(audit.layout.partitions):
            for found in audit.checks(number):
                findings.add("rows in Cassandra", found.users)
                findings.add("partitions whole in Cassandra", found.position is not None)
                for example in found.examples:
                    findings.found("wrong", f"Cassandra, partition {number}: {example}")


def check_feed(truth: Truth, feed: Mapping[int, Sequence[Logged]], codec: Codec, findings: Findings) -> dict[bytes, dict[str, Any]]:
    """Each user's changes, in order, are those of the fold. Returns the last record of each user and segment."""
    found: dict[bytes, list[dict[str, Any]]] = {}
    last: dict[bytes, dict[str, Any]] = {}
    for logged in (logged for records in feed.values() for logged in records):
        record = codec.decode(logged.value)
        found.setdefault(logged.key, []).append(_comparable(record))
        last[b"%b/%b" % (logged.key, record["segment_key"].encode())] = record
    for key in truth.feed.keys() | found.keys():
        _compare_feed(key, truth.feed.get(key, []), found.get(key, []), findings)
    return last


def _comparable(record: dict[str, Any]) -> dict[str, Any]:
    cause = record["cause"]
    same = ("event_id", "user_id", "segment_key", "segment_version", "status", "sequence", "effective_at", "correlation_id")
    more = {"cause": cause["kind"], "message_id": cause["message_id"], "memberships": list(record["memberships"])}
    return {name: record[name] for name in same} | more


def _compare_feed(key: bytes, expected: Sequence[dict[str, Any]], found: Sequence[dict[str, Any]], findings: Findings) -> None:
    findings.add("feed records", len(expected))
    if list(expected) == list(found):
        return
    wanted, came = Counter(r["event_id"] for r in expected), Counter(r["event_id"] for r in found)
    for event_id in wanted - came:
        findings.found("lost", f"{key!r} {next(r for r in expected if r['event_id'] == event_id)}")
    for event_id, count in came.items():
        if count > 1:
            findings.found("doubled", f"{key!r} {count} times {next(r for r in found if r['event_id'] == event_id)}")
    for want, have in zip(expected, found, strict=False):
        if want != have:
            differences = {name: (want[name], have[name]) for name in want if want[name] != have[name]}
            findings.found("wrong", f"{key!r} {want['segment_key']} {want['sequence']} (expected, found): {differences}")
            break
    if came - wanted:
        findings.found("wrong", f"{key!r}: {sum((came - wanted).values())} unexpected records")


def check_memberships(
    last: Mapping[bytes, dict[str, Any]], topic: Mapping[int, Sequence[Logged]], codec: Codec, findings: Findings
) -> None:
    """The state topic's last record of each pair is the feed's."""
    found = {logged.key: codec.decode(logged.value) for records in topic.values() for logged in records}
    findings.counts["memberships"] = len(last)
    for key in last.keys() - found.keys():
        findings.found("lost", f"membership-state of {key!r}")
    for key, record in found.items():
        if last.get(key) != record:
            findings.found("wrong", f"membership-state of {key!r}: {record['status']} {record['sequence']}")


def check_states(truth: Truth, changelog: Mapping[int, Sequence[Logged]], codec: Codec, findings: Findings) -> None:
    """The folded changelog has exactly the states of the fold, each with the due time of its plan; versions grow by one."""
    rows: Rows = {}
    for records in changelog.values():
        rows |= _rows(records, codec, findings)
    findings.counts["states"] = len(truth.states)
    findings.counts["bytes of the largest state"] = max((len(stored) for _, stored in rows.values()), default=0)
    for key in truth.states.keys() - rows.keys():
        findings.found("lost", f"state of {key!r}")
    for key, (_, stored) in rows.items():
        expected = truth.states.get(key)
        if expected is None or not _is_same(truth, stored[8:], expected):
            findings.found("wrong", f"state of {key!r}: {_difference(stored[8:], expected)}")
        elif stored[:8] != due_of(truth.evaluator.next_due(expected)):
            findings.found("wrong", f"state of {key!r} waits for another instant than its plan")


def _is_same(truth: Truth, stored: bytes, expected: UserState) -> bool:
    """Return whether a state is the expected one.

    A switch of definitions drops what its instant has ended from the windows and sets timers again, and no record states that
    instant. So the windows of both states are settled at the later of their clocks, but only if the run had a switch. Whatever a
    window still contains at that clock is compared, as is everything without an end.
    """
    found, wanted = decode_state(stored), decode_state(encode_state(expected))
    if plain(found) == plain(wanted):
        return True
    if not truth.switches:
        return False
    at = max(found.clock, wanted.clock)
    changes = [truth.evaluator.on_definition(state, at, truth.evaluator) for state in (found, wanted)]
    return plain(found) == plain(wanted) and changes[0] == changes[1]


def _rows(records: Iterable[Logged], codec: Codec, findings: Findings) -> Rows:
    rows: Rows = {}
    for logged in records:
        if logged.key == _META:
            continue
        record = codec.decode(logged.value)
        version, before = record["version"], rows.get(logged.key, (0, b""))[0]
        if version != before + 1:
            findings.found("doubled" if version <= before else "lost", f"version {version} of {logged.key!r} after {before}")
        rows[logged.key] = version, record["state"] or b""
    return rows


def check_letters(truth: Truth, letters: Sequence[Logged], codec: Codec, findings: Findings) -> None:
    """Every refused record is there once."""
    records = [codec.decode(logged.value) for logged in letters]
    found = Counter((record["origin_topic"], record["origin_partition"], record["origin_offset"]) for record in records)
    expected = Counter(truth.letters)
    findings.counts["dead letters"] = len(truth.letters)
    for place in expected - found:
        findings.found("lost", f"dead letter of {place}")
    for place in found - expected:
        findings.found("doubled" if place in expected else "wrong", f"dead letter of {place}")


class Stored(NamedTuple):
    """A store on disk. `timers`: (due, key); `whole`: the backing store has no further users."""

    position: int
    rows: Rows
    timers: set[tuple[bytes, bytes]]
    whole: bool


def _read_store(path: Path) -> Stored:
    """Raises: what RocksDB raises."""
    store: Any = Rdict(str(path), Options(raw_mode=True), access_type=AccessType.read_only())
    try:
        position = struct.unpack(">Q", store[b"mposition"])[0] if b"mposition" in store else 0
        rows = {key[1:]: (struct.unpack_from(">Q", row)[0], bytes(row[8:])) for key, row in store.items() if key[:1] == b"s"}
        timers = {(key[1:9], key[9:]) for key in store.keys() if key[:1] == b"t"}  # noqa: SIM118 - not a dictionary
        cursor = store.iter()
        cursor.seek_to_first()
        while cursor.valid():
            cursor.next()
        cursor.status()  # a scan that meets damage just ends
        whole = b"mcold" not in store or not msgspec.msgpack.decode(store[b"mcold"])
        return Stored(position, rows, timers, whole)
    finally:
        store.close()


def check_store(path: Path, changelog: Sequence[Logged], codec: Codec, findings: Findings) -> None:
    """A store has the state of the changelog's committed records up to its position, whatever happened to its worker.

    A store that was not opened since its bytes were flipped reports damage, which is correct too.
    """
    try:
        position, found, timers, whole = _read_store(path)
    except Exception as cause:
        if "Corruption" not in str(cause):
            raise
        findings.add("damaged stores without a user", 1)
        return
    expected = _rows((logged for logged in changelog if logged.offset < position), codec, Findings())
    if not whole:
        expected = {key: row for key, row in expected.items() if key in found}
    findings.add("stores", 1)
    findings.add("stored rows", len(found))
    if found != expected:
        keys = [key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)]
        findings.found("wrong", f"store {path} at {position}: {len(keys)} rows differ from the changelog, such as {keys[:3]}")
    waiting = {(state[:8], key) for key, (_, state) in expected.items() if state and state[:8] != _NEVER}
    if timers != waiting:
        findings.found("wrong", f"store {path} at {position}: {len(timers ^ waiting)} timers differ from its rows")


def due_of(instant_ms: int | None) -> bytes:
    """Return the first bytes of a stored state: the instant at which it is due, or never."""
    return _NEVER if instant_ms is None else struct.pack(">Q", instant_ms + (1 << 63))


def _difference(stored: bytes, expected: Any) -> str:
    if expected is None:
        return "it was not expected"
    wanted, there = plain(expected), plain(decode_state(stored))
    return str({name: (want, there[name]) for name, want in wanted.items() if want != there[name]})[:500]
