"""A computed trait has the value that the segment language's evaluator observes on the same history."""

import base64
import json
import random
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from starling_spark.jobs.profiles.fold.bucket import Computed
from starling_spark.jobs.profiles.fold.chunks import Chunk
from starling_spark.jobs.profiles.fold.traits import decode_user, encode_user
from tests.unit.spark.evaluator import Evaluator
from tests.unit.spark.keeping import DAY_MS, START_MS, Partition, defined, event, values

Event = tuple[str, int, str, dict[str, Any]]
ORDER = {"event": "Order Completed"}
BIG = {"property": "revenue", "op": "gte", "value": 20}
OF_A_OR_B = {"any": [{"property": "sku", "op": "in", "value": ["a", "b"]}, {"not": {"property": "sku", "op": "exists"}}]}
MEASURES: Sequence[Any] = [
    "count", "first_time", "last_time", {"sum": "revenue"}, {"sum": "cart.total"}, {"avg": "revenue"}, {"min": "revenue"},
    {"max": "revenue"}, {"first": "sku"}, {"last": "sku"}, {"distinct": "sku"}, {"most_frequent": "sku"},
    {"percentile": "revenue", "q": 0.5}, {"percentile": "revenue", "q": 0.9}, {"days": True},
]  # fmt: skip
WINDOWS: Sequence[Mapping[str, Any]] = [
    {}, {"within": "12h"}, {"within": "7d"}, {"within": "30d"}, {"within": "1095d"}, {"between_ago": ["9d", "2d"]},
    {"after": "2023-11-16", "before": "2023-12-20"}, {"calendar": "yesterday"}, {"calendar": "this_week"},
    {"calendar": "last_month"},
]  # fmt: skip
WHERES: Sequence[Mapping[str, Any]] = [
    {}, {"where": BIG}, {"where": OF_A_OR_B}, {"where": {"property": "seen", "op": "within_last", "value": "1d"}},
    {"where": {"property": "revenue", "op": "gte", "value": {"trait": "limit"}}},
    {"where": {"context": "app.version", "op": "semver_gte", "value": "2.0.0"}},
]  # fmt: skip
RATIOS: Sequence[Mapping[str, Any]] = [
    {"measure": {"ratio": {"of": {"event": "Order Cancelled"}, "to": {"event": "Order *"}}}},
    {"measure": {"ratio": {"of": {**ORDER, "measure": {"sum": "revenue"}}, "to": ORDER}}, "within": "7d"},
    {"measure": {"ratio": {"of": {**ORDER, "within": "1d"}, "to": {**ORDER, "within": "30d"}}}},
]


def documents() -> Sequence[Mapping[str, Any]]:
    """Every measure over every window, with one `where` after the other; events by name, prefix and all of them."""
    wheres, names = cycle(WHERES), cycle(["Order Completed", "Order *", "*"])
    made = [{"event": next(names), "measure": measure, **window, **next(wheres)} for measure in MEASURES for window in WINDOWS]
    return [*made, *RATIOS]


