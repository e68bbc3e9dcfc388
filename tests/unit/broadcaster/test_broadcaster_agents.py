"""The loop of the broadcaster: when a broadcast begins, how fast it is written, what halts it; each member is listed once."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling_broadcaster.agents import HELD, PAUSED, STATES, WAITING
from starling_broadcaster.pace import Queue
from tests.unit.broadcaster.rig import AT, World

PLACE = ("default", "hello")


def world(members: int = 50, **fields: object) -> World:
    made = World({f"user-{number}": AT - number for number in range(members)})
    made.define(**fields)  # type: ignore[arg-type]
    return made


def state(found: World) -> str:
    [name] = [name for name in STATES if found.gauge("starling_broadcaster_broadcasts", state=name)]
    return name


def test_a_broadcast_begins_when_every_change_up_to_its_instant_is_known() -> None:
    found = world()
    found.as_of = AT
    broadcaster = found.start()
    found.run(broadcaster, 5)
    assert (found.listed, state(found), found.progress) == ([], WAITING, {})
    found.as_of = AT + 1
    found.run(broadcaster, 5)
    assert found.counts() == Counter(list(found.members))
    assert found.progress[PLACE].done
    assert found.progress[PLACE].members == 50
    assert found.gauge("starling_broadcaster_members_total", channel="email") == 50


def test_who_entered_later_is_not_listed() -> None:
    found = world(20)
    found.members |= {"at": AT, "late": AT + 1}
    found.run(found.start(), 5)
    assert "at" in found.listed
    assert "late" not in found.listed
    assert found.progress[PLACE].members == 21


def test_a_local_time_begins_with_the_earliest_zone() -> None:
    found = world(trigger={"broadcast": "vip", "local": "2026-12-01T23:00"})
    found.as_of = AT
    broadcaster = found.start()
    found.run(broadcaster, 2)
    assert found.listed == []
    found.as_of = AT + 1
    found.run(broadcaster, 5)
    assert len(found.listed) == 50


def test_no_member_is_listed_before_each_partition_of_the_messenger_has_the_campaign() -> None:
    found = world()
    found.known_to_messenger = 0
    broadcaster = found.start()
    found.run(broadcaster, 20)
    assert (found.listed, state(found)) == ([], WAITING)
    # Unlike a broadcast whose instant has not come.
    assert found.gauge("starling_broadcaster_stalled_seconds") > 15
    found.known_to_messenger = 1
    found.run(broadcaster, 5)
    assert len(found.listed) == 50
    assert found.gauge("starling_broadcaster_stalled_seconds") == 0


@given(st.integers(1, 3_000), st.sampled_from([1, 7, 1_000]))
def test_the_rate_is_kept(rate: int, batch_records: int) -> None:
    found = world(300, rate=rate)
    broadcaster, before = found.start(batch_records), 0
    for second in range(1, 8):
        found.run(broadcaster, 1)
        assert len(found.listed) <= rate * (second + 1.5) + 1
        assert len(found.listed) == 300 or len(found.listed) > before or rate == 1
        before = len(found.listed)
    assert len(found.listed) >= min(300, 5 * rate)


def test_a_paused_campaign_halts_and_an_archived_one_stops() -> None:
    found = world(300)
    broadcaster = found.start()
    found.run(broadcaster, 1)
    found.define("PAUSED")
    written = len(found.listed)
    assert 0 < written < 300
    found.run(broadcaster, 60)
    assert (len(found.listed), state(found)) == (written, PAUSED)
    assert found.gauge("starling_broadcaster_stalled_seconds") < 1
    found.define("ACTIVATED")
    found.run(broadcaster, 1)
    resumed = len(found.listed)
    assert written < resumed < 300
    found.define("ARCHIVED")
    found.run(broadcaster, 20)
    assert len(found.listed) == resumed
    assert not found.progress[PLACE].done
    assert not any(found.gauge("starling_broadcaster_broadcasts", state=name) for name in STATES)


@pytest.mark.parametrize("stage", ["messenger", "channel"])
def test_a_broadcast_halts_while_what_is_queued_takes_more_than_a_minute(stage: str) -> None:
    found = world(300)
    broadcaster = found.start()
    setattr(found, stage, Queue(0, 6_001))
    found.run(broadcaster, 3)
    assert (found.listed, state(found)) == ([], HELD)
    assert found.gauge("starling_broadcaster_stalled_seconds") < 1
    setattr(found, stage, Queue(1, 6_000))
    found.run(broadcaster, 1)
    assert 0 < len(found.listed) < 300
    # 5 a second, as it turns out: 301 are more than a minute.
    for second in range(1, 12):
        setattr(found, stage, Queue(5 * second, 301))
        found.run(broadcaster, 0.5)
        setattr(found, stage, Queue(5 * second, 301))
        found.run(broadcaster, 0.5)
    written = len(found.listed)
    found.run(broadcaster, 0)
    assert state(found) == HELD
    setattr(found, stage, Queue(60, 0))
    found.run(broadcaster, 20)
    assert written < len(found.listed) == 300


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60), st.sampled_from([1, 3, 40]))
def test_each_member_is_listed_once_whatever_fails_and_restarts(faults: list[tuple[bool, bool]], batch_records: int) -> None:
    found = world(60, rate=10_000)
    coming = iter(faults)
    broadcaster = found.start(batch_records)
    for fails, restarts in coming:
        found.failing = lambda fails=fails: fails  # type: ignore[misc]
        if restarts:
            broadcaster = found.start(batch_records)
        found.run(broadcaster, 0.01)
    found.failing = lambda: False
    found.run(broadcaster, 20)
    assert found.counts() == Counter(list(found.members))
    assert found.progress[PLACE].done
    assert found.progress[PLACE].members == 60


def test_a_restarted_process_repeats_no_finished_broadcast_and_an_empty_segment_is_done() -> None:
    found = world(0)
    found.run(found.start(), 2)
    assert found.progress[PLACE].done
    found.members = {"ada": AT}
    found.run(found.start(), 2)
    assert found.listed == []


def test_broadcasts_of_several_campaigns_go_on_side_by_side() -> None:
    found = world(200)
    found.define(key="other")
    broadcaster = found.start()
    found.run(broadcaster, 1)
    halfway = [one.members for one in found.progress.values()]
    assert len(halfway) == 2
    assert all(0 < members < 200 for members in halfway)
    found.run(broadcaster, 10)
    assert found.counts() == Counter(dict.fromkeys(found.members, 2))


def test_without_a_broadcast_neither_database_nor_queues_are_asked() -> None:
    found = World()
    found.define(trigger={"enter": "vip"}, rate=None)
    found.run(found.start(), 5)
    assert found.channels == []
