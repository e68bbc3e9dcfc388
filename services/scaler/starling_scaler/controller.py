"""The loop: read the replicas and the workers, decide, take the step, report."""

from collections.abc import Mapping
from threading import Event
from typing import Final

from starling_common.telemetry.health import Turns
from starling_common.telemetry.logs import log
from starling_scaler.cluster import Cluster, Conflict, KubernetesUnavailable, NotFound, Scale
from starling_scaler.leadership import Leadership
from starling_scaler.policy.decision import Action, Decision, Memory, Rules, decide
from starling_scaler.reports import Reports
from starling_scaler.workers import Workers

_SILENT_SECONDS: Final = 300.0
"""A loop that has not turned for this long hangs: an interval is shorter, and every call has a time-out."""


class Stage:
    """One StatefulSet: its rules, and what was decided before."""

    def __init__(self, name: str, stateful_set: str, rules: Rules) -> None:
        self.name = name
        self.stateful_set = stateful_set
        self.rules = rules
        self.memory = Memory()


class Controller:
    """Decides about every stage once an interval, while it leads."""

    def __init__(
        self,
        stages: tuple[Stage, ...],
        cluster: Cluster,
        workers: Workers,
        leadership: Leadership,
        reports: Reports,
        *,
        dry_run: bool,
    ) -> None:
        self._stages = stages
        self._cluster = cluster
        self._workers = workers
        self._leadership = leadership
        self._reports = reports
        self._dry_run = dry_run
        self._stopping = Event()
        self._turns = Turns("the loop of decisions", _SILENT_SECONDS)
        self._problems: dict[str, str | None] = {}

    def run(self, interval_seconds: float) -> None:
        """Run until `stop`."""
        while not self._stopping.is_set():
            self._turns.turned()
            self.turn()
            self._stopping.wait(interval_seconds)
        self._turns.rest()

    def stop(self) -> None:
        """End `run`. A call in progress is awaited there."""
        self._stopping.set()

    def alive(self) -> Mapping[str, str | None]:
        """Return the checks that only a restart of the process corrects."""
        return {"decisions": self._turns.problem(), "lease": self._leadership.failure()}

    def ready(self) -> Mapping[str, str | None]:
        """Return the checks of readiness. A scaler that waits for the Lease is ready if the API server answers."""
        return {"kubernetes": self._leadership.problem, **self._problems}

    def turn(self) -> None:
        """Decide once about every stage."""
        leads = self._leadership.leads()
        self._reports.leads(leads)
        for stage in self._stages:
            if leads:
                self._decide(stage)
            else:
                self._follow(stage)

    def _follow(self, stage: Stage) -> None:
        # A scaler that led before begins again: meanwhile another one may have taken steps.
        stage.memory = Memory()
        self._problems[stage.name] = None
        problem = self._leadership.problem
        if problem is None:
            self._reports.follows(stage.name)
        else:
            self._reports.unavailable(stage.name, problem)

    def _decide(self, stage: Stage) -> None:
        try:
            scale = self._cluster.scale(stage.stateful_set)
            pods = self._cluster.pods(scale.selector)
            sample = self._workers.sample(pods, scale.replicas)
            decision, stage.memory = decide(stage.rules, stage.memory, sample)
            if decision.action is not Action.HOLD and not self._step(stage, scale, decision):
                return
        except NotFound as error:
            self._failed(
                stage, f"the StatefulSet {stage.stateful_set} does not exist: correct the setting, or install the stage ({error})"
            )
        except KubernetesUnavailable as error:
            self._failed(stage, str(error))
        else:
            self._problems[stage.name] = None
            self._reports.decided(stage.name, scale, decision)

    def _failed(self, stage: Stage, error: str) -> None:
        self._problems[stage.name] = error
        self._reports.unavailable(stage.name, error)

    def _step(self, stage: Stage, scale: Scale, decision: Decision) -> bool:
        """Return whether the step was taken, or would have been in a dry run. Raises: KubernetesUnavailable, NotFound."""
        if not self._leadership.may_call():
            log(__name__).warning("step_not_taken", stage=stage.name, error="the Lease ends before the call would")
            return False
        if self._dry_run:
            return True
        try:
            self._cluster.set_replicas(scale, decision.replicas)
        except Conflict:
            log(__name__).info("step_not_taken", stage=stage.name, error="the StatefulSet was changed since it was read")
            return False
        return True
