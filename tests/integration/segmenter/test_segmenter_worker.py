"""The segmenter as a process of its own, with the real broker and registry; the tests read its topics."""

import random
import re
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from starling_common.kafka.topics import BEHAVIOUR, DELIVERY, MEMBERSHIP, MEMBERSHIP_STATE
from starling_common.time.instants import wall_clock_micros
from starling_common.values import deterministic_id, record_key
from tests.conftest import Stack
from tests.integration.segmenter.world import DEAD_LETTERS, World, start
from tests.integration.stream.rig import Worker, wait_until

__all__ = ["start"]  # the fixture

DAY_MICROS = 86_400_000_000
TWICE = {"event": "Order Completed", "op": "gte", "value": 2}


@pytest.fixture
def world(stack: Stack, workspace: str) -> Iterator[World]:
    opened = World(stack, workspace)
    yield opened
    opened.close()


def test_users_enter_by_events_and_traits_and_leave_by_time(world: World, start: Callable[[str], Worker]) -> None:
    world.define("lately", {"event": "Order Completed", "within": "4s"})
    worker = start("disk")
    wait_until(lambda: world.in_force("lately", 1), "the definition to be in force")
    world.poison("ada")
    at_ms = world.track("ada", "Order Completed")
    world.flush()
    wait_until(lambda: len(world.feed("lately")) == 2, "ada to enter and leave")
    changes = world.of(MEMBERSHIP)
    entered, exited = [record for _, record in changes]
    assert (entered["status"], entered["cause"]["kind"], entered["cause"]["event_name"]) == ("ENTERED", "EVENT", "Order Completed")
    assert (exited["status"], exited["cause"]["kind"], exited["effective_at"]) == ("EXITED", "TIMER", at_ms + 4000)
    assert entered["event_id"] == deterministic_id(world.workspace, "ada", "lately", 1)
    assert [message.key() for message, _ in changes] == [record_key(world.workspace, "ada")] * 2
    headers = changes[0][0].headers()
    assert isinstance(headers, list)
    assert dict(headers).keys() == {"correlation_id", "traceparent", "produced_by"}
    partition = changes[1][0].partition() or 0
    wait_until(lambda: max(world.instants(partition), default=0) >= exited["effective_at"], "the clock to pass the exit")
    instants = world.instants(partition)
    assert instants == sorted(set(instants))
    wait_until(lambda: len(world.of(MEMBERSHIP_STATE)) == 2, "the state topic")
    assert [message.key() for message, _ in world.of(MEMBERSHIP_STATE)] == [record_key(world.workspace, "ada/lately")] * 2
    letters = [record for message, record in world.of(DEAD_LETTERS) if message.key() == record_key(world.workspace, "ada")]
    assert [(letter["origin_topic"], letter["code"]) for letter in letters] == [(BEHAVIOUR, "broken_avro")]

    world.identify("ada", {"plan": "pro"})
    world.define("buying-pro", {"all": [{"event": "Order Completed"}, {"trait": "plan", "op": "eq", "value": "pro"}]})
    wait_until(lambda: len(world.feed("buying-pro")) == 1, "history to count")
    assert world.feed("buying-pro")[0][0:3] == ("ada", "ENTERED", 1)
    world.define("buying-pro", {}, action="ARCHIVED")
    wait_until(lambda: len(world.feed("buying-pro")) == 2, "the archived segment's exit")
    assert world.feed("buying-pro")[1] == ("ada", "EXITED", 2, "DEFINITION")
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=10) as answer:
        metrics = answer.read().decode()
    assert 'starling_segmenter_changes_total{cause="TIMER",status="EXITED"} 1.0' in metrics
    assert worker.terminate() == 0


