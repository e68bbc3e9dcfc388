"""The output of a partition for each micro-batch."""

import copy
from typing import Any

import msgspec
import pytest

from starling_common.values import deterministic_id
from starling_spark.jobs.profiles.fold import folding
from starling_spark.jobs.profiles.fold.bucket import UNCOUNTED, Clock
from starling_spark.jobs.profiles.fold.chunks import Chunk
from tests.unit.spark.keeping import DAY_MS, ORDERS, START_MS, Partition, defined, event, values

SPENT_30D = {"event": "Order Completed", "measure": {"sum": "revenue"}, "within": "30d"}
ORDERS_30D = {"event": "Order Completed", "within": "30d"}


def order(user: str, time_ms: int, **properties: Any) -> tuple[str, int, str, dict[str, Any]]:
    return user, time_ms, "Order Completed", properties


def test_a_value_is_published_only_when_it_changes() -> None:
    partition = Partition(defined("orders", ORDERS), defined("skus", {"event": "*", "measure": {"distinct": "sku"}}))
    first = partition.batch([order("ann", START_MS, sku="a"), order("ann", START_MS + 1, sku="a")])
    assert values(first) == {("ann", "orders"): 2, ("ann", "skus"): 1}
    assert values(partition.batch([order("ann", START_MS + 2, sku="a")])) == {("ann", "orders"): 3}
    assert partition.batch([("ann", START_MS + 3, "Page Viewed", {"sku": "a"})]) == []


def test_the_end_of_a_window_is_published_without_an_event() -> None:
    partition = Partition(defined("spent", SPENT_30D), defined("orders", ORDERS_30D))
    partition.batch([order("ann", START_MS, revenue=10), order("ann", START_MS + DAY_MS, revenue=5)])
    assert partition.batch([], START_MS + 30 * DAY_MS - 1) == []
    published = partition.batch([], START_MS + 30 * DAY_MS)
    assert values(published) == {("ann", "spent"): 5, ("ann", "orders"): 1}
    assert [(computed.as_of, computed.correlation_id) for computed in published] == [(START_MS + 30 * DAY_MS, "c-clock")] * 2
    assert values(partition.batch([], START_MS + 90 * DAY_MS)) == {("ann", "spent"): None, ("ann", "orders"): 0}


def test_a_value_that_the_wall_clock_changes_has_a_correlation_id_of_its_own() -> None:
    partition = Partition(defined("orders", {**ORDERS, "within": "1d"}))
    [entered] = partition.batch([("ann", START_MS, "Order Completed", {})])
    assert entered.correlation_id == "c-ann"
    heartbeat = Chunk(START_MS + 2 * DAY_MS, "", {}, [])
    [gone] = partition.fold([heartbeat])
    assert gone.value is not None
    assert gone.correlation_id == deterministic_id("timer", "w/ann", heartbeat.now_ms)


def test_nothing_is_kept_of_a_window_that_is_empty() -> None:
    partition = Partition(defined("spent", SPENT_30D))
    partition.batch([order(f"u{i}", START_MS + i, revenue=1) for i in range(100)])
    assert len(partition.store.users) == 100
    partition.batch([], START_MS + 40 * DAY_MS)
    assert partition.store.users == {}
    assert partition.store.slots == {}
    assert partition.store.kept_clock.slots == set()


def test_a_late_event_corrects_the_value_while_its_window_is_open() -> None:
    partition = Partition(defined("spent", SPENT_30D))
    partition.batch([order("ann", START_MS + 29 * DAY_MS, revenue=1)])
    assert values(partition.batch([order("ann", START_MS, revenue=10)])) == {("ann", "spent"): 11}
    assert values(partition.batch([order("bob", START_MS - 2 * DAY_MS, revenue=10)])) == {}
    assert values(partition.batch([], START_MS + 30 * DAY_MS)) == {("ann", "spent"): 1}


def test_a_backlog_publishes_final_values_only() -> None:
    partition = Partition(defined("spent", SPENT_30D))
    published = partition.batch([order("ann", START_MS + day * DAY_MS, revenue=1) for day in range(365)])
    assert values(published) == {("ann", "spent"): 30}


def test_stream_time_never_goes_back() -> None:
    partition = Partition(defined("orders", ORDERS_30D))
    partition.batch([], START_MS + DAY_MS)
    published = partition.batch([order("ann", START_MS)])
    assert published[0].as_of == START_MS + DAY_MS


def test_an_event_from_the_future_counts_when_its_time_has_come() -> None:
    partition = Partition(defined("orders", ORDERS_30D), defined("ever", ORDERS))
    partition.batch([order("bob", START_MS)])
    chunk = Chunk(START_MS, "", {}, [])
    partition.hit(chunk, "ann", event("Order Completed", START_MS + 60_000, {}))
    assert values(partition.fold([chunk])) == {("ann", "ever"): 1}
    assert partition.batch([], START_MS + 59_999) == []
    assert values(partition.batch([], START_MS + 60_000)) == {("ann", "orders"): 1}
    assert values(partition.batch([], START_MS + 60_000 + 30 * DAY_MS))["ann", "orders"] == 0


