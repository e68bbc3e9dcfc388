"""A profile has the values of the definitions in force, whatever earlier queries published."""

import copy
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from starling_common.outcome import Done, Refused
from starling_common.values import split_key
from starling_items.computed import fold_computed
from starling_items.profile import Profile
from starling_spark.jobs.profiles.definitions.in_force import Definitions
from starling_spark.jobs.profiles.fold.bucket import Computed
from starling_spark.jobs.profiles.fold.chunks import Chunk
from tests.unit.spark.evaluator import Evaluator
from tests.unit.spark.keeping import DAY_MS, START_MS, Partition, seeded

Event = tuple[str, int, str, Mapping[str, Any]]
BUY = {"event": "buy"}
SPENT_30D = {**BUY, "measure": {"sum": "amount"}, "within": "30d"}
DOCUMENTS: Sequence[Mapping[str, Any]] = [
    SPENT_30D,
    BUY,
    {**BUY, "within": "7d"},
    {**BUY, "measure": {"max": "amount"}, "within": "7d", "where": {"property": "amount", "op": "gte", "value": 20}},
    {**BUY, "measure": {"last": "sku"}, "between_ago": ["20d", "5d"]},
    {"event": "*", "measure": {"distinct": "sku"}, "within": "12d"},
    {"event": "*", "measure": {"days": True}, "calendar": "last_month"},
    {"event": "refund", "measure": {"first": "amount"}},
    {"measure": {"ratio": {"of": {"event": "refund", "within": "30d"}, "to": {**BUY, "within": "30d"}}}},
]


class Read(NamedTuple):
    """Some records of the partition: events, then a clock record unless `clock_ms` is 0."""

    events: Sequence[Event]
    clock_ms: int


