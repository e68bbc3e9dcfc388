"""Many segments in one write: all or none, whatever fails in between."""

from typing import Any

import pytest

from starling_api.definitions.commands.batches import INTENT
from starling_api.definitions.commands.changes import ABANDONED_MICROS
from starling_api.definitions.definition import Change
from starling_api.definitions.kinds.kinds import SEGMENTS
from starling_api.http.errors import ResourceBusy
from starling_common.kafka.clients import BrokerUnavailable
from tests.unit.api.calls import call
from tests.unit.api.memory import AUTHOR, MemoryClaims, World

EVERYONE = {"everyone": True}


def segment(key: str, where: dict[str, Any] = EVERYONE, **more: Any) -> dict[str, Any]:
    return {"key": key, "name": key, "where": where, **more}


BATCH = [segment("a", {"event": "Buy"}), segment("new"), segment("b", {"event": "Buy"})]


def filled() -> World:
    world = World()
    for key in ("a", "b"):
        world.commands.define(SEGMENTS, AUTHOR, segment(key))
    return world


def state(world: World) -> dict[str, tuple[int, Any]]:
    """Version and condition of each key, as claimed and published; claims and read model must agree."""
    claimed = {key: claim for (_, kind, key), claim in world.claims.newest_claims.items() if kind == SEGMENTS.name}
    assert all(claim.published for claim in claimed.values())
    assert {kind for _, kind, _ in world.claims.newest_claims} == {SEGMENTS.name}  # the intent is withdrawn
    shown = {one.key: (one.version, one.document["where"]) for one in world.reader.definitions("acme", SEGMENTS.name)}
    assert shown == {key: (claim.change.version, claim.change.document["where"]) for key, claim in claimed.items()}
    return shown


NONE = {"a": (1, EVERYONE), "b": (1, EVERYONE)}
ALL = {"a": (2, {"event": "Buy"}), "b": (2, {"event": "Buy"}), "new": (1, EVERYONE)}


def test_a_batch_creates_and_changes() -> None:
    world = filled()
    answer = call(world, "POST", "/v1/segments:batch", json={"segments": BATCH}, role="make")
    assert answer.status_code == 200, answer.text
    assert [(item["key"], item["version"]) for item in answer.json()["items"]] == [("a", 2), ("new", 1), ("b", 2)]
    assert state(world) == ALL
    assert [change.key for change in world.published[2:]] == ["a", "new", "b"]
    again = call(world, "POST", "/v1/segments:batch", json={"segments": BATCH})
    assert [item["version"] for item in again.json()["items"]] == [2, 1, 2]
    assert len(world.published) == 5


def test_a_segment_can_use_an_earlier_one_of_its_batch_only() -> None:
    world = World()
    base, built = segment("base"), segment("built", {"segment": "base"})
    refused = call(world, "POST", "/v1/segments:batch", json={"segments": [built, base]})
    assert [(one["pointer"], one["code"]) for one in refused.json()["errors"]] == [("/segments/0/where/segment", "unknown_segment")]
    assert call(world, "POST", "/v1/segments:batch", json={"segments": [base, built]}).is_success
    cycle = [segment("base", {"segment": "built"})]
    assert call(world, "POST", "/v1/segments:batch", json={"segments": cycle}).json()["errors"][0]["code"] == "cycle"


@pytest.mark.parametrize(
    ("segments", "status", "pointers"),
    [
        ([segment("new"), segment("x", {"all": []}), {"key": "y"}], 422, {"/segments/1/where/all", "/segments/2"}),
        ([segment("new"), segment("new")], 422, {"/segments/1/key"}),
        ([segment("new"), 5], 422, {"/segments/1"}),
        ([segment("new"), segment("a", version=7)], 400, {"/segments/1/version"}),
        ([segment("new"), segment("gone")], 409, None),
        ([], 422, {"/segments"}),
        ([segment(f"s{number}") for number in range(101)], 422, {"/segments"}),
    ],
)
def test_a_refused_segment_prevents_the_whole_batch(segments: list[Any], status: int, pointers: set[str] | None) -> None:
    world = filled()
    world.commands.define(SEGMENTS, AUTHOR, segment("gone"))
    world.commands.archive(SEGMENTS, AUTHOR, "gone", None)
    before = len(world.published)
    refused = call(world, "POST", "/v1/segments:batch", json={"segments": segments})
    assert refused.status_code == status, refused.text
    if pointers is not None:
        assert {one["pointer"] for one in refused.json()["errors"]} == pointers
    assert len(world.published) == before
    assert {key: one for key, one in state(world).items() if key != "gone"} == NONE


