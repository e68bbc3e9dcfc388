"""The supervisor on followers in memory: started, replaced and ended as the definitions change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from prometheus_client import CollectorRegistry

from starling_audience.definitions import AudienceTarget, TargetKey
from starling_audience.following.follower import ENDED, FOLLOWING, Follower, group_of
from starling_audience.supervisor import Supervisor
from starling_common.telemetry.health import Degraded
from starling_common.telemetry.metrics import Metrics
from tests.unit.audience.making import META, definition, definitions


@dataclass
class State:
    name: str = FOLLOWING
    error: str | None = None


@dataclass
class Fake:
    """A follower without a thread. It ends when the test lets it."""

    target: AudienceTarget
    state: State = field(default_factory=State)
    running: bool = False
    stopping: bool = False

    @property
    def group(self) -> str:
        return group_of(self.target)

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.stopping = True

    def is_running(self) -> bool:
        return self.running

    def is_stopping(self) -> bool:
        return self.stopping

    def join(self, timeout_seconds: float) -> None:
        self.running = False


@dataclass
class World:
    """The wanted targets, and every follower that was made."""

    wanted: dict[TargetKey, AudienceTarget] | None = None
    made: list[Fake] = field(default_factory=list)
    most: int = 10

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        self.supervisor = Supervisor(lambda: self.wanted, self.make, Metrics(self.registry), self.most, lambda: 3)

    def make(self, target: AudienceTarget) -> Follower:
        self.made.append(Fake(target))
        return cast("Follower", self.made[-1])

    def want(self, *keys: str, **change: Any) -> None:
        found: Mapping[TargetKey, AudienceTarget] = definitions(
            *(definition({**META, **change, "key": key}) for key in keys)
        ).targets
        self.wanted = dict(found)
        self.supervisor.step()

    def keys(self) -> list[str]:
        return [one.target.key for one in self.made if one.running and not one.stopping]


def test_nothing_is_followed_before_the_definitions_are_known() -> None:
    world = World()
    world.supervisor.step()
    assert world.made == []


def test_a_target_is_followed_once() -> None:
    world = World()
    world.want("a", "b")
    world.supervisor.step()
    assert world.keys() == ["a", "b"]
    assert world.registry.get_sample_value("starling_audience_targets", {"state": "following"}) == 2
    assert world.registry.get_sample_value("starling_audience_targets", {"state": "disabled"}) == 3


def test_a_changed_target_is_replaced_after_its_follower_has_ended() -> None:
    world = World()
    world.want("a")
    world.want("a", token="other")
    assert world.keys() == []
    assert len(world.made) == 1, "two consumers of one target would share its partitions"
    world.made[0].running = False
    world.supervisor.step()
    assert world.keys() == ["a"]
    assert world.made[1].target.settings["token"] == "other"
    assert world.supervisor.failures() == {"loop": None, "followers": None}


def test_a_target_that_is_gone_is_ended() -> None:
    world = World()
    world.want("a", "b")
    world.want("b")
    assert world.keys() == ["b"]


def test_a_target_that_has_ended_is_not_started_again_until_it_is_changed() -> None:
    world = World()
    world.want("a")
    world.made[0].state.name, world.made[0].running = ENDED, False
    world.supervisor.step()
    assert len(world.made) == 1
    assert world.supervisor.failures()["followers"] is None
    world.want("a", token="other")
    assert world.keys() == ["a"]


def test_targets_beyond_the_most_are_named() -> None:
    world = World(most=1)
    world.want("a", "b", "c")
    assert world.keys() == ["a"]
    problem = world.supervisor.problems()["targets"]
    assert isinstance(problem, Degraded)
    assert problem.startswith("2 targets are beyond STARLING_MAX_TARGETS (1)")


def test_an_interrupted_target_is_named_and_a_dead_thread_requests_a_restart() -> None:
    world = World()
    world.want("a")
    world.made[0].state.error = "the broker is away"
    assert world.supervisor.problems()["targets"] == "1 targets are interrupted; starling-audience-acme.a: the broker is away"
    world.made[0].running = False
    assert world.supervisor.failures()["followers"] == "the threads of starling-audience-acme.a have ended"


def test_the_end_of_the_supervisor_ends_every_follower() -> None:
    world = World()
    world.want("a", "b")
    world.supervisor.stop()
    world.supervisor.run()
    assert [one.stopping for one in world.made] == [True, True]