class Installation:
    """One partition: its topics, the query in force, and the profiles as the normalizer keeps them."""

    def __init__(self) -> None:
        self.history: list[Read] = []
        self.definitions = Definitions()
        self.versions: dict[str, int] = {}
        self.documents: dict[str, Mapping[str, Any]] = {}
        self.profiles: dict[str, Profile] = {}
        self.published_to_ms = 0
        self.events_are_deleted = False
        self.query = Partition()
        self.cut = 0
        """The reads before the last step."""
        self.histories: dict[str, bytes] = {}
        """Those that the query has not taken yet, in the step that is not complete."""
        self.epoch = 0
        """Of the driver."""
        self.changes: list[tuple[str, str, Any]] = []
        """(user, trait, value) of each change of a profile."""

    def define(self, key: str, document: Mapping[str, Any]) -> None:
        """A new trait, or a new version."""
        self.versions[key] = self.versions.get(key, 0) + 1
        self.documents[key] = document
        self._change(key, "DEFINED")

    def archive(self, key: str) -> None:
        del self.documents[key]
        self._change(key, "ARCHIVED")

    def _change(self, key: str, action: str) -> None:
        text = json.dumps(self.documents.get(key, BUY))
        record = {"workspace": "w", "key": key, "version": self.versions[key], "action": action, "document": text}
        self.definitions = self.definitions.after(record)

    def start(self) -> None:
        """A query of the definitions in force: all that the topics have is its first micro-batch."""
        self.epoch += 1
        self.query = Partition(*self.definitions.in_force(), published_to_ms=self.published_to_ms)
        if self.events_are_deleted:
            self.query.store.published.extend(self.profiles)
        self._publish(self.query.fold([self.query.chunk(*read) for read in self.history]))

    def start_from_lake(self, gone: int) -> None:
        """The checkpoint is lost, and the topic lacks the first reads, which the lake has."""
        self.epoch += 1
        self.query = Partition(*self.definitions.in_force(), published_to_ms=self.published_to_ms, with_step=True)
        if gone:
            self.query.store.published.extend(self.profiles)
        self.histories = self.query.histories([self.query.chunk(*read) for read in self.history[:gone]])
        before = len(self.changes)
        self._publish(self.query.fold([self.query.chunk(*read) for read in self.history[gone:]]))
        assert self.changes[before:] == []

    def begin_step(self) -> None:
        """The query goes on with the definitions in force."""
        self.epoch += 1
        self.query.begin_step(*self.definitions.in_force())
        self.cut = len(self.history)
        self.histories = self.query.histories([self.query.chunk(*read) for read in self.history])

    def seed(self, users: Sequence[str], read: Read, now_ms: int = 0) -> None:
        """A micro-batch takes the histories of some users, which have reached that stream time; it also has `read`."""
        self.history.append(read)
        own = {name: self.histories[name] for name in users}
        self._publish(self.query.fold([self.query.chunk(*read), seeded(own, now_ms)]))

    def visit(self, visits: int, read: Read) -> None:
        """A visit, in a micro-batch with `read`."""
        self.history.append(read)
        self._publish(self.query.fold([Chunk(0, "", {}, [], visits), self.query.chunk(*read)]))

    def take(self, read: Read) -> None:
        self.history.append(read)
        self._publish(self.query.batch(*read))

    def take_and_crash(self, read: Read) -> None:
        """The micro-batch is published; the state is as before it."""
        self.history.append(read)
        kept, self.query.store = self.query.store, copy.deepcopy(self.query.store)
        self._publish(self.query.batch(*read))
        self.query.store = kept

    def restart(self) -> None:
        """The micro-batch is done again, by another driver."""
        self.epoch += 1
        self._publish(self.query.batch(*self.history[-1]))

    def suspend(self, read: Read) -> tuple[Sequence[Computed], int]:
        """Return what the driver is about to publish, and its epoch; the state is as before the micro-batch."""
        self.history.append(read)
        kept, self.query.store = self.query.store, copy.deepcopy(self.query.store)
        computed = self.query.batch(*read)
        self.query.store = kept
        return computed, self.epoch

    def wake(self, computed: Sequence[Computed], epoch: int) -> None:
        """A driver that was suspended, and replaced, publishes its micro-batch: the profiles do not change."""
        before = len(self.changes)
        self._publish(computed, epoch)
        assert self.changes[before:] == []

    def _publish(self, computed: Sequence[Computed], epoch: int | None = None) -> None:
        for one in computed:
            self.published_to_ms = max(self.published_to_ms, one.as_of)
            workspace, user_id = split_key(one.user.encode())
            record = {
                "received_at": one.received_at,
                "workspace": workspace,
                "user_id": user_id,
                "event_id": "e",
                "trait_key": one.trait.key,
                "trait_version": one.trait.version,
                "value": one.value,
                "as_of": one.as_of,
                "correlation_id": one.correlation_id,
                "epoch": self.epoch if epoch is None else epoch,
                "sequence": one.sequence,
            }
            outcome = fold_computed(record, one.user.encode(), self.profiles.setdefault(one.user, Profile()))
            assert not isinstance(outcome, Refused)
            if isinstance(outcome, Done) and outcome.value is not None:
                self.changes.append((user_id, one.trait.key, one.value))

    def differences(self) -> list[tuple[str, str, Any, Any]]:
        """(user, trait, value, expected) wherever a profile is not what all events of the topic come to; None and 0 are one."""
        evaluator = Evaluator(self.documents)
        for events, clock_ms in self.history:
            for event in events:
                evaluator.on_event(*event)
            evaluator.now_ms = max(evaluator.now_ms, clock_ms)
        now_ms = self.query.store.kept_clock.now_ms
        expected = {(user, key): value for user in evaluator.states for key, value in evaluator.values(user, now_ms).items()}
        found = {
            (name.removeprefix("w/"), key): value
            for name, profile in self.profiles.items()
            for key, value in json.loads(profile.traits_json).get("computed", {}).items()
        }
        pairs = {pair: (found.get(pair), expected.get(pair)) for pair in {**found, **expected}}
        return [(*pair, *both) for pair, both in pairs.items() if both[0] != both[1] and any(both)]


def buy(user: str, time_ms: int, amount: int) -> Event:
    return user, time_ms, "buy", {"amount": amount}