@pytest.mark.long
def test_an_event_waits_for_the_profile_record_before_it_whose_transaction_becomes_visible_late(
    world: World, start: Callable[[str], Worker]
) -> None:
    world.define("once", {"event": "Order Completed"})
    world.define("pro", {"trait": "plan", "op": "eq", "value": "pro"})
    start("disk")
    wait_until(lambda: world.in_force("once", 1) and world.in_force("pro", 1), "the definitions to be in force")

    # The markers of one transaction come topic by topic, under load some seconds apart.
    world.changed_then_tracked("ada", {"plan": "pro"}, "Order Completed", visible_after_seconds=4)
    wait_until(lambda: len(world.feed("once")) == 1 and len(world.feed("pro")) == 1, "ada to enter both")
    assert [record["segment_key"] for _, record in world.of(MEMBERSHIP)] == ["pro", "once"]


@pytest.mark.long
def test_definitions_out_of_bounds_are_refused_and_the_others_take_effect(world: World, start: Callable[[str], Worker]) -> None:
    world.define("before", {"trait": "spent", "op": "gt", "value": 1})
    values = {
        "digits": "1" + "0" * 400,
        "more-digits": "9" * 5_000,
        "no-double": "1e400",
        "text": '"\\ud800"',
        "deep": "[" * 5_000 + "]" * 5_000,
    }
    for key, value in values.items():
        world.define(key, f'{{"trait": "spent", "op": "mod", "value": [{value}, 0]}}')
    worker = start("disk")
    world.identify("ada", {"spent": 1.5})
    world.define("digits", f'{{"trait": "spent", "op": "mod", "value": [{10**400}, 0]}}', version=2)
    world.define("after", {"event": "Order Completed"})
    world.track("ada", "Order Completed")
    world.flush()
    wait_until(lambda: world.feed("before") != [] and world.feed("after") != [], "ada to enter both")
    assert [world.feed(key) for key in values] == [[]] * len(values)
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=10) as answer:
        metrics = answer.read().decode()
    refused = re.findall(r'starling_segmenter_definitions_refused_total\{code="(\w+)"\} (\S+)', metrics)
    assert {code for code, count in refused if float(count)} >= {"definition_refused"}
    assert "/where/value/0: the integer is out of range" in worker.log.read_text()
    assert worker.terminate() == 0


@pytest.mark.long
def test_outcomes_of_messages_count_at_the_time_of_the_report(world: World, start: Callable[[str], Worker]) -> None:
    world.report("eve", "DELIVERED")
    world.flush()
    worker = start("disk")
    world.define("known", {"everyone": True})
    wait_until(lambda: len(world.feed("known")) == 1, "what was reported before to be taken over")
    world.define("messaged", {"event": "Message Delivered"})
    world.define("lately-messaged", {"event": "Message Delivered", "within": "4s"})
    wait_until(lambda: world.in_force("lately-messaged", 1), "the definitions to be in force")
    world.poison("ada", DELIVERY)
    world.report("bob", "RETRYING")
    at_ms = world.report("ada", "DELIVERED")
    world.flush()
    wait_until(lambda: ("ada", "EXITED", 2, "TIMER") in world.feed("lately-messaged"), "ada to enter and leave")
    assert world.feed("messaged") == [("eve", "ENTERED", 1, "DEFINITION"), ("ada", "ENTERED", 1, "EVENT")]
    changes = [
        record for _, record in world.of(MEMBERSHIP) if (record["user_id"], record["segment_key"]) == ("ada", "lately-messaged")
    ]
    assert (changes[0]["cause"]["event_name"], changes[1]["effective_at"]) == ("Message Delivered", at_ms + 4000)
    letters = [record for message, record in world.of(DEAD_LETTERS) if message.key() == record_key(world.workspace, "ada")]
    assert [(letter["origin_topic"], letter["code"]) for letter in letters] == [(DELIVERY, "broken_avro")]
    assert worker.terminate() == 0


