"""Lanes: every message is sent once and in order, and no target or workspace delays the messages of another."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_common.shares import Shares
from starling_delivery.item import Item
from starling_delivery.sending.lane import Batch
from starling_delivery.sending.lanes import Admission, Lanes
from starling_delivery.targets import Batching
from tests.unit.delivery.making import request

MEGABYTE = 1_000_000


def item(
    workspace: str = "acme",
    target: str = "hook",
    user: str = "ada",
    payload: str = "{}",
    batching: Batching | None = None,
    *,
    bulk: bool = False,
    **more: Any,
) -> Item:
    made = request() | {"workspace": workspace, "target_key": target, "user_id": user, "payload": payload} | more
    return Item(made, lambda: None, batching=batching, bulk=bulk)


def fill(lanes: Lanes, count: int, workspace: str = "acme", target: str = "hook") -> list[Item]:
    items = [item(workspace, target, f"u{n}") for n in range(count)]
    for one in items:
        lanes.add(one, 0.0)
    return items


def take_all(lanes: Lanes, now: float = 0.0) -> list[Item]:
    """Take the messages of a target without batches."""
    taken = []
    while (batch := lanes.take(now)) is not None:
        [one] = batch
        taken.append(one)
    return taken


def take_batches(lanes: Lanes, now: float = 0.0) -> list[Batch]:
    taken = []
    while (batch := lanes.take(now)) is not None:
        taken.append(batch)
    return taken


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.sampled_from("uvw")), max_size=60), st.data())
def test_every_message_is_taken_once_and_in_order_for_one_user_and_target(
    keys: list[tuple[str, str, str]], data: st.DataObject
) -> None:
    lanes = Lanes(data.draw(st.integers(1, 12)), MEGABYTE, 1000)
    items = [item(*key, bulk=data.draw(st.booleans())) for key in keys]
    waiting, running, taken = list(items), list[Item](), list[Item]()
    while waiting or running:
        if waiting and (not running or data.draw(st.booleans())):
            lanes.add(waiting.pop(0), 0.0)
        elif running:
            lanes.finish((running.pop(data.draw(st.integers(0, len(running) - 1))),), 0.0)
        started = take_all(lanes)
        running += started
        taken += started
        users = [(one.workspace, one.target, one.request["user_id"]) for one in running]
        assert len(users) == len(set(users))
    assert sorted(taken, key=id) == sorted(items, key=id)
    assert len(lanes) == 0
    for key in set(keys):
        own = [one for one in items if (one.workspace, one.target, one.request["user_id"]) == key]
        assert [one for one in taken if one in own] == own


@given(
    st.lists(
        st.tuples(
            st.sampled_from("uvw"),
            st.sampled_from([1, 300_000, 600_000]),
            st.sampled_from([None, None, 1, 3]),
            st.sampled_from(["a", "b"]),
        ),
        max_size=12,
    ),
    st.integers(1, 8),
    st.data(),
)
def test_batches_have_every_message_once_in_order_and_within_their_limits(
    made: list[tuple[str, int, int | None, str]], most: int, data: st.DataObject
) -> None:
    lanes, batching = Lanes(data.draw(st.integers(1, 12)), 64 * MEGABYTE, 1000), Batching(most, 200)
    items = [
        item(user=user, payload="x" * size, batching=batching, batch_limit=limit, address=address)
        for user, size, limit, address in made
    ]
    waiting, running, taken, now = list(items), list[Batch](), list[Item](), 0.0
    while waiting or running or len(lanes):
        step = data.draw(st.integers(0, 2))
        if step == 2 or not (waiting or running):
            now += 0.3  # longer than the wait for a batch
        if waiting and (step != 1 or not running):
            lanes.add(waiting.pop(0), now)
        elif running:
            lanes.finish(running.pop(data.draw(st.integers(0, len(running) - 1))), now)
        started = take_batches(lanes, now)
        running += started
        for batch in started:
            assert len(batch) <= min(one.most for one in batch)
            assert len(batch) == 1 or sum(one.body_bytes for one in batch) <= 1_048_576
            assert len({one.request["address"] for one in batch}) == 1
            taken += batch
        users = [user for batch in running for user in {one.request["user_id"] for one in batch}]
        assert len(users) == len(set(users))
    assert sorted(taken, key=id) == sorted(items, key=id)
    for name in "uvw":
        own = [one for one in items if one.request["user_id"] == name]
        assert [one for one in taken if one in own] == own


def test_a_batch_is_sent_when_it_is_whole_or_its_first_message_has_waited() -> None:
    lanes, batching = Lanes(64, MEGABYTE, 1000), Batching(3, 200)
    items = [item(user=f"u{n}", batching=batching) for n in range(8)]
    for one in items[:2]:
        lanes.add(one, 10.0)
    assert take_batches(lanes, 10.1) == []
    assert lanes.next_at() == 10.2
    lanes.add(items[2], 10.1)
    assert take_batches(lanes, 10.1) == [tuple(items[:3])]
    for one in items[3:]:
        lanes.add(one, 10.15)
    assert take_batches(lanes, 10.15) == [tuple(items[3:6])]
    assert take_batches(lanes, 10.3) == []
    assert take_batches(lanes, 10.36) == [tuple(items[6:])]
    assert take_batches(lanes, 20.0) == []


def test_changes_of_one_user_share_a_batch_and_later_ones_wait_for_its_end() -> None:
    lanes, batching = Lanes(64, MEGABYTE, 1000), Batching(2, 200)
    items = [item(batching=batching) for _ in range(3)]
    for one in items:
        lanes.add(one, 0.0)
    [first] = take_batches(lanes, 9.0)
    assert first == tuple(items[:2])
    lanes.finish(first, 10.0)
    assert take_batches(lanes, 10.0) == [(items[2],)]


def test_a_batch_is_closed_before_its_body_is_too_large() -> None:
    lanes, batching = Lanes(64, 64 * MEGABYTE, 1000), Batching(100, 1000)
    for number in range(7):
        lanes.add(item(user=f"u{number}", payload="\u00e9" * 150_000, batching=batching), 0.0)
    assert [len(batch) for batch in take_batches(lanes, 0.0)] == [3, 3]
    assert [len(batch) for batch in take_batches(lanes, 1.0)] == [1]


def test_a_message_that_was_refused_alone_is_sent_alone_and_at_once() -> None:
    lanes, batching = Lanes(64, MEGABYTE, 1000), Batching(100, 1000)
    refused = item(user="bad", batching=batching, batch_limit=1)
    good = [item(user=f"u{n}", batching=batching) for n in range(4)]
    for one in (*good[:2], refused, *good[2:]):
        lanes.add(one, 0.0)
    batches = take_batches(lanes, 1.0)
    assert (refused,) in batches
    assert sorted((one for batch in batches for one in batch), key=id) == sorted((*good, refused), key=id)


def test_messages_of_the_former_format_make_batches_of_their_own() -> None:
    lanes, batching = Lanes(64, MEGABYTE, 1000), Batching(100, 100)
    call = '{"type":"track","userId":"ada"}'
    items = [item(user=f"u{n}", payload=call if n % 2 else "{}", batching=batching) for n in range(4)]
    for one in items:
        lanes.add(one, 0.0)
    assert take_batches(lanes, 1.0) == [tuple(items[::2]), tuple(items[1::2])]


def test_a_workspace_gets_half_of_the_slots_and_a_target_a_quarter() -> None:
    lanes = Lanes(64, MEGABYTE, 1000)
    fill(lanes, 100)
    assert len(take_all(lanes)) == 16
    for number in range(20):
        fill(lanes, 100, target=f"t{number}")
    assert len(take_all(lanes)) == 16


def test_nine_hanging_targets_leave_slots_for_a_tenth_of_their_workspace_and_of_another() -> None:
    lanes = Lanes(256, 64 * MEGABYTE, 1000)
    for number in range(9):
        fill(lanes, 500, target=f"hanging{number}")
    take_all(lanes)
    fill(lanes, 20, target="tenth")
    fill(lanes, 20, workspace="other")
    taken = take_all(lanes)
    assert sum(one.target == "tenth" for one in taken) >= 4
    assert sum(one.workspace == "other" for one in taken) == 20


def test_nine_workspaces_leave_slots_for_a_tenth() -> None:
    lanes = Lanes(256, 64 * MEGABYTE, 1000)
    for number in range(9):
        for target in range(9):
            fill(lanes, 100, f"w{number}", f"t{target}")
    take_all(lanes)
    fill(lanes, 5, workspace="tenth")
    assert [one.workspace for one in take_all(lanes)] == ["tenth"] * 5


def test_workspaces_and_targets_take_turns() -> None:
    lanes = Lanes(256, MEGABYTE, 1000)
    fill(lanes, 6, "a", "x")
    fill(lanes, 6, "a", "y")
    fill(lanes, 6, "b", "z")
    assert [one.target for one in take_all(lanes)[:8]] == ["x", "z", "y", "z", "x", "z", "y", "z"]


def test_a_full_lane_of_a_prompt_target_holds_and_of_a_slow_one_postpones() -> None:
    lanes = Lanes(4, 64 * MEGABYTE, 100)
    fill(lanes, 101)
    [running] = take_all(lanes)
    assert lanes.admission(item(), 1.0) is Admission.HOLD
    assert lanes.admission(item(), 3.0) is Admission.SLOW  # an attempt hangs
    lanes.finish((running,), 3.0)
    assert lanes.admission(item(), 3.0) is Admission.HOLD
    for _ in range(9):
        [running] = take_all(lanes, 3.0)
        lanes.finish((running,), 13.0)
    assert lanes.admission(item(), 13.0) is Admission.SLOW  # by the mean of its attempts


def test_a_slow_target_keeps_the_first_64_messages_in_memory() -> None:
    lanes = Lanes(4, 64 * MEGABYTE, 1000)
    items = fill(lanes, 200)
    fill(lanes, 200, target="prompt")
    [slow, prompt] = take_all(lanes)[:2]
    lanes.finish((prompt,), 0.1)
    assert lanes.shed(1.0) == []
    assert lanes.shed(3.0) == items[65:]
    assert lanes.drain("acme", "hook", 3.0) == items[1:65]
    lanes.finish((slow,), 3.0)
    assert len(lanes) == 199


def test_messages_of_a_slow_target_have_their_turns_by_its_throughput() -> None:
    lanes = Lanes(16, 64 * MEGABYTE, 1000)  # four attempts of one target at once
    fill(lanes, 64 + 4 * 20)
    for now in range(0, 40, 2):  # each attempt takes two seconds, so two messages a second leave the lane
        for one in take_all(lanes, float(now)):
            lanes.finish((one,), now + 2.0)
    assert len(lanes) == 64
    running = take_all(lanes, 40.0)
    assert len(running) == 4
    assert lanes.admission(item(), 40.0) is Admission.ENTER
    fill(lanes, 4)
    assert lanes.admission(item(), 40.0) is Admission.SLOW
    turns = [lanes.slow_seconds(item(), 40.0) for _ in range(100)]
    assert turns[0] == pytest.approx(64.5 / 2, rel=0.15)  # after those that wait
    assert turns[-1] - turns[0] == pytest.approx(99 / 2, rel=0.15)  # and after those before
    for one in running:
        lanes.finish((one,), 42.0)
    take_all(lanes, 60.0)
    assert lanes.slow_seconds(item(), 60.0) == pytest.approx(turns[-1] - 20.0 + 0.5, rel=0.15)
    assert max(lanes.slow_seconds(item(), 60.0) for _ in range(10_000)) == 1800.0


def test_one_attempt_that_hangs_costs_a_target_no_more_than_its_slot() -> None:
    lanes = Lanes(16, 64 * MEGABYTE, 1000)
    fill(lanes, 200)
    hanging, *others = take_all(lanes)
    while len(lanes) > 64:
        for running in others:
            lanes.finish((running,), 0.01)
        others = take_all(lanes, 0.0)
    for running in others:
        lanes.finish((running,), 0.01)
    others = take_all(lanes, 5.0)
    fill(lanes, 4)
    assert lanes.admission(item(), 5.0) is Admission.SLOW
    turns = [lanes.slow_seconds(item(), 5.0) for _ in range(1000)]
    assert turns[-1] < (64 + 1000) * 0.01 / 3 + 0.1
    lanes.finish((hanging,), 10.0)


def test_the_wait_for_the_broker_makes_no_target_slow_and_that_for_the_endpoint_does() -> None:
    lanes = Lanes(4, 64 * MEGABYTE, 100)
    fill(lanes, 101)
    [running] = take_all(lanes)
    lanes.stop_clock((running,), 0.0)
    assert lanes.admission(item(), 30.0) is Admission.HOLD
    lanes.run_clock((running,), 30.0)
    assert lanes.admission(item(), 31.0) is Admission.HOLD
    assert lanes.admission(item(), 33.0) is Admission.SLOW
    lanes.stop_clock((running,), 33.0)
    assert lanes.admission(item(), 60.0) is Admission.HOLD
    lanes.finish((running,), 90.0)  # three seconds of the endpoint count, and not the ninety
    assert lanes.admission(item(), 90.0) is Admission.HOLD
    for _ in range(9):
        [running] = take_all(lanes, 90.0)
        lanes.stop_clock((running,), 100.0)
        lanes.finish((running,), 200.0)
    assert lanes.admission(item(), 200.0) is Admission.SLOW


def test_the_memory_of_one_target_is_a_quarter() -> None:
    lanes = Lanes(8, 40 * MEGABYTE, 1000)
    admitted = 0
    while lanes.admission(one := item(payload="x" * MEGABYTE), 0.0) is Admission.ENTER:
        lanes.add(one, 0.0)
        admitted += 1
    assert admitted == 10
    assert lanes.admission(item("other", payload="x" * MEGABYTE), 0.0) is Admission.ENTER


def test_a_workspace_above_its_share_of_the_memory_does_not_hold_its_partition() -> None:
    lanes = Lanes(8, 8 * MEGABYTE, 1000)
    for number in range(3):
        lanes.add(item(target=f"t{number}", payload="x" * MEGABYTE), 0.0)
    lanes.add(item(target="t3", payload="x" * MEGABYTE), 0.0)
    assert lanes.admission(item(target="new", payload="x" * MEGABYTE), 0.0) is Admission.POSTPONE
    assert lanes.admission(item("other", payload="x" * MEGABYTE), 0.0) is Admission.ENTER


def test_a_message_larger_than_the_memory_is_sent_alone() -> None:
    lanes = Lanes(8, MEGABYTE, 1000)
    large = item(payload="x" * 2 * MEGABYTE)
    assert lanes.admission(large, 0.0) is Admission.ENTER
    lanes.add(large, 0.0)
    assert lanes.admission(item("other"), 0.0) is Admission.HOLD
    [taken] = take_all(lanes)
    lanes.finish((taken,), 0.0)
    lanes.settle(large)
    assert lanes.admission(item("other"), 0.0) is Admission.ENTER


def test_idle_lanes_are_forgotten() -> None:
    lanes = Lanes(8, MEGABYTE, 1000)
    for number in range(50):
        fill(lanes, 1, f"w{number}")
    while taken := take_all(lanes):
        lanes.finish((taken[0],), 0.0)
        for one in taken[1:]:
            lanes.finish((one,), 0.0)
    lanes.forget_idle(0.0)
    assert lanes._workspaces == {}


def of_broadcast(lanes: Lanes, count: int) -> list[Item]:
    items = [item(user=f"member-{n}", bulk=True) for n in range(count)]
    for one in items:
        lanes.add(one, 0.0)
    return items


def sent_one_by_one(lanes: Lanes, count: int) -> list[Item]:
    taken: list[Item] = []
    for _ in range(count):
        batch = lanes.take(0.0)
        assert batch is not None
        lanes.finish(batch, 0.0)
        taken += batch
    return taken


def test_a_broadcast_gets_each_fifth_message_and_all_that_others_leave() -> None:
    lanes = Lanes(4, MEGABYTE, 1000)
    bulk = of_broadcast(lanes, 20)
    plain = fill(lanes, 20)
    taken = sent_one_by_one(lanes, 25)
    assert [one.bulk for one in taken] == 5 * [*(4 * [False]), True]
    assert [one for one in taken if not one.bulk] == plain
    assert [one for one in taken if one.bulk] + sent_one_by_one(lanes, 15) == bulk


def test_a_message_does_not_wait_for_the_broadcast_in_which_its_user_is_late() -> None:
    lanes = Lanes(4, MEGABYTE, 1000)
    bulk = of_broadcast(lanes, 20)
    urgent = item(user="member-19")
    lanes.add(urgent, 0.0)
    # In the order of the user: the bulk message is first.
    assert sent_one_by_one(lanes, 2) == [bulk[19], urgent]


def test_a_broadcast_leaves_room_for_others_in_a_lane_and_in_memory() -> None:
    lanes = Lanes(4, 64 * MEGABYTE, 10)
    bulk = of_broadcast(lanes, 5)
    assert lanes.admission(item(bulk=True), 0.0) is Admission.HOLD
    assert lanes.admission(item(), 0.0) is Admission.ENTER
    fill(lanes, 5)
    assert lanes.admission(item(), 0.0) is Admission.HOLD
    for one in bulk:
        lanes.settle(one)
    lanes = Lanes(8, 40 * MEGABYTE, 1000)
    admitted = 0
    while lanes.admission(one := item(payload="x" * MEGABYTE, bulk=True), 0.0) is Admission.ENTER:
        lanes.add(one, 0.0)
        admitted += 1
    assert admitted == 5
    assert lanes.admission(item(payload="x" * MEGABYTE), 0.0) is Admission.ENTER


def test_of_a_slow_target_the_broadcast_is_postponed_first() -> None:
    lanes = Lanes(1, MEGABYTE, 1000)
    lanes.add(item(user="slow"), 0.0)
    [slow] = take_all(lanes)
    bulk = of_broadcast(lanes, 100)
    plain = fill(lanes, 60)
    assert lanes.admission(item(bulk=True), 3.0) is Admission.SLOW
    assert lanes.shed(3.0) == bulk[4:]
    assert lanes.admission(item(), 3.0) is Admission.SLOW
    lanes.finish((slow,), 3.0)
    assert lanes.drain("acme", "hook", 3.0) == plain + bulk[:4]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(1, 9)), max_size=80))
def test_shares_never_exceed_their_capacity_and_an_idle_workspace_finds_room(wanted: list[tuple[str, str, int]]) -> None:
    shares, used = Shares(100), 0
    for workspace, target, amount in wanted:
        if shares.may_take(workspace, target, amount):
            shares.take(workspace, target, amount)
            used += amount
    assert shares.free == 100 - used
    assert shares.may_take("idle", "x")
