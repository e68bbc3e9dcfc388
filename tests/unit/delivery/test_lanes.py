"""Lanes: every message is sent once and in order, and no target or workspace delays the messages of another."""

from hypothesis import given
from hypothesis import strategies as st

from starling_delivery.sending.lanes import Admission, Item, Lanes
from starling_delivery.shares import Shares
from tests.unit.delivery.making import request

MEGABYTE = 1_000_000


def item(workspace: str = "acme", target: str = "hook", user: str = "ada", payload: str = "{}") -> Item:
    return Item(request() | {"workspace": workspace, "target_key": target, "user_id": user, "payload": payload}, lambda: None)


def fill(lanes: Lanes, count: int, workspace: str = "acme", target: str = "hook") -> list[Item]:
    items = [item(workspace, target, f"u{n}") for n in range(count)]
    for one in items:
        lanes.add(one)
    return items


def take_all(lanes: Lanes, now: float = 0.0) -> list[Item]:
    taken = []
    while (one := lanes.take(now)) is not None:
        taken.append(one)
    return taken


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.sampled_from("uvw")), max_size=60), st.data())
def test_every_message_is_taken_once_and_in_order_for_one_user_and_target(
    keys: list[tuple[str, str, str]], data: st.DataObject
) -> None:
    lanes = Lanes(data.draw(st.integers(1, 12)), MEGABYTE, 1000)
    items = [item(*key) for key in keys]
    waiting, running, taken = list(items), list[Item](), list[Item]()
    while waiting or running:
        if waiting and (not running or data.draw(st.booleans())):
            lanes.add(waiting.pop(0))
        elif running:
            lanes.finish(running.pop(data.draw(st.integers(0, len(running) - 1))), 0.0)
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
    assert lanes.admission(item(), 3.0) is Admission.POSTPONE  # an attempt hangs
    lanes.finish(running, 3.0)
    assert lanes.admission(item(), 3.0) is Admission.HOLD
    for _ in range(9):
        [running] = take_all(lanes, 3.0)
        lanes.finish(running, 13.0)
    assert lanes.admission(item(), 13.0) is Admission.POSTPONE  # by the mean of its attempts


def test_a_slow_target_keeps_the_first_64_messages_in_memory() -> None:
    lanes = Lanes(4, 64 * MEGABYTE, 1000)
    items = fill(lanes, 200)
    fill(lanes, 200, target="prompt")
    [slow, prompt] = take_all(lanes)[:2]
    lanes.finish(prompt, 0.1)
    assert lanes.shed(1.0) == []
    assert lanes.shed(3.0) == items[65:]
    assert lanes.drain("acme", "hook") == items[1:65]
    lanes.finish(slow, 3.0)
    assert len(lanes) == 199


def test_the_memory_of_one_target_is_a_quarter() -> None:
    lanes = Lanes(8, 40 * MEGABYTE, 1000)
    admitted = 0
    while lanes.admission(one := item(payload="x" * MEGABYTE), 0.0) is Admission.ENTER:
        lanes.add(one)
        admitted += 1
    assert admitted == 10
    assert lanes.admission(item("other", payload="x" * MEGABYTE), 0.0) is Admission.ENTER


def test_a_workspace_above_its_share_of_the_memory_does_not_hold_its_partition() -> None:
    lanes = Lanes(8, 8 * MEGABYTE, 1000)
    for number in range(3):
        lanes.add(item(target=f"t{number}", payload="x" * MEGABYTE))
    lanes.add(item(target="t3", payload="x" * MEGABYTE))
    assert lanes.admission(item(target="new", payload="x" * MEGABYTE), 0.0) is Admission.POSTPONE
    assert lanes.admission(item("other", payload="x" * MEGABYTE), 0.0) is Admission.ENTER


def test_a_message_larger_than_the_memory_is_sent_alone() -> None:
    lanes = Lanes(8, MEGABYTE, 1000)
    large = item(payload="x" * 2 * MEGABYTE)
    assert lanes.admission(large, 0.0) is Admission.ENTER
    lanes.add(large)
    assert lanes.admission(item("other"), 0.0) is Admission.HOLD
    [taken] = take_all(lanes)
    lanes.finish(taken, 0.0)
    lanes.settle(large)
    assert lanes.admission(item("other"), 0.0) is Admission.ENTER


def test_idle_lanes_are_forgotten() -> None:
    lanes = Lanes(8, MEGABYTE, 1000)
    for number in range(50):
        fill(lanes, 1, f"w{number}")
    while taken := take_all(lanes):
        lanes.finish(taken[0], 0.0)
        for one in taken[1:]:
            lanes.finish(one, 0.0)
    lanes.forget_idle()
    assert lanes._workspaces == {}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(1, 9)), max_size=80))
def test_shares_never_exceed_their_capacity_and_an_idle_workspace_finds_room(wanted: list[tuple[str, str, int]]) -> None:
    shares, used = Shares(100), 0
    for workspace, target, amount in wanted:
        if shares.may_take(workspace, target, amount):
            shares.take(workspace, target, amount)
            used += amount
    assert shares.free == 100 - used
    assert shares.may_take("idle", "x")
