"""Builds a scaler and its health server from the settings. No other module imports both."""

from dataclasses import dataclass
from time import monotonic

from starling_common.telemetry.health import HealthServer
from starling_common.telemetry.metrics import Metrics
from starling_scaler.cluster import Cluster, connected
from starling_scaler.controller import Controller, Stage
from starling_scaler.leadership import Leadership, election_of
from starling_scaler.policy.decision import Rules
from starling_scaler.reports import Reports
from starling_scaler.settings import ScaledStage, ScalerSettings
from starling_scaler.workers import Workers


@dataclass(slots=True)
class Scaler:
    """The process."""

    controller: Controller
    leadership: Leadership
    workers: Workers
    health: HealthServer
    interval_seconds: float

    def run(self) -> None:
        """Run until `stop`; then give the Lease up."""
        self.health.start()
        self.leadership.start()
        try:
            self.controller.run(self.interval_seconds)
        finally:
            self.leadership.stop()
            self.workers.close()
            self.health.stop()

    def stop(self) -> None:
        """End `run`."""
        self.controller.stop()


def build_scaler(settings: ScalerSettings) -> Scaler:
    """Return a scaler that has opened only the port of its health server. Raises: KubernetesUnavailable, OSError."""
    metrics = Metrics()
    cluster = Cluster(connected(settings.kubeconfig), settings.namespace, settings.instance_id)
    leadership = Leadership(cluster, settings.lease_name, election_of(settings.instance_id, settings.lease_seconds), monotonic)
    workers = Workers(settings.scrape_timeout_seconds, monotonic)
    controller = Controller(
        stages_of(settings),
        cluster,
        workers,
        leadership,
        Reports(cluster, metrics, dry_run=settings.dry_run),
        dry_run=settings.dry_run,
    )
    address = (settings.http.host, settings.http.port)
    health = HealthServer(address, metrics.registry, alive=controller.alive, ready=controller.ready)
    return Scaler(controller, leadership, workers, health, settings.interval_seconds)


def stages_of(settings: ScalerSettings) -> tuple[Stage, ...]:
    """Return the stages that are scaled."""
    named: dict[str, ScaledStage | None] = {"normalizer": settings.normalizer, "segmenter": settings.segmenter}
    return tuple(Stage(name, stage.stateful_set, rules_of(settings, stage)) for name, stage in named.items() if stage is not None)


def rules_of(settings: ScalerSettings, stage: ScaledStage) -> Rules:
    """Return the rules of one stage."""
    return Rules(
        partitions=settings.profile_partitions,
        least=stage.min_replicas,
        most=stage.max_replicas,
        cpu_cores=stage.cpu_cores,
        cpu_target=stage.cpu_target,
        cpu_scale_in=stage.cpu_scale_in,
        tolerated_lag=float(stage.lag_records),
        catch_up_seconds=stage.catch_up_seconds,
        window_seconds=settings.window_seconds,
        cool_down_seconds=settings.cool_down_seconds,
        calm_seconds=settings.calm_seconds,
    )