@pytest.mark.long
def test_a_pause_outlives_the_worker_and_its_end_emits_the_difference(world: World, start: Callable[[str], Worker]) -> None:
    world.define("twice", TWICE)
    world.define("once", {"event": "Order Completed"})
    worker = start("disk")
    wait_until(lambda: world.in_force("twice", 1) and world.in_force("once", 1), "the definitions to be in force")
    world.track("ada", "Order Completed")
    world.define("twice", TWICE, action="PAUSED")
    wait_until(lambda: world.is_paused("twice"), "the pause to be taken over")
    world.track("ada", "Order Completed")
    world.track("eve", "Order Completed")
    world.flush()
    wait_until(lambda: len(world.feed("once")) == 2, "the other segment to go on")
    worker.kill()
    worker = start("new disk")
    for _ in range(2):
        world.track("bob", "Order Completed")
    world.flush()
    wait_until(lambda: len(world.feed("once")) == 3, "the new worker to go on")
    assert world.feed("twice") == []
    world.define("twice", TWICE, action="RESUMED")
    wait_until(lambda: len(world.feed("twice")) == 2, "the difference to be emitted")
    assert sorted(world.feed("twice")) == [("ada", "ENTERED", 1, "DEFINITION"), ("bob", "ENTERED", 1, "DEFINITION")]
    assert worker.terminate() == 0


@pytest.mark.long
def test_every_change_is_emitted_once_whatever_is_killed(world: World, start: Callable[[str], Worker]) -> None:
    dice = random.Random(5)
    world.define("odd", {"event": "Toggled", "measure": "count", "op": "mod", "value": [2, 1]})
    world.define("twice", TWICE)
    worker = start("disk")
    toggles = dict.fromkeys((f"u{number}" for number in range(30)), 0)
    for wave, disk in enumerate(["disk", "new disk", None]):
        before = len(world.feed("odd"))  # before the first event: a fast worker processes a wave at once
        for user in dice.choices(list(toggles), k=150):
            toggles[user] += 1
            world.track(user, "Toggled")
        for user in toggles:
            world.track(user, "Order Completed")
        world.flush()
        wait_until(lambda before=before: len(world.feed("odd")) > before, f"wave {wave} to begin to come out")  # type: ignore[misc]
        if disk is not None:
            worker.kill()
            worker = start(disk)
    expected = sum(toggles.values())
    wait_until(lambda: len(world.feed("odd")) >= expected and len(world.feed("twice")) >= 30, "all changes")
    assert worker.terminate() == 0
    for user, count in toggles.items():
        changes = [(status, sequence) for who, status, sequence, _ in world.feed("odd") if who == user]
        assert changes == [("ENTERED" if number % 2 else "EXITED", number) for number in range(1, count + 1)], user
    assert sorted(world.feed("twice")) == sorted((user, "ENTERED", 1, "EVENT") for user in toggles)


@pytest.mark.long
def test_a_list_counts_whether_it_was_uploaded_before_or_after_the_segment(world: World, start: Callable[[str], Worker]) -> None:
    users = [f"u{number}" for number in range(40)]
    for user in users:
        world.listed(user, "vips", is_on=True)
    world.flush()
    worker = start("disk")
    world.define("known", {"everyone": True})
    wait_until(lambda: len(world.feed("known")) == 40, "the upload to be taken over")
    world.define("vips", {"list": "vips"})
    wait_until(lambda: len(world.feed("vips")) == 40, "those of before")
    assert sorted(world.feed("vips")) == sorted((user, "ENTERED", 1, "DEFINITION") for user in users)
    worker.kill()
    for user in users[:20]:
        world.listed(user, "vips", is_on=True)  # a new upload repeats the users who stay
    for user in users[20:]:
        world.listed(user, "vips", is_on=False)
    world.listed("late/comer", "vips", is_on=True)
    world.flush()
    worker = start("new disk")
    wait_until(lambda: len(world.feed("vips")) == 61, "the list's change")
    assert sorted(world.feed("vips")[40:]) == sorted(
        [*((user, "EXITED", 2, "LIST") for user in users[20:]), ("late/comer", "ENTERED", 1, "LIST")]
    )
    assert worker.terminate() == 0


