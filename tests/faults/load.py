"""What the workers eat: a stream of behaviour and profile records at a set rate, made from a seed.

Behaviour and profile records are written in turns, each turn acknowledged before the next begins. So the order of arrival
of the records of one partition is a fact that is readable from the log, whatever happens to the broker: that is what
the fold of the oracle goes by.
"""

import itertools
import json
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from starling_common.kafka.clients import producer_config
from starling_common.kafka.topics import BEHAVIOUR, CLOCK, PROFILE, SEGMENT_DEFINITIONS, load_catalogue
from starling_common.time.instants import wall_clock_micros
from starling_common.values import deterministic_id, record_key
from starling_common.wire import Registry
from tests.faults.segments import WHERES, document
from tests.faults.workers import RAISE

WORKSPACE = "faults"
FIRST_MS = 1_700_000_000_000
_SPEED = 60
"""A second of the wall clock is a minute of event time: windows of ten minutes pass in ten seconds."""
_TURN_SECONDS = 0.5
_PAUSE_SECONDS = 0.06
"""Between two turns; longer than the workers hold a record back for its siblings."""
BLOB_BYTES = 30_000
"""Of one large value; a state that keeps all of them has more than a megabyte."""

Written = tuple[str, bytes, bytes]


@dataclass
class Maker:
    """Records from dice. The times are those of the clock, everything else is the seed's."""

    dice: random.Random
    users: int
    codecs: dict[str, Any]
    jumped_ms: int = 0
    hot: bool = False

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._numbers = itertools.count(1)

    def now_ms(self) -> int:
        """Event time; always a multiple of ten, so that an advanced clock never meets an event."""
        return FIRST_MS + self.jumped_ms + int((time.monotonic() - self._began) * _SPEED * 100) * 10

    def user(self) -> str:
        if self.hot and self.dice.random() < 0.2:
            return "u-hot"
        return f"u{self.dice.randrange(self.users)}"

    def behaviour(self) -> Written:
        dice = self.dice
        name = dice.choices(["Toggled", "Order Completed", "Page Viewed", "Unused Event"], [3, 3, 2, 2])[0]
        properties = {"revenue": dice.randrange(1, 100), "sku": f"s{dice.randrange(30)}"}
        late_ms = dice.randrange(1, 40) * 10_000 if dice.random() < 0.05 else 0
        return self.track(self.user(), name, json.dumps(properties), self.now_ms() - late_ms)

    def track(self, user: str, name: str, properties: str, at_ms: int | None = None) -> Written:
        number = next(self._numbers)
        texts = {"kind": "track", "name": name, "properties": properties, "context": "{}", "traits": "{}"}
        ids = {"anonymous_ids": [f"a-{user}"], "message_id": f"m{number}", **self._ids(user, number)}
        times = {"received_at": wall_clock_micros(), "event_time": self.now_ms() if at_ms is None else at_ms}
        return BEHAVIOUR, record_key(WORKSPACE, user), self.codecs[BEHAVIOUR].encode(texts | ids | times)

    def profile(self) -> Written:
        user, number, dice = self.user(), next(self._numbers), self.dice
        traits = {"plan": dice.choice(["free", "pro"]), "score": dice.randrange(10), "number": number}
        texts = {"change": "TRAITS", "traits": json.dumps(traits), "group_traits": "{}", "context": "{}"}
        ids = {"anonymous_ids": [f"a-{user}"], "message_id": f"m{number}", **self._ids(user, number)}
        times = {"received_at": wall_clock_micros(), "event_time": self.now_ms()}
        return PROFILE, record_key(WORKSPACE, user), self.codecs[PROFILE].encode(texts | ids | times)

    def poison(self) -> Written:
        """Bytes that are no record, or a record whose properties are no JSON."""
        user = self.user()
        if self.dice.random() < 0.5:
            return BEHAVIOUR, record_key(WORKSPACE, user), b"\x00\x00\x00\x00\x01broken"
        return self.track(user, "Order Completed", '{"revenue": ')

    def raising(self, point: str) -> Written:
        """A record with which the code of every worker raises at that point."""
        return self.track(self.user(), "Order Completed", json.dumps({"revenue": 1_000, "sku": f"{RAISE}{point}"}))

    def blob(self, number: int) -> Written:
        """One of the large values of the user who collects them."""
        text = self.dice.choice(["00", "11"]) + self.dice.randbytes(BLOB_BYTES // 2).hex()
        return self.track("u-blob", "Blob Seen", json.dumps({f"blob{number}": text}))

    def clock(self, instant_ms: int) -> bytes:
        made: bytes = self.codecs[CLOCK].encode(
            {"received_at": wall_clock_micros(), "instant": instant_ms, "correlation_id": "clock"}
        )
        return made

    def definition(self, key: str, where: Any = None) -> Written:
        """The definition of a segment of the run, or of one more with that `where`."""
        fields = {"kind": "segment", "key": key, "version": 1, "action": "DEFINED", "actor": "faults"}
        record = {"recorded_at": wall_clock_micros(), "document": json.dumps(document(key, where)), **fields}
        ids = {"event_id": f"definition-{key}", "workspace": WORKSPACE, "correlation_id": f"definition-{key}"}
        return SEGMENT_DEFINITIONS, record_key(WORKSPACE, key), self.codecs[SEGMENT_DEFINITIONS].encode(record | ids)

    def other_definition(self) -> Written:
        """A definition of an event that never comes: every task switches its users, and no membership of the run changes."""
        return self.definition(f"other-{next(self._numbers)}", {"event": "Never"})

    def _ids(self, user: str, number: int) -> dict[str, str]:
        event_id = deterministic_id(WORKSPACE, user, number)
        return {"workspace": WORKSPACE, "user_id": user, "event_id": event_id, "correlation_id": f"request-{number}"}


class Load:
    """A thread that writes until stopped. Others may ask it for something special between two turns."""

    def __init__(self, brokers: str, registry_url: str, seed: int, *, rate: int, users: int) -> None:
        """`rate`: records a second."""
        registry, catalogue = Registry(registry_url), load_catalogue()
        topics = (BEHAVIOUR, PROFILE, CLOCK, SEGMENT_DEFINITIONS)
        codecs = {name: registry.codec(name, catalogue.topics[name].schema) for name in topics}
        self.maker = Maker(random.Random(f"load {seed}"), users, codecs)
        self.partitions = catalogue.profile_partitions
        self.sent = 0
        self._rate = rate
        self._asked: queue.SimpleQueue[Callable[[Load], None]] = queue.SimpleQueue()
        # Until the broker is there again, however long that takes: a record is in the log once, or the run is void.
        self._producer = Producer(producer_config(brokers, log_level=2, **{"message.timeout.ms": 0}))
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def define(self) -> None:
        for key in WHERES:
            self.write(self.maker.definition(key))
        self.flush()

    def start(self) -> None:
        self._thread.start()

    def ask(self, special: "Callable[[Load], None]") -> None:
        """Have this done by the writing thread, between two turns; returns when it is done."""
        done = threading.Event()

        def run(load: Load) -> None:
            special(load)
            load.flush()
            done.set()

        self._asked.put(run)
        while not done.wait(0.1):
            self.check()

    def stop(self) -> None:
        """Returns when everything that was written is acknowledged. Raises: what broke the thread."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.check()

    def check(self) -> None:
        if self._failure is not None:
            raise RuntimeError("the load broke off") from self._failure

    def write(self, record: Written) -> None:
        topic, key, value = record
        self._producer.produce(topic, value, key, on_delivery=self._delivered)
        self.sent += 1

    def advance_clock(self, instant_ms: int) -> None:
        for number in range(self.partitions):
            self._producer.produce(CLOCK, self.maker.clock(instant_ms), None, number, on_delivery=self._delivered)
        self.flush()

    def flush(self) -> None:
        while self._producer.flush(1) > 0:
            pass
        time.sleep(_PAUSE_SECONDS)  # sleep: the pause between two records

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failure = RuntimeError(f"a record was not taken: {error}")

    def _run(self) -> None:
        try:
            for make in itertools.cycle((self._behaviour_turn, self._profile_turn)):
                if self._over.is_set() or self._failure is not None:
                    return
                make()
                self.flush()
                for special in self._waiting():
                    special(self)
        except BaseException as cause:  # noqa: BLE001 - raised in the thread that waits for this one
            self._failure = cause

    def _behaviour_turn(self) -> None:
        for _ in range(5):
            for _ in range(int(self._rate * _TURN_SECONDS / 5)):
                self.write(self.maker.behaviour())
            self._producer.poll(0)
            time.sleep(_TURN_SECONDS / 5)  # sleep: the rate of the load

    def _profile_turn(self) -> None:
        for _ in range(max(1, int(self._rate * _TURN_SECONDS / 8))):
            self.write(self.maker.profile())

    def _waiting(self) -> "Iterator[Callable[[Load], None]]":
        while not self._asked.empty():
            yield self._asked.get()
