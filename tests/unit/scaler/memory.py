"""Kubernetes and workers in memory, for the unit tests of the loop."""

from collections.abc import Sequence
from dataclasses import replace

from starling_scaler.cluster import Cluster, Conflict, KubernetesUnavailable, NotFound, Pod, Scale
from starling_scaler.election import LeaseRecord
from starling_scaler.policy.samples import Sample
from starling_scaler.workers import Workers
from tests.unit.scaler.stages import Stage


class MemoryCluster(Cluster):
    """One StatefulSet and one Lease. While `away`, every call fails."""

    def __init__(self) -> None:
        self.stored: Scale | None = Scale("starling-segmenter", 2, "app=segmenter", "1", "uid")
        self.record: LeaseRecord | None = None
        self.away = False
        self.rival = False
        """Whether another client changes the StatefulSet before each step."""
        self.events: list[tuple[str, str, bool]] = []
        self.version = 1

    def scale(self, stateful_set: str) -> Scale:
        self._answer()
        if self.stored is None or self.stored.stateful_set != stateful_set:
            raise NotFound(f"404 {stateful_set}")
        return self.stored

    def set_replicas(self, scale: Scale, replicas: int) -> None:
        found = self.scale(scale.stateful_set)
        if self.rival or found.version != scale.version:
            raise Conflict("409")
        self.stored = replace(found, replicas=replicas, version=self._next())

    def pods(self, selector: str) -> list[Pod]:
        self._answer()
        return []

    def emit_event(self, scale: Scale, reason: str, message: str, *, warning: bool) -> None:
        self._answer()
        self.events.append((reason, message, warning))

    def lease(self, name: str) -> LeaseRecord | None:
        self._answer()
        return self.record

    def create_lease(self, name: str, holder: str, duration_seconds: float) -> None:
        if self.lease(name) is not None:
            raise Conflict("409")
        self.record = LeaseRecord(holder, duration_seconds, self._next())

    def write_lease(self, name: str, record: LeaseRecord) -> None:
        found = self.lease(name)
        if found is None or found.version != record.version:
            raise Conflict("409")
        self.record = replace(record, version=self._next())

    def _answer(self) -> None:
        if self.away:
            raise KubernetesUnavailable("the API server gives no answer: connection refused")

    def _next(self) -> str:
        self.version += 1
        return str(self.version)


class MemoryWorkers(Workers):
    """Workers of a stage under the same load; the replicas that are asked for start at once. Each sample is an interval later."""

    def __init__(self, stage: Stage, cpu: float) -> None:
        self.stage = stage
        self.cpu = cpu
        self.sampled = 0

    def sample(self, pods: Sequence[Pod], replicas: int) -> Sample:
        if replicas != self.stage.replicas:
            self.stage.replicas = replicas
            self.stage.assign()
        self.sampled += 1
        return self.stage.passes([self.cpu] * replicas, [100] * replicas, [0] * replicas)
