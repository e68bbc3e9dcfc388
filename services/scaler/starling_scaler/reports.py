"""Adapter: every decision as a metric; steps and blocked steps as an Event, and each change as a line in the log."""

from typing import Final

from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_scaler.cluster import Cluster, Conflict, KubernetesUnavailable, NotFound, Scale
from starling_scaler.policy.decision import BLOCKING, Action, Decision, Reason

KUBERNETES: Final = "kubernetes"
"""The reason of a stage that is blocked because the API server gives no answer."""

_EVENTS: Final = {Action.OUT: "ScaledOut", Action.IN: "ScaledIn"}
_DRY_EVENTS: Final = {Action.OUT: "WouldScaleOut", Action.IN: "WouldScaleIn"}
_BLOCKED_EVENT: Final = "ScalingBlocked"
_WAIT_EVENT: Final = "ScalingWaits"
_WAITS: Final = frozenset({Reason.RESTORE, Reason.INCOMPLETE})
"""The start of a pod and a restore follow every step, and end without an operator. The metric shows one that does not."""


class Reports:
    """What was decided about the stages. One thread uses it."""

    def __init__(self, cluster: Cluster, metrics: Metrics, *, dry_run: bool) -> None:
        self._cluster = cluster
        self._dry_run = dry_run
        self._decisions = metrics.counter("starling_scaler_decisions_total")
        self._replicas = metrics.gauge("starling_scaler_replicas")
        self._wanted = metrics.gauge("starling_scaler_wanted_replicas")
        self._blocked = metrics.gauge("starling_scaler_blocked")
        self._lag = metrics.gauge("starling_scaler_lag_records")
        self._catch_up = metrics.gauge("starling_scaler_catch_up_seconds")
        self._cpu = metrics.gauge("starling_scaler_cpu_cores")
        self._leader = metrics.gauge("starling_scaler_leader")
        self._last: dict[str, tuple[Action, Reason, int]] = {}
        self._block: dict[str, str] = {}

    def leads(self, leads: bool) -> None:
        """Set whether this process acts."""
        self._leader.set(1 if leads else 0)

    def decided(self, stage: str, scale: Scale, decision: Decision) -> None:
        """Report a decision, after its step if it has one."""
        self._decisions.labels(stage, decision.action, decision.reason).inc()
        self._measured(stage, scale, decision)
        self._set_block(stage, decision.reason if decision.reason in BLOCKING else None)
        key = decision.action, decision.reason, decision.replicas
        changed, self._last[stage] = key != self._last.get(stage), key
        if not (changed or (decision.action is not Action.HOLD and not self._dry_run)):
            return
        log(__name__).info(
            "decided",
            stage=stage,
            action=decision.action.value,
            reason=decision.reason.value,
            replicas=scale.replicas,
            next_replicas=decision.replicas,
            wanted=decision.wanted,
            dry_run=self._dry_run,
            text=decision.text,
        )
        if decision.action is not Action.HOLD:
            name = (_DRY_EVENTS if self._dry_run else _EVENTS)[decision.action]
            self._emit(scale, name, f"{scale.replicas} to {decision.replicas} replicas: {decision.text}", warning=False)
        elif decision.reason in BLOCKING:
            waits = decision.reason in _WAITS
            self._emit(scale, _WAIT_EVENT if waits else _BLOCKED_EVENT, f"{decision.reason}: {decision.text}", warning=not waits)

    def unavailable(self, stage: str, error: str) -> None:
        """Report that no decision was possible, because Kubernetes gave no answer. There can be no Event."""
        first = self._block.get(stage) != KUBERNETES
        self._forget(stage)
        self._set_block(stage, KUBERNETES)
        if first:
            log(__name__).warning("kubernetes_unavailable", stage=stage, error=error)

    def follows(self, stage: str) -> None:
        """Remove what this process reported as the leader."""
        self._forget(stage)
        self._set_block(stage, None)

    def _forget(self, stage: str) -> None:
        self._last.pop(stage, None)
        for gauge in (self._replicas, self._wanted, self._lag, self._catch_up, self._cpu):
            gauge.remove_by_labels({"stage": stage})

    def _measured(self, stage: str, scale: Scale, decision: Decision) -> None:
        self._replicas.labels(stage).set(scale.replicas)
        if decision.wanted is not None:
            self._wanted.labels(stage).set(decision.wanted)
        load = decision.load
        if load is not None:
            self._lag.labels(stage).set(load.lag)
            self._cpu.labels(stage).set(load.cpu_cores)
            seconds = load.catch_up_seconds
            self._catch_up.labels(stage).set(float("inf") if seconds is None else seconds)

    def _set_block(self, stage: str, reason: str | None) -> None:
        before = self._block.get(stage)
        if before is not None and before != reason:
            self._blocked.remove(stage, before)
        if reason is None:
            self._block.pop(stage, None)
        else:
            self._block[stage] = str(reason)
            self._blocked.labels(stage, reason).set(1)

    def _emit(self, scale: Scale, name: str, text: str, *, warning: bool) -> None:
        try:
            self._cluster.emit_event(scale, name, text, warning=warning)
        except (KubernetesUnavailable, Conflict, NotFound) as error:
            log(__name__).warning("event_not_created", event_reason=name, text=text, error=str(error))