def test_a_dry_run_of_a_batch_changes_nothing() -> None:
    world = filled()
    answer = call(world, "POST", "/v1/segments:batch", params={"dry_run": "true"}, json={"segments": BATCH})
    assert [(item["key"], item["version"]) for item in answer.json()["items"]] == [("a", 2), ("new", 1), ("b", 2)]
    assert state(world) == NONE


class Interrupting(MemoryClaims):
    """Claims of which the n-th call that writes is replaced by what `act` does."""

    def __init__(self, claims: MemoryClaims, number: int, act: Any) -> None:
        self.newest_claims = claims.newest_claims
        self.number = number
        self.act = act

    def claim(self, change: Change, after: Change | None) -> bool:
        self._count(change)
        return super().claim(change, after)

    def mark_published(self, change: Change) -> None:
        self._count(change)
        super().mark_published(change)

    def _count(self, change: Change) -> None:
        self.number -= 1
        if self.number == -1:
            self.act(change)


class Died(BaseException):
    """The process ends here."""


def dies(_: Change) -> None:
    raise Died


@pytest.mark.parametrize("found_by", ["sweep", "next writer"])
@pytest.mark.parametrize("number", range(7))
def test_a_batch_whose_process_dies_is_completed_or_withdrawn(number: int, found_by: str) -> None:
    """Writes: the intent, three claims, three marks that a change is published."""
    world = filled()
    world.claims = Interrupting(world.claims, number, dies)
    with pytest.raises(Died):
        world.commands.apply(AUTHOR, BATCH)
    world.micros += ABANDONED_MICROS + 1
    if found_by == "next writer":
        for key in ("b", "a"):
            world.commands.pause(SEGMENTS, AUTHOR, key, None)
    world.commands.finish_abandoned()
    assert state(world) == (NONE if number < 4 else ALL)


@pytest.mark.parametrize("number", range(1, 4))
def test_a_batch_that_loses_a_race_is_planned_again(number: int) -> None:
    world = filled()

    def rename(_: Change) -> None:
        claims, world.claims = world.claims, MemoryClaims()
        world.claims.newest_claims = claims.newest_claims
        world.commands.revise(SEGMENTS, AUTHOR, "b", {**segment("b"), "name": "Renamed"}, None)
        world.claims = claims

    world.claims = Interrupting(world.claims, number, rename)
    world.commands.apply(AUTHOR, BATCH)
    assert state(world) == ALL
    assert [change.key for change in world.published if change.document["name"] == "Renamed"] == ["b"]


def test_an_unavailable_broker_delays_the_whole_batch() -> None:
    world = filled()
    world.broker_is_down = True
    with pytest.raises(BrokerUnavailable):
        world.commands.apply(AUTHOR, BATCH)
    world.broker_is_down = False
    world.micros += ABANDONED_MICROS + 1
    assert world.commands.finish_abandoned() == 1
    assert state(world) == ALL


def test_a_batch_that_takes_too_long_is_withdrawn() -> None:
    world = filled()
    slow = Interrupting(world.claims, 3, lambda _: setattr(world, "micros", world.micros + ABANDONED_MICROS))
    world.claims = slow
    with pytest.raises(ResourceBusy):
        world.commands.apply(AUTHOR, BATCH)
    assert state(world) == NONE


def test_no_reader_sees_the_intent() -> None:
    world = filled()
    world.claims = Interrupting(world.claims, 2, dies)
    with pytest.raises(Died):
        world.commands.apply(AUTHOR, BATCH)
    assert [change.kind for change in world.claims.unpublished()].count(INTENT) == 1
    assert [one.key for one in world.reader.definitions("acme", SEGMENTS.name)] == ["a", "b"]