def history(seed: int, length: int) -> list[Event]:
    """Mostly in order, some late, some at one instant; a few long silences; values of every type where a number is asked for."""
    chance = random.Random(seed)
    now_ms, events = START_MS, []
    for _ in range(length):
        now_ms += chance.choice([0, 1, 60_000, 3_600_000, DAY_MS // 3, DAY_MS // 3, 9 * DAY_MS if chance.random() < 0.03 else 1])
        late_ms = chance.choice([0, 0, 0, 1, DAY_MS, 10 * DAY_MS])
        properties: dict[str, Any] = {"revenue": chance.choice([0, 1, 0.1, 19.99, 20, 100, "5", None, True])}
        properties |= chance.choice(
            [{}, {"sku": "a"}, {"sku": "b"}, {"sku": 1}, {"sku": 1.0}, {"sku": ["a"]}, {"cart": {"total": 3}}]
        )
        properties |= {"seen": now_ms - late_ms - chance.choice([0, DAY_MS // 2, 2 * DAY_MS])}
        name = chance.choice(["Order Completed", "Order Completed", "Order Cancelled", "Page Viewed"])
        events.append((f"u{chance.randrange(3)}", now_ms - late_ms, name, properties))
    return events


@pytest.mark.parametrize(
    ("seed", "timezone"),
    [(1, "UTC"), (2, "America/New_York"), (3, "Pacific/Chatham"), (4, "Asia/Tokyo"), (5, "UTC"), (6, "Europe/Berlin")],
)
def test_values_equal_the_evaluators_after_every_micro_batch(seed: int, timezone: str) -> None:
    asked = documents()
    chance = random.Random(seed)
    evaluator = Evaluator({f"t{i}": document for i, document in enumerate(asked)}, timezone)
    partition = Partition(*(defined(f"t{i}", {**document, "timezone": timezone}) for i, document in enumerate(asked)))
    events = history(seed, 300)
    published: dict[str, dict[str, Any]] = {}
    seen: set[str] = set()
    while events:
        size = chance.choice([1, 2, 5, 30])
        happened, events = events[:size], events[size:]
        # At times the clock goes on alone, so that windows end though nothing happens.
        moved_ms = chance.choice([0, 0, 0, DAY_MS // 2, 3 * DAY_MS]) + max(time_ms for _, time_ms, _, _ in happened)
        for one in happened:
            evaluator.on_event(*one)
        until_ms = evaluator.now_ms = max(evaluator.now_ms, moved_ms)
        for (user, key), value in values(partition.batch(happened, moved_ms)).items():
            assert published.setdefault(user, {}).get(key, "missing") != value
            published[user][key] = value
        assert partition.store.kept_clock.now_ms == until_ms
        for user in evaluator.states:
            for key, value in evaluator.values(user, until_ms).items():
                found = published.get(user, {}).get(key)
                assert found == value or (found is None and not value), (asked[int(key[1:])], user, value)
                if value:
                    seen.add(key)
    # Some are so narrow that no event is inside. If all were, the test would prove nothing.
    assert len(seen) > 0.9 * len(asked)
    partition.batch([], until_ms + 1200 * DAY_MS)
    assert partition.store.users  # lifetimes


@pytest.mark.parametrize("seed", [1, 2])
def test_what_the_wall_clock_lets_in_too_early_counts_when_the_evaluators_does(seed: int) -> None:
    """Under the wall clock an event may lie up to five minutes ahead of stream time."""
    asked = documents()
    chance = random.Random(seed)
    evaluator = Evaluator({f"t{i}": document for i, document in enumerate(asked)})
    partition = Partition(*(defined(f"t{i}", document) for i, document in enumerate(asked)))
    now_ms, waited = START_MS, 0
    published: dict[str, Any] = {}
    for user, _, name, properties in history(seed, 120):
        now_ms += chance.choice([1, 60_000, 200_000, 3_600_000])
        time_ms = now_ms + chance.choice([0, -60_000, 1, 150_000, 299_000])
        evaluator.on_event("u", time_ms, name, properties, now_ms)
        chunk = Chunk(now_ms, "", {}, [])
        partition.hit(chunk, "u", event(name, time_ms, properties))
        until_ms = chunk.now_ms = now_ms + chance.choice([0, 100_000])
        published |= {key: value for (_, key), value in values(partition.fold([chunk])).items()}
        state = decode_user(partition.store.users["w/u"])
        waited += len(state.state.waiting)
        for key, value in evaluator.values("u", until_ms).items():
            found = published.get(key)
            assert found == value or (found is None and not value), (asked[int(key[1:])], user, value)
        evaluator.now_ms = now_ms = until_ms
    assert waited > 100


def after_sixty_events() -> bytes:
    partition = Partition(*(defined(f"t{i}", document) for i, document in enumerate(documents())))
    partition.batch(history(11, 60))
    return partition.store.users[min(partition.store.users)]


def test_an_older_release_s_state_is_read() -> None:
    """The bytes beside this file are `after_sixty_events` as the release wrote them that kept leaves in mappings."""
    old = base64.b64decode((Path(__file__).parent / "states" / "user_traits_2.txt").read_text())
    assert decode_user(old) == decode_user(after_sixty_events())
    assert decode_user(encode_user(decode_user(old))) == decode_user(old)


def test_nothing_is_kept_once_every_window_is_empty() -> None:
    asked = [document for document in documents() if "within" in document or "between_ago" in document or "calendar" in document]
    partition = Partition(*(defined(f"t{i}", document) for i, document in enumerate(asked)))
    partition.batch(history(5, 150))
    assert partition.store.users
    published = partition.batch([], partition.store.kept_clock.now_ms + 1200 * DAY_MS)
    assert {computed.value for computed in published} == {None, "0"}
    assert (partition.store.users, partition.store.slots) == ({}, {})


@pytest.mark.parametrize(
    "measure", ["count", {"sum": "revenue"}, {"avg": "revenue"}, {"max": "revenue"}, {"percentile": "revenue", "q": 0.5}]
)
def test_a_crowded_window_equals_the_evaluators_panes(measure: Any) -> None:
    """Above 256 matches in a window both keep panes, and the same ones."""
    document = {"event": "Order Completed", "measure": measure, "within": "10d"}
    events: list[Event] = [("u", START_MS + i * 600_000, "Order Completed", {"revenue": i * 37 % 1000}) for i in range(1500)]
    evaluator, partition = Evaluator({"t0": document}), Partition(defined("t0", document))
    sizes: list[int] = []
    latest: Any = None

    def check(published: Sequence[Computed], until_ms: int) -> None:
        nonlocal latest
        for computed in published:
            latest = json.loads(computed.value or "null")
        assert latest == pytest.approx(evaluator.values("u", until_ms)["t0"], rel=0.05 if "percentile" in measure else 0, abs=0)
        sizes.append(len(partition.store.users.get("w/u", b"")))

    for at in range(0, len(events), 100):
        for one in events[at : at + 100]:
            evaluator.on_event(*one)
        check(partition.batch(events[at : at + 100]), evaluator.now_ms)
    for hour in range(1, 240, 7):
        check(partition.batch([], events[-1][1] + hour * 3_600_000), events[-1][1] + hour * 3_600_000)
    # Five times as many matches as are kept one by one need no more room than panes take.
    assert max(sizes) < (300_000 if "percentile" in measure else 16_000)