def test_each_value_of_a_user_has_a_higher_sequence_also_after_its_state_was_deleted() -> None:
    partition = Partition(defined("spent", SPENT_30D))
    published = partition.batch([order("ann", START_MS, revenue=1)]) + partition.batch([order("ann", START_MS + 1, revenue=1)])
    assert partition.batch([], START_MS + 2) == []
    published += partition.batch([], START_MS + 40 * DAY_MS)
    assert partition.store.users == {}
    published += partition.batch([order("ann", START_MS + 40 * DAY_MS, revenue=1)])
    assert [(one.value, one.sequence) for one in published] == [("1.0", 1), ("2.0", 2), (None, 3), ("1.0", 4)]


def test_a_repeated_micro_batch_has_the_same_sequences() -> None:
    partition = Partition(defined("orders", ORDERS), defined("spent", SPENT_30D))
    partition.batch([order("ann", START_MS, revenue=1)])
    kept = copy.deepcopy(partition.store)
    events = [order("bob", START_MS + 1, revenue=1), order("ann", START_MS + 2)]
    first = {(one.user, one.trait.key, one.value, one.sequence) for one in partition.batch(events)}
    partition.store = kept
    assert first == {(one.user, one.trait.key, one.value, one.sequence) for one in partition.batch(reversed(events))}


def test_a_clock_that_was_stored_without_a_sequence_starts_with_none() -> None:
    stored = msgspec.msgpack.encode([START_MS, "c", 7, [], False, None])
    assert msgspec.msgpack.decode(stored, type=Clock) == Clock(START_MS, "c", 7, set(), is_new=False)


def test_the_users_of_an_earlier_release_are_counted_once() -> None:
    partition = Partition(defined("orders", ORDERS), defined("spent", SPENT_30D))
    partition.batch([order("ann", START_MS), order("bob", START_MS)])
    partition.store.kept_clock.users = UNCOUNTED
    partition.batch([order("bob", START_MS), order("cleo", START_MS)])
    assert partition.store.kept_clock.users == 3


def test_received_at_grows_with_every_value_even_when_the_wall_clock_goes_back() -> None:
    partition = Partition(defined("orders", ORDERS))
    partition.store.kept_clock.received_at = 5_000_000_000
    published = partition.batch([order("ann", START_MS), order("bob", START_MS)]) + partition.batch([order("ann", START_MS)])
    times = [computed.received_at for computed in published]
    assert times == sorted(set(times))
    assert times[0] > 5_000_000_000


def test_more_users_than_fit_into_memory_are_folded_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [order(f"u{i % 7}", START_MS + i * DAY_MS, revenue=i) for i in range(200)]
    at_once = Partition(defined("spent", SPENT_30D))
    expected = values(at_once.batch(events))
    monkeypatch.setattr(folding, "MAX_USERS_IN_MEMORY", 2)
    in_rounds = Partition(defined("spent", SPENT_30D))
    assert values(in_rounds.batch(events)) == expected
    assert in_rounds.store.users == at_once.store.users


def test_users_that_an_earlier_version_matched_get_the_new_value() -> None:
    partition = Partition(defined("n", {"event": "Refund"}, ORDERS), defined("spent", SPENT_30D, ORDERS))
    published = partition.batch([order("ann", START_MS), ("bob", START_MS, "Refund", {})])
    assert values(published) == {("ann", "n"): 0, ("bob", "n"): 1, ("ann", "spent"): None}


def test_an_archived_trait_loses_its_values() -> None:
    archived = defined("n", {"event": "Refund"}, ORDERS)
    gone = type(archived)(archived.workspace, archived.key, 3, None, archived.former)
    assert values(Partition(gone).batch([order("ann", START_MS)])) == {("ann", "n"): None}


def test_another_workspace_is_another_world() -> None:
    assert Partition(defined("n", ORDERS, workspace="other")).batch([order("ann", START_MS)]) == []


def test_a_value_keeps_its_type_and_one_over_64_bits_becomes_a_float() -> None:
    partition = Partition(defined("last", {"event": "*", "measure": {"last": "what"}}))
    sent = ["x.0", 7, 7.0, True, ["a", {"b": 1}], "long " * 40, 10**30, "long " * 40]
    published = []
    for number, what in enumerate(sent):
        batch = partition.batch([("ann", START_MS + number, "Any", {"what": what})])
        published.append(values(batch).get(("ann", "last"), "nothing"))
    assert published == ["x.0", 7, "nothing", True, ["a", {"b": 1}], "long " * 40, 1e30, "long " * 40]
    assert len(partition.store.users["w/ann"]) < 400
