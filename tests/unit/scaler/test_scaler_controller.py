"""The loop of the scaler: it acts while it leads and the API server answers, and reports every decision."""

from dataclasses import replace
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from starling_common.telemetry.metrics import Metrics
from starling_scaler.controller import Controller
from starling_scaler.controller import Stage as ScaledStage
from starling_scaler.election import LeaseRecord
from starling_scaler.leadership import Leadership, election_of
from starling_scaler.reports import Reports
from tests.unit.scaler.memory import MemoryCluster, MemoryWorkers
from tests.unit.scaler.stages import RULES, Stage


class Rig(NamedTuple):
    cluster: MemoryCluster
    workers: MemoryWorkers
    leadership: Leadership
    controller: Controller
    registry: CollectorRegistry
    now: list[float]

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.leadership._turn()
            self.controller.turn()

    @property
    def replicas(self) -> int:
        assert self.cluster.stored is not None
        return self.cluster.stored.replicas


def rig(cpu: float = 0.9, *, dry_run: bool = False, cluster: MemoryCluster | None = None, identity: str = "a") -> Rig:
    cluster = MemoryCluster() if cluster is None else cluster
    now, metrics = [0.0], Metrics(CollectorRegistry())
    leadership = Leadership(cluster, "lease", election_of(identity, 15), lambda: now[0])
    workers = MemoryWorkers(Stage(), cpu)
    stage = ScaledStage("segmenter", "starling-segmenter", RULES)
    reports = Reports(cluster, metrics, dry_run=dry_run)
    controller = Controller((stage,), cluster, workers, leadership, reports, dry_run=dry_run)
    return Rig(cluster, workers, leadership, controller, metrics.registry, now)


def test_a_step_is_taken_and_reported_as_event_metric_and_log() -> None:
    one = rig()
    with capture_logs() as logs:
        one.turns(12)
    assert one.replicas == 3
    [(reason, message, warning)] = one.cluster.events
    assert (reason, warning) == ("ScaledOut", False)
    assert message.startswith("2 to 3 replicas: 3 workers are needed: lag 0")
    assert one.value("starling_scaler_decisions_total", stage="segmenter", action="out", reason="cpu") == 1
    assert one.value("starling_scaler_leader") == 1
    assert one.value("starling_scaler_replicas", stage="segmenter") == 3
    [step] = [entry for entry in logs if entry["event"] == "decided" and entry["action"] == "out"]
    assert (step["stage"], step["reason"], step["replicas"], step["next_replicas"]) == ("segmenter", "cpu", 2, 3)


def test_a_dry_run_changes_nothing_and_reports_what_it_would_do() -> None:
    one = rig(dry_run=True)
    one.turns(20)
    assert one.replicas == 2
    assert [reason for reason, _, _ in one.cluster.events] == ["WouldScaleOut"], "once, not every 15 s"


def test_a_stage_that_another_client_changes_is_read_again() -> None:
    one = rig()
    one.cluster.rival = True
    one.turns(12)
    assert (one.replicas, one.cluster.events) == (2, [])
    one.cluster.rival = False
    one.turns(1)
    assert one.replicas == 3


def test_without_an_answer_of_the_api_server_nothing_happens_and_readiness_names_it() -> None:
    one = rig()
    one.turns(8)
    one.cluster.away = True
    one.turns(20)
    assert one.replicas == 2
    assert "gives no answer" in str(one.controller.ready()["segmenter"])
    assert "gives no answer" in str(one.controller.ready()["kubernetes"])
    assert one.controller.alive() == {"decisions": None, "lease": None}, "a restart would not help"
    assert one.value("starling_scaler_blocked", stage="segmenter", reason="kubernetes") == 1
    one.now[0] = 10  # two thirds of the Lease's 15 s
    one.turns(1)
    assert one.value("starling_scaler_leader") == 0
    sampled = one.workers.sampled
    one.turns(5)
    assert one.workers.sampled == sampled
    one.cluster.away = False
    one.turns(1)
    assert one.controller.ready() == {"kubernetes": None, "segmenter": None}
    assert one.value("starling_scaler_blocked", stage="segmenter", reason="kubernetes") is None
    one.turns(12)
    assert one.replicas == 3, "measured from the beginning, then decided"


def test_a_missing_stateful_set_is_named_with_the_cure() -> None:
    one = rig()
    one.cluster.stored = None
    one.turns(1)
    assert "starling-segmenter does not exist: correct the setting" in str(one.controller.ready()["segmenter"])


def test_one_of_two_scalers_acts_and_the_other_continues_after_the_lease() -> None:
    first = rig()
    second = rig(cluster=first.cluster, identity="b")
    for _ in range(8):
        first.turns(1)
        second.turns(1)
    assert (first.workers.sampled, second.workers.sampled) == (8, 0)
    assert second.controller.ready() == {"kubernetes": None, "segmenter": None}, "a scaler that waits is ready"
    second.now[0] = 14.9  # the first one is gone
    second.turns(1)
    assert second.workers.sampled == 0
    second.now[0] = 15
    second.turns(12)
    assert first.replicas == 3
    assert second.cluster.record is not None
    assert (second.cluster.record.holder, second.cluster.record.transitions) == ("b", 1)


def test_a_scaler_that_stops_gives_its_lease_up() -> None:
    first = rig()
    second = rig(cluster=first.cluster, identity="b")
    first.turns(1)
    second.turns(1)
    first.leadership._release()
    assert not first.leadership.leads()
    second.turns(1)
    assert second.leadership.leads()


def test_a_step_is_not_begun_shortly_before_the_lease_ends() -> None:
    one = rig()
    one.turns(8)
    one.now[0] = 9  # it leads until 10, and a call may take longer
    for _ in range(10):
        one.controller.turn()
    assert (one.leadership.leads(), one.replicas) == (True, 2)


def test_a_block_is_an_event_once_and_a_metric_until_it_ends() -> None:
    one = rig(cpu=0.5)
    one.turns(6)
    one.workers.stage.workers = [replace(worker, restoring=frozenset({1})) for worker in one.workers.stage.workers]
    one.turns(5)
    assert [(reason, warning) for reason, _, warning in one.cluster.events] == [("ScalingWaits", False)]
    assert one.value("starling_scaler_blocked", stage="segmenter", reason="restore") == 1
    one.workers.stage.workers = [replace(worker, restoring=frozenset()) for worker in one.workers.stage.workers]
    one.turns(1)
    assert one.value("starling_scaler_blocked", stage="segmenter", reason="restore") is None


def test_a_bound_that_keeps_workers_from_being_added_is_a_warning() -> None:
    one = rig()
    one.cluster.stored = replace(one.cluster.scale("starling-segmenter"), replicas=RULES.most)
    one.turns(12)
    [(reason, message, warning)] = one.cluster.events
    assert (reason, warning) == ("ScalingBlocked", True)
    assert message.startswith("at_maximum: ")
    assert one.value("starling_scaler_blocked", stage="segmenter", reason="at_maximum") == 1
    assert (one.value("starling_scaler_wanted_replicas", stage="segmenter") or 0) > RULES.most


def test_a_lease_that_another_took_is_not_given_up() -> None:
    one = rig()
    one.turns(1)
    one.cluster.record = LeaseRecord("b", 15, "99")
    one.leadership._release()
    assert one.cluster.record.holder == "b"
