"""Wiring: the backfill components of the API, from its settings. They connect at `start`."""

import threading
from collections.abc import Mapping
from typing import Final

from prometheus_client import Gauge

from starling_api.backfills.backfills import is_needed
from starling_api.backfills.topics import BackfillTopics
from starling_api.jobs.runner import Runner
from starling_api.jobs.wiring import submitter_of
from starling_api.settings import ApiSettings
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.folded_topic import FoldedTopic
from starling_common.kafka.topics import BACKFILLS, SEGMENT_DEFINITIONS
from starling_common.telemetry.logs import log
from starling_common.wire import Registry, RegistryUnavailable, SchemaMissing
from starling_rules import definitions, ledger
from starling_rules.definitions import Definitions
from starling_rules.ledger import Run

_RETRY_SECONDS: Final = 5.0


class BackfillService:
    """Follows the backfill runs and submits jobs according to the settings. No runs are known while the broker is unreachable."""

    def __init__(self, settings: ApiSettings, registry: Registry, failures: Gauge) -> None:
        """`failures`: the gauge of consecutive failures by job."""
        self.topics = BackfillTopics(settings.kafka.brokers, registry)
        self._settings = settings
        self._registry = registry
        self._failures = failures
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="backfills", daemon=True)
        self._definitions: FoldedTopic[Definitions] | None = None
        self._runs: FoldedTopic[Mapping[str, Run]] | None = None
        self._runner: Runner | None = None

    def start(self) -> None:
        """Start to follow the topics."""
        self._thread.start()

    def stop(self) -> None:
        """Stop to follow the topics, and end a job that depends on this process."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=2)  # it may wait for an unreachable broker and then ends with the process
        if self._runner is not None:
            self._runner.stop()
        for view in (self._definitions, self._runs):
            if view is not None:
                view.stop()

    def failures(self) -> dict[str, str | None]:
        """Return the failed checks by name that only a restart of the process corrects: a thread has ended."""
        views = {"backfills": self._runs, "backfilled definitions": self._definitions}
        failed = {name: None if view is None else view.problem() for name, view in views.items()}
        return failed | {"backfill runner": None if self._runner is None else self._runner.problem()}

    def runs(self) -> Mapping[str, Run]:
        """Return the runs by name; empty until the broker has been read."""
        return {} if self._runs is None else self._runs.value()

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self._definitions, self._runs = self._started()
            except (BrokerUnavailable, RegistryUnavailable, SchemaMissing) as error:
                log(__name__).warning("backfills_not_followed", error=str(error))
                self._stopping.wait(_RETRY_SECONDS)
            else:
                submitter = submitter_of(self._settings, "backfill")
                if submitter is not None and not self._stopping.is_set():
                    self._runner = Runner("backfill", submitter, self._is_needed, self._failures)
                    self._runner.start()
                return

    def _started(self) -> tuple[FoldedTopic[Definitions], FoldedTopic[Mapping[str, Run]]]:
        brokers, codec = self._settings.kafka.brokers, self._registry.codec
        definition, report = codec(SEGMENT_DEFINITIONS, "DefinitionChanged"), codec(BACKFILLS, "BackfillReported")
        segments = FoldedTopic((brokers, SEGMENT_DEFINITIONS), definition, Definitions(), definitions.fold_topic)
        runs = FoldedTopic[Mapping[str, Run]]((brokers, BACKFILLS), report, {}, ledger.fold_topic)
        segments.start()
        runs.start()
        return segments, runs

    def _is_needed(self) -> bool:
        return self._definitions is not None and is_needed(self._definitions.value(), self._newest())

    def _newest(self) -> Run | None:
        return max(self.runs().values(), key=lambda run: run.started_at, default=None)