@pytest.fixture
def installation() -> Installation:
    """`a` has spent 100, which is the value of `spent_30d`."""
    made = Installation()
    made.define("spent_30d", SPENT_30D)
    made.start()
    made.take(Read([buy("a", START_MS, 100)], 0))
    assert computed(made) == {"spent_30d": 100}
    return made


def computed(installation: Installation, user: str = "a") -> dict[str, Any]:
    values: dict[str, Any] = json.loads(installation.profiles[f"w/{user}"].traits_json).get("computed", {})
    return values


def test_a_window_that_ends_while_another_trait_is_added_is_withdrawn(installation: Installation) -> None:
    installation.define("refunds", {"event": "refund"})
    installation.history.append(Read([("a", START_MS + 45 * DAY_MS, "seen", {})], 0))
    installation.start()
    assert computed(installation) == {}


def test_a_value_of_a_version_that_returned_is_withdrawn(installation: Installation) -> None:
    installation.define("spent_30d", {"event": "refund"})
    installation.define("spent_30d", SPENT_30D)
    installation.history.append(Read([], START_MS + 45 * DAY_MS))
    installation.start()
    assert computed(installation) == {}


def test_a_value_of_a_micro_batch_that_was_not_completed_is_withdrawn(installation: Installation) -> None:
    installation.take_and_crash(Read([buy("b", START_MS, 7)], 0))
    assert computed(installation, "b") == {"spent_30d": 7}
    installation.define("refunds", {"event": "refund"})
    installation.history.append(Read([], START_MS + 45 * DAY_MS))
    installation.start()
    assert computed(installation, "b") == {}


def test_a_value_whose_events_are_deleted_is_withdrawn(installation: Installation) -> None:
    installation.take(Read([("b", START_MS + DAY_MS, "refund", {})], 0))
    del installation.history[0]
    installation.events_are_deleted = True
    installation.define("refunds", {"event": "refund"})
    installation.start()
    assert (computed(installation), computed(installation, "b")) == ({}, {"refunds": 1})
    assert installation.query.store.users.keys() == {"w/b"}


def test_stream_time_does_not_go_back_where_clock_records_are_deleted(installation: Installation) -> None:
    installation.take(Read([buy("b", START_MS + DAY_MS, 1)], START_MS + 30 * DAY_MS))
    installation.history[-1] = Read(installation.history[-1].events, 0)
    installation.define("spent_30d", {**SPENT_30D, "within": "29d"})
    installation.start()
    assert installation.query.store.kept_clock.now_ms == START_MS + 30 * DAY_MS
    assert (computed(installation), computed(installation, "b")) == ({}, {})


def test_an_event_without_the_property_publishes_nothing(installation: Installation) -> None:
    installation.define("skus", {**BUY, "measure": {"distinct": "sku"}})
    installation.start()
    assert computed(installation) == {"spent_30d": 100}


def test_the_value_of_a_new_trait_counts_the_events_before_and_after_the_step(installation: Installation) -> None:
    installation.take(Read([("b", START_MS + 1, "refund", {})], 0))
    installation.define("refunds", {"event": "refund"})
    installation.begin_step()
    installation.take(Read([("b", START_MS + 2, "refund", {}), ("c", START_MS + 3, "refund", {})], 0))
    assert computed(installation) == {"spent_30d": 100}
    installation.seed(["w/b"], Read([], 0))
    assert computed(installation, "b") == {"refunds": 2}
    assert "w/c" not in installation.profiles
    installation.visit(1, Read([], 0))
    assert computed(installation, "c") == {"refunds": 1}


def test_a_history_that_comes_twice_changes_nothing(installation: Installation) -> None:
    installation.define("buys", BUY)
    installation.begin_step()
    installation.seed(["w/a"], Read([], 0))
    installation.seed(["w/a"], Read([buy("a", START_MS + 1, 1)], 0))
    installation.visit(1, Read([], 0))
    assert computed(installation) == {"spent_30d": 101, "buys": 2}