@pytest.mark.long
def test_the_users_of_an_account_count_for_each_other_across_partitions(world: World, start: Callable[[str], Worker]) -> None:
    teams = {f"team-{number}": [f"t{number}-u{member}" for member in range(6)] for number in range(5)}
    for team, users in teams.items():
        for user in users:
            world.identify(user, {}, team)
    world.flush()
    worker = start("disk")
    world.define("any-bought", {"account": {"match": "any", "where": {"event": "Order Completed", "within": "6s"}}})
    world.define("none-bought", {"account": {"match": "none", "where": {"event": "Order Completed"}}})
    wait_until(lambda: len(world.feed("none-bought")) == 30, "the definitions to be in force")
    buyers = [users[2] for users in list(teams.values())[:3]]
    times = {user: world.track(user, "Order Completed") for user in buyers}
    world.flush()
    worker.kill()
    worker = start("new disk")
    wait_until(lambda: len(world.feed("any-bought")) == 36, "three teams to enter and leave")
    assert worker.terminate() == 0
    affected = [user for users in list(teams.values())[:3] for user in users]
    changes = [(who, status, sequence) for who, status, sequence, _ in world.feed("any-bought")]
    assert sorted(changes) == sorted(change for who in affected for change in ((who, "ENTERED", 1), (who, "EXITED", 2)))
    assert sorted(world.feed("none-bought")[30:]) == sorted((who, "EXITED", 2, "EVENT") for who in affected)
    exits = {
        record["user_id"]: record["effective_at"]
        for _, record in world.of(MEMBERSHIP)
        if record["segment_key"] == "any-bought" and record["status"] == "EXITED"
    }
    assert {user: exits[user] for user in buyers} == {user: at_ms + 6_000 for user, at_ms in times.items()}
    assert [exits[user] for user in affected] == [exits[buyer] for buyer in buyers for _ in range(6)]


@pytest.mark.long
@pytest.mark.parametrize("name", ["received_at", "order"])
def test_an_event_that_is_far_ahead_moves_no_stream_time(world: World, start: Callable[[str], Worker], name: str) -> None:
    world.define("recent", {"event": "Seen", "within": "7d"})
    ahead = wall_clock_micros() + 30 * DAY_MICROS
    worker = start("disk")
    wait_until(lambda: world.in_force("recent", 1), "the definition to be in force")
    world.track("ada", "Seen")
    world.flush()
    wait_until(lambda: len(world.feed("recent")) == 1, "ada to enter")
    faulty = record_key(world.workspace, "eve")
    world.behaviour("ada", faulty, **{name: ahead})
    world.track("ada", "Other")
    world.track("bob", "Seen")
    world.flush()
    wait_until(lambda: any(message.key() == faulty for message, _ in world.of(DEAD_LETTERS)), "the dead letter")
    [letter] = [record for message, record in world.of(DEAD_LETTERS) if message.key() == faulty]
    assert (letter["origin_topic"], letter["code"]) == (BEHAVIOUR, "clock_ahead")
    metrics = _metrics(worker)
    times = [float(line.split()[-1]) for line in metrics.splitlines() if line.startswith("starling_stream_time_ms{")]
    assert max(times) * 1000 < ahead - 29 * DAY_MICROS
    assert 'starling_stream_refused_total{code="clock_ahead"} 1.0' in metrics
    # Stream time a month ahead would end ada's window.
    wait_until(lambda: len(world.feed("recent")) == 2, "bob to enter")
    assert world.feed("recent") == [("ada", "ENTERED", 1, "EVENT"), ("bob", "ENTERED", 1, "EVENT")]
    assert worker.terminate() == 0


@pytest.mark.long
def test_a_record_whose_key_has_no_workspace_is_refused_at_once(world: World, start: Callable[[str], Worker]) -> None:
    world.define("seen", {"event": "Seen"})
    worker = start("disk")
    wait_until(lambda: world.in_force("seen", 1), "the definition to be in force")
    faulty = f"no-workspace-{world.workspace}".encode()
    world.behaviour("ada", faulty)
    world.track("ada", "Seen")
    world.flush()
    wait_until(lambda: len(world.feed("seen")) == 1, "ada to enter")
    wait_until(lambda: bool(world.letters(faulty)), "the dead letter")
    [letter] = world.letters(faulty)
    assert letter["code"] == "bad_key"
    assert "is not workspace/id" in letter["message"]
    assert 'code="poison"' not in _metrics(worker)
    assert worker.terminate() == 0


def _metrics(worker: Worker) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())
