"""Edge: the thread that runs the self-audit at intervals, with its metrics and its log."""

import threading
import time
from collections.abc import Callable
from typing import Final

from starling_api.self_audit.comparison import Recorded, Source
from starling_api.self_audit.run import Report
from starling_common.cassandra.sessions import DatabaseUnavailable
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.telemetry.logs import log
from starling_common.telemetry.metrics import Metrics
from starling_common.wire import RegistryUnavailable, SchemaMissing

_SOON_SECONDS: Final = 300.0
"""Wait before the first run, and after a run that failed."""


class SelfAuditService:
    """Runs `run` at intervals. `stopping` ends a wait of the run too."""

    def __init__(
        self, run: Callable[[], Report], metrics: Metrics, interval_seconds: float, stopping: threading.Event | None = None
    ) -> None:
        """`interval_seconds` 0: it never runs, and has no metrics."""
        self._run = run
        self._interval_seconds = interval_seconds
        self._stopping = stopping or threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="self-audit", daemon=True)
        if interval_seconds:
            self._users = metrics.counter("starling_api_self_audit_users_total")
            self._differences = metrics.counter("starling_api_self_audit_differences_total")
            self._completed = metrics.gauge("starling_api_self_audit_completed_timestamp_seconds")
            for source in Source:
                self._differences.labels(source)  # the first difference is an increase only beside a zero
            self._completed.set(time.time())

    def start(self) -> None:
        """Start the thread; the first run is a few minutes later, or after the interval if that is shorter."""
        if self._interval_seconds:
            self._thread.start()

    def stop(self) -> None:
        """End the waits of the thread. A run that waits for an unreachable store ends with the process."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=2)

    def audit(self) -> bool:
        """Run once, count and log the result; return whether the run was completed."""
        try:
            report = self._run()
        except (DatabaseUnavailable, BrokerUnavailable, RegistryUnavailable, SchemaMissing) as error:
            log(__name__).warning("self_audit_postponed", error=str(error))
            return False
        except Exception:  # noqa: BLE001 - an error of the audit must not end a process that answers; its age is an alert
            if not self._stopping.is_set():  # a process that stops closes the connections of a run
                log(__name__).exception("self_audit_failed")
            return False
        differing = {finding.user for finding in report.findings}
        for result, users in (("agreed", report.agreed), ("skipped", report.skipped), ("differs", len(differing))):
            self._users.labels(result).inc(users)
        for user, workspace, (source, segment, expected, found) in report.findings:
            self._differences.labels(source).inc()
            log(__name__).error(
                "membership_differs",
                user=user,
                workspace=workspace,
                segment=segment,
                source=str(source),
                expected=_shown(expected),
                found=_shown(found),
            )
        if not self._stopping.is_set():
            self._completed.set(time.time())
        log(__name__).info("self_audit_completed", agreed=report.agreed, skipped=report.skipped, differ=len(differing))
        return True

    def _repeat(self) -> None:
        wait = min(_SOON_SECONDS, self._interval_seconds)
        while not self._stopping.wait(wait):
            wait = self._interval_seconds if self.audit() else min(_SOON_SECONDS, self._interval_seconds)


def _shown(one: Recorded | None) -> str:
    if one is None:
        return "no record"
    return f"{'member' if one.is_member else 'no member'}, sequence {one.sequence}"