def test_the_former_version_is_in_force_until_the_history_is_there(installation: Installation) -> None:
    installation.define("n", BUY)
    installation.start()
    installation.define("n", {**BUY, "measure": {"sum": "amount"}})
    installation.begin_step()
    installation.take(Read([buy("a", START_MS + 1, 1)], 0))
    assert computed(installation)["n"] == 2
    installation.seed(["w/a"], Read([], 0))
    assert computed(installation)["n"] == 101


def test_a_user_whom_an_event_touches_before_the_visit_loses_the_value_of_the_former_version(installation: Installation) -> None:
    installation.define("n", BUY)
    installation.start()
    installation.take(Read([buy("b", START_MS + 1, 1)], 0))
    installation.define("n", {"event": "refund"})
    installation.begin_step()
    installation.visit(2, Read([], 0))
    assert (computed(installation)["n"], computed(installation, "b")["n"]) == (0, 1)
    installation.visit(2, Read([buy("b", START_MS + 2, 1)], 0))
    assert computed(installation, "b")["n"] == 0


def test_what_is_left_of_an_archived_trait_does_not_count_for_a_new_one_of_the_same_events(installation: Installation) -> None:
    """The state of a user without events in between still has the old matches."""
    installation.define("n", BUY)
    installation.start()
    installation.archive("n")
    installation.begin_step()
    installation.visit(1, Read([], 0))
    assert computed(installation) == {"spent_30d": 100}
    installation.define("m", BUY)
    installation.begin_step()
    installation.seed(list(installation.histories), Read([], 0))
    installation.visit(1, Read([buy("a", START_MS + 1, 1)], 0))
    assert computed(installation) == {"spent_30d": 101, "m": 2}


def test_an_unchanged_trait_keeps_what_it_counted_from_deleted_events(installation: Installation) -> None:
    installation.define("refunds", {"event": "refund"})
    installation.history.clear()
    installation.begin_step()
    installation.visit(1, Read([buy("a", START_MS + 1, 1)], 0))
    assert computed(installation) == {"spent_30d": 101}


class Life:
    """An installation over many changes of its traits, by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.installation = Installation()
        self.now_ms = START_MS
        self.added = 0
        self.change()
        self.installation.start()

    def read(self) -> Read:
        chance = self.chance
        events = [self.event() for _ in range(chance.choice([0, 1, 3, 10]))]
        clock_ms = 0 if events and chance.random() < 0.7 else self.now_ms + chance.choice([0, DAY_MS, 20 * DAY_MS])
        self.now_ms = max(self.now_ms, clock_ms)
        return Read(events, clock_ms)

    def event(self) -> Event:
        """Some are late, some lack a property."""
        chance = self.chance
        self.now_ms += chance.choice([0, 1, DAY_MS // 3, 2 * DAY_MS])
        time_ms = self.now_ms - chance.choice([0, 0, 1, 3 * DAY_MS, 40 * DAY_MS])
        properties = {"amount": chance.randrange(50)} | chance.choice([{}, {"sku": "a"}, {"sku": "b"}, {"sku": "c"}])
        return f"u{chance.randrange(6)}", time_ms, chance.choice(["buy", "buy", "refund", "seen"]), properties

    def change(self) -> None:
        chance, known = self.chance, list(self.installation.documents)
        what = chance.choice(["add", "add", "revise", "archive"]) if known else "add"
        if what == "archive" and len(known) > 1:
            self.installation.archive(chance.choice(known))
            return
        self.added += what != "revise"
        self.installation.define(chance.choice(known) if what == "revise" else f"t{self.added}", chance.choice(DOCUMENTS))

    def crash(self) -> None:
        """In the midst of a micro-batch; the definitions may change before the process starts again."""
        self.installation.take_and_crash(self.read())
        if self.chance.random() < 0.5:
            self.installation.restart()
        else:
            self.change()
            self.installation.start()

    def suspend(self) -> None:
        """A driver is suspended before it publishes; another one takes over, and the first one goes on a little later."""
        chance, suspended = self.chance, self.installation.suspend(self.read())
        if chance.random() < 0.5:
            self.installation.restart()
        else:
            self.change()
            self.installation.start()
        for _ in range(chance.choice([0, 1, 3])):
            self.installation.take(self.read())
        self.installation.wake(*suspended)

    def reread(self) -> None:
        """Under changed definitions, at times without old records, at times twice since the first one was killed."""
        chance, history = self.chance, self.installation.history
        for _ in range(chance.choice([1, 1, 2])):
            self.change()
        if chance.random() < 0.2:
            history[:] = [Read(events, 0) for events, _ in history]
        if chance.random() < 0.2:
            del history[: chance.randrange(len(history) + 1)]
            self.installation.events_are_deleted = True
        for _ in range(chance.choice([1, 1, 2])):
            history.append(self.read())
            self.installation.start()

    def step(self) -> None:
        """Some changes, the histories of all users in any order and some twice, then visits, while events go on."""
        chance, installation = self.chance, self.installation
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            self.change()
        installation.begin_step()
        self.end_step()

    def lose_checkpoint(self) -> None:
        """The process starts again without one, maybe with other definitions; the lake has what the topic has lost."""
        if self.chance.random() < 0.5:
            self.change()
        history = self.installation.history
        self.installation.start_from_lake(self.chance.choice([0, self.chance.randrange(len(history) + 1)]))
        self.end_step()

    def end_step(self) -> None:
        """Until the step is in force for all users."""
        chance, installation = self.chance, self.installation
        while chance.random() < 0.7:
            installation.take(self.read())
        names = [*installation.histories, *chance.choices(list(installation.histories), k=2)] if installation.histories else []
        chance.shuffle(names)
        while names:
            count = chance.choice([1, 2, 6])
            installation.seed(names[:count], self.read())
            names = names[count:]
            if chance.random() < 0.2:
                installation.take_and_crash(self.read())
                installation.restart()
        visits = chance.choice([1, 1, 2, 3])
        for _ in range(visits):
            installation.visit(visits, self.read())


@pytest.mark.parametrize("seed", range(40))
def test_profiles_equal_a_fold_over_all_events_after_every_step(seed: int) -> None:
    life = Life(seed)
    installation, chance = life.installation, life.chance
    for _ in range(12):
        for _ in range(chance.choice([1, 3, 6])):
            installation.take(life.read())
            assert installation.differences() == []
        life.step()
        assert installation.differences() == []
        assert installation.query.store.kept_clock.visits is None
        assert installation.query.store.lists == {}
        if chance.random() < 0.5:
            installation.query.restart_after_step()


@pytest.mark.parametrize("seed", range(40))
def test_without_a_checkpoint_profiles_equal_a_fold_over_lake_and_topic(seed: int) -> None:
    life = Life(seed)
    installation, chance = life.installation, life.chance
    for _ in range(8):
        for _ in range(chance.choice([1, 3])):
            installation.take(life.read())
        if chance.random() < 0.5:
            life.step()
        life.lose_checkpoint()
        assert installation.differences() == []
        assert (installation.query.store.lists, installation.query.store.published) == ({}, [])
        if chance.random() < 0.5:
            installation.query.restart_after_step()


def test_a_history_from_the_lake_advances_stream_time(installation: Installation) -> None:
    """The topic has no record that would."""
    installation.published_to_ms = 0
    installation.start_from_lake(1)
    assert installation.query.store.kept_clock.now_ms == 0
    installation.seed(["w/a"], Read([], 0), now_ms=START_MS)
    assert installation.query.store.kept_clock.now_ms == START_MS
    installation.visit(1, Read([], 0))
    assert computed(installation) == {"spent_30d": 100}


@pytest.mark.parametrize("seed", range(12))
def test_profiles_equal_a_fold_over_all_events_whenever_traits_change(seed: int) -> None:
    life = Life(seed)
    changed = 0
    for _ in range(60):
        before = {name: profile.traits_json for name, profile in life.installation.profiles.items()}
        step = life.chance.random()
        if step < 0.6:
            life.installation.take(life.read())
        elif step < 0.7:
            life.crash()
        elif step < 0.8:
            life.suspend()
        else:
            life.reread()
            changed += sum(life.installation.profiles[name].traits_json != text for name, text in before.items())
        assert life.installation.differences() == []
    assert changed > 10
