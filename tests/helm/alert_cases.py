"""For each alert: series over which it fires, with its labels and the value in its summary, and series over which it does not.

A series has one value a minute: `0+3x20` are 21 values, each 3 more than the one before it.
"""

from typing import Final, NamedTuple

PROCESS: Final = 'job="starling-x",instance="a"'
JOB: Final = {"job": "starling-x"}
INSTANCE: Final = {**JOB, "instance": "a"}


class Case(NamedTuple):
    """`labels`: those of the alert without its name and severity; None: it does not fire. `value`: as the summary writes it."""

    at: str
    series: dict[str, str]
    labels: dict[str, str] | None = None
    value: str = ""


def _of(name: str, labels: str = "") -> str:
    return f"{name}{{{PROCESS}{',' if labels else ''}{labels}}}"


def _buckets(name: str, bounds: list[str], slow_from: int) -> dict[str, str]:
    """Return a histogram with 60 observations a minute in the bucket with that number, and none below it."""
    found = {_of(f"{name}_bucket", f'le="{bound}"'): "0+60x90" if n >= slow_from else "0x90" for n, bound in enumerate(bounds)}
    return {**found, _of(f"{name}_bucket", 'le="+Inf"'): "0+60x90"}


def _refused(metric: str, code: str, values: str) -> dict[str, str]:
    return {_of(metric, f'code="{code}"'): values}


_STREAM_REFUSED: Final = "starling_stream_refused_total"
_MISSES: Final = _of("starling_stream_cache_reads_total", 'found="miss"')
_HITS: Final = _of("starling_stream_cache_reads_total", 'found="hit"')
_UNAVAILABLE: Final = _of("starling_stream_backing_store_unavailable")
_FLUSHED: Final = _of("starling_stream_flushed_offset_lag", 'partition="3"')
_BOUND: Final = {_of("starling_stream_unflushed_bound_bytes"): "100663296x30"}
_AUDITED: Final = _of("starling_api_self_audit_completed_timestamp_seconds")


def _requests(metric: str, failed: int, answered: int) -> dict[str, str]:
    return {_of(metric, 'status="500"'): f"0+{failed}x30", _of(metric, 'status="200"'): f"0+{answered}x30"}


def _long_requests(failed: str, answered: str) -> dict[str, str]:
    name = "starling_ingest_requests_total"
    return {_of(name, 'status="503"'): failed, _of(name, 'status="200"'): answered}


def _fresh(within_a_second: str, every: str) -> dict[str, str]:
    name = "starling_projector_freshness_seconds"
    return {_of(f"{name}_bucket", 'le="1.0"'): within_a_second, _of(f"{name}_count"): every}


def _failed_checks(instance: str, severity: str, workspace: str = "acme") -> str:
    labels = f'job="starling-x",instance="{instance}",workspace="{workspace}",kind="view",check_severity="{severity}"'
    return f"starling_api_failed_checks{{{labels}}}"


def _circuits(failed: int) -> dict[str, str]:
    return {
        _of("starling_delivery_open_circuits", 'channel="webhook"'): "6x40",
        _of("starling_delivery_attempts_total", 'channel="webhook",outcome="FAILED"'): f"0+{failed}x40",
        _of("starling_delivery_attempts_total", 'channel="webhook",outcome="DELIVERED"'): f"0+{10 - failed}x40",
    }


CASES: Final[dict[str, tuple[Case, ...]]] = {
    "StarlingLagGrows": (
        Case(
            "25m",
            {
                _of("starling_stream_lag_records", 'topic="t",partition="0"'): "30000+500x30",
                _of("starling_stream_lag_records", 'topic="t",partition="1"'): "30000+500x30",
            },
            {**JOB, "topic": "t"},
            "85k",
        ),
        Case("25m", {_of("starling_stream_lag_records", 'topic="t",partition="0"'): "90000-1000x30"}),
        Case("25m", {_of("starling_stream_lag_records", 'topic="t",partition="0"'): "0+1000x30"}),
    ),
    "StarlingSourceBehind": (
        Case(
            "5m", {_of("starling_stream_source_behind_seconds", 'source="ingest-0"'): "8x10"}, {**JOB, "source": "ingest-0"}, "8s"
        ),
        Case("5m", {_of("starling_stream_source_behind_seconds", 'source="ingest-0"'): "4x10"}),
    ),
    "StarlingPartitionNotRunning": (
        Case(
            "5m",
            {_of("starling_stream_task_state", 'partition="3",state="restoring"'): "1x10"},
            {**INSTANCE, "partition": "3", "state": "restoring"},
        ),
        Case("5m", {_of("starling_stream_task_state", 'partition="3",state="running"'): "1x10"}),
        Case("5m", {_of("starling_stream_task_state", 'partition="3",state="restoring"'): "0 0 0 0 1x10"}),
    ),
    "StarlingTimersLate": (
        Case("30m", _buckets("starling_stream_timer_late_seconds", ["60", "300"], 1), JOB, "4m 57s"),
        Case("30m", _buckets("starling_stream_timer_late_seconds", ["60", "300"], 0)),
    ),
    "StarlingTransactionsSlow": (
        Case("30m", _buckets("starling_stream_commit_seconds", ["1", "2"], 1), JOB, "1.99s"),
        Case("30m", _buckets("starling_stream_commit_seconds", ["1", "2"], 0)),
    ),
    "StarlingTransactionsGivenUp": (
        Case("20m", {_of("starling_stream_aborts_total", 'reason="broker"'): "0+3x30"}, {**JOB, "reason": "broker"}, "30"),
        Case("20m", {_of("starling_stream_aborts_total", 'reason="fenced"'): "0+3x30"}),
        Case("20m", {_of("starling_stream_aborts_total", 'reason="broker"'): "7x30"}),
    ),
    "StarlingWorkerFenced": (
        Case("20m", {_of("starling_stream_aborts_total", 'reason="fenced"'): "0+1x30"}, INSTANCE, "15"),
        Case("20m", {_of("starling_stream_aborts_total", 'reason="fenced"'): "0x10 1x30"}),
    ),
    "StarlingStandbyBehind": (
        Case(
            "20m",
            {_of("starling_stream_standby_lag_records", 'partition="3"'): "200000x30"},
            {**INSTANCE, "partition": "3"},
            "200k",
        ),
        Case("20m", {_of("starling_stream_standby_lag_records", 'partition="3"'): "90000x30"}),
    ),
    "StarlingBackingStoreUnavailable": (
        Case("10m", {_UNAVAILABLE: "1x20"}, INSTANCE),
        Case("10m", {_UNAVAILABLE: "0x20", _of("starling_stream_flush_age_seconds"): "130x20"}, INSTANCE),
        Case("10m", {_UNAVAILABLE: "0x20", _of("starling_stream_flush_age_seconds"): "30x20"}),
    ),
    "StarlingUnflushedBytesNearBound": (
        Case("10m", {_of("starling_stream_unflushed_bytes"): "90000000x20", **_BOUND}, INSTANCE, "85.83Mi"),
        Case("10m", {_of("starling_stream_unflushed_bytes"): "50000000x20", **_BOUND}),
    ),
    "StarlingFlushedOffsetBehind": (
        Case("20m", {_FLUSHED: "2000000x30", _UNAVAILABLE: "0x30"}, {**INSTANCE, "partition": "3"}, "2M"),
        Case("20m", {_FLUSHED: "2000000x30", _UNAVAILABLE: "1x30"}),
        Case("20m", {_FLUSHED: "500000x30", _UNAVAILABLE: "0x30"}),
    ),
    "StarlingUsersNotLoaded": (
        Case("40m", {_of("starling_stream_loaded_ratio", 'partition="3"'): "0.5x60"}, {**INSTANCE, "partition": "3"}),
        Case("40m", {_of("starling_stream_loaded_ratio", 'partition="3"'): "1x60"}),
    ),
    "StarlingRecordsRefused": (
        Case("20m", _refused(_STREAM_REFUSED, "bad_time", "0+1x30"), {**JOB, "code": "bad_time"}, "15"),
        # The first refused record of a process: the series begins with it.
        Case("20m", _refused(_STREAM_REFUSED, "bad_time", "_x15 1x30"), {**JOB, "code": "bad_time"}, "1"),
        Case("20m", _refused(_STREAM_REFUSED, "bad_time", "5x30")),
    ),
    "StarlingPoison": tuple(
        case
        for metric in (
            _STREAM_REFUSED,
            "starling_projector_refused_total",
            "starling_delivery_refused_total",
            "starling_spark_query_refused_total",
        )
        for case in (
            Case("20m", _refused(metric, "poison", "0+1x30"), JOB, "15"),
            Case("20m", _refused(metric, "poison", "_x15 2x30"), JOB, "2"),
            Case("20m", _refused(metric, "bad_time", "0+1x30")),
        )
    ),
    "StarlingGroupRefused": (
        Case("3m", {_of("starling_group_refused_seconds", 'group="g"'): "90x5"}, {**JOB, "group": "g"}, "90"),
        Case("3m", {_of("starling_group_refused_seconds", 'group="g"'): "30x5"}),
    ),
    "StarlingEdgeClockAhead": (
        Case("20m", _refused(_STREAM_REFUSED, "clock_ahead", "0+1x30"), JOB, "15"),
        Case("20m", _refused(_STREAM_REFUSED, "bad_time", "0+1x30")),
    ),
    "StarlingCacheTooSmall": (
        Case("45m", {_MISSES: "0+200000x60", _HITS: "0+200000x60"}, INSTANCE, "3.333k"),
        Case("45m", {_MISSES: "0+200000x60", _HITS: "0+2000000x60"}),
        Case("45m", {_MISSES: "0+6000x60", _HITS: "0+60x60"}),
    ),
    "StarlingProcessDown": (
        Case("5m", {'up{job="starling-x",instance="a"}': "0x10"}, INSTANCE),
        Case("5m", {'up{job="starling-x",instance="a"}': "0 0 1x10", 'up{job="other",instance="b"}': "0x10"}),
    ),
    "StarlingIngestFails": (
        Case("10m", _requests("starling_ingest_requests_total", 10, 100), JOB),
        Case("10m", _requests("starling_ingest_requests_total", 1, 1_000)),
    ),
    "StarlingIngestPushesBack": (
        Case("20m", {_of("starling_ingest_requests_total", 'status="429"'): "0+5x30"}, JOB),
        Case("20m", {_of("starling_ingest_requests_total", 'status="429"'): "5x30"}),
    ),
    "StarlingUnsubscribingFails": (
        Case("12m", {_of("starling_tracker_requests_total", 'path="/u/",status="503"'): "0+1x20"}, JOB),
        Case("12m", {_of("starling_tracker_requests_total", 'path="/u/",status="200"'): "0+1x20"}),
        Case("12m", {_of("starling_tracker_requests_total", 'path="/o/",status="503"'): "0+1x20"}),
    ),
    "StarlingCallbacksRefused": (
        Case(
            "35m",
            {_of("starling_tracker_requests_total", 'path="/p/",status="401"'): "0+1x50"},
            {**JOB, "status": "401"},
        ),
        Case("35m", {_of("starling_tracker_requests_total", 'path="/p/",status="401"'): "5x50"}),
        Case("35m", {_of("starling_tracker_requests_total", 'path="/p/",status="200"'): "0+1x50"}),
    ),
    "StarlingBroadcastStalled": (
        Case("2m", {_of("starling_broadcaster_stalled_seconds"): "400x5"}, JOB),
        Case("2m", {_of("starling_broadcaster_stalled_seconds"): "100x5"}),
    ),
    "StarlingAudiencePaused": (
        Case(
            "40m",
            {_of("starling_audience_paused", 'workspace="acme",target="ads"'): "1x50"},
            {**JOB, "workspace": "acme", "target": "ads"},
        ),
        Case("40m", {_of("starling_audience_paused", 'workspace="acme",target="ads"'): "1x20 0x30"}),
    ),
    "StarlingAudienceDisabled": (
        Case("10m", {_of("starling_audience_targets", 'state="disabled"'): "2x20"}, JOB, "2"),
        Case("10m", {_of("starling_audience_targets", 'state="disabled"'): "0x20"}),
    ),
    "StarlingDefinitionRefused": (
        Case(
            "20m",
            _refused("starling_segmenter_definitions_refused_total", "too_costly", "0+1x30"),
            {**JOB, "code": "too_costly"},
        ),
        Case(
            "20m",
            _refused("starling_segmenter_definitions_refused_total", "too_costly", "_x15 1x30"),
            {**JOB, "code": "too_costly"},
        ),
        Case("20m", _refused("starling_segmenter_definitions_refused_total", "too_costly", "1x30")),
    ),
    "StarlingChangesLate": (
        Case("30m", _buckets("starling_projector_freshness_seconds", ["2", "5"], 1), JOB, "4.97s"),
        Case("30m", _buckets("starling_projector_freshness_seconds", ["2", "5"], 0)),
    ),
    "StarlingReadModelsSlow": (
        Case("30m", _buckets("starling_projector_batch_seconds", ["2", "5"], 1), JOB),
        Case("30m", _refused("starling_projector_refused_total", "bad_time", "0+1x40"), JOB),
        Case("30m", _buckets("starling_projector_batch_seconds", ["2", "5"], 0)),
    ),
    "StarlingApiFails": (
        Case("10m", _requests("starling_api_requests_total", 10, 100), JOB),
        Case("10m", _requests("starling_api_requests_total", 1, 1_000)),
    ),
    "StarlingMembershipsDiffer": (
        Case(
            "130m",
            {_of("starling_api_self_audit_differences_total", 'source="evaluation"'): "0+1x150"},
            {**JOB, "source": "evaluation"},
        ),
        Case("130m", {_of("starling_api_self_audit_differences_total", 'source="evaluation"'): "3x150"}),
    ),
    "StarlingSelfAuditMissing": (
        Case("200m", {_AUDITED: "0x220"}, JOB, "3h 20m 0s"),
        Case("200m", {_AUDITED: "0+60x220"}),
    ),
    "StarlingScalingBlocked": (
        Case(
            "40m",
            {_of("starling_scaler_blocked", 'stage="segmenter",reason="restore"'): "1x60"},
            {"stage": "segmenter", "reason": "restore"},
        ),
        Case("40m", {_of("starling_scaler_blocked", 'stage="segmenter",reason="restore"'): "0x60"}),
    ),
    "StarlingDeliveriesFail": (
        Case(
            "70m",
            {_of("starling_delivery_attempts_total", 'channel="webhook",outcome="FAILED"'): "0+1x90"},
            {**JOB, "channel": "webhook"},
            "60",
        ),
        Case("70m", {_of("starling_delivery_attempts_total", 'channel="webhook",outcome="DELIVERED"'): "0+1x90"}),
    ),
    "StarlingCircuitsOpen": (
        Case("25m", _circuits(9), {**JOB, "channel": "webhook"}, "6"),
        Case("25m", _circuits(1)),
    ),
    "StarlingFeedsFail": (
        Case("40m", {_of("starling_delivery_feed_failing_targets", 'channel="slack"'): "3x50"}, {**JOB, "channel": "slack"}, "3"),
        Case("40m", {_of("starling_delivery_feed_failing_targets", 'channel="slack"'): "3x20 0x30"}),
    ),
    "StarlingComputedTraitsSlow": (
        Case("70m", _buckets("starling_profiles_batch_seconds", ["60", "300"], 1), JOB, "4m 36s"),
        Case("70m", _buckets("starling_profiles_batch_seconds", ["60", "300"], 0)),
    ),
    "StarlingJobFails": (
        Case("10m", {_of("starling_api_job_failures", 'spark_job="backfill"'): "3x20"}, {**JOB, "spark_job": "backfill"}, "3"),
        Case("10m", {_of("starling_api_job_failures", 'spark_job="backfill"'): "2x20"}),
    ),
    "StarlingQualityChecksFail": (
        # Every API process reports the same checks; those of both severities count.
        Case(
            "10m",
            {
                **{_failed_checks(api, severity): "1x20" for api in "ab" for severity in ("error", "warning")},
                _failed_checks("a", "error", "shop"): "0x20",
            },
            {**JOB, "workspace": "acme", "kind": "view"},
            "2",
        ),
        Case("10m", {_failed_checks("a", "error"): "1x3 0x20"}),
    ),
    "StarlingAvailabilityBurnsFast": (
        Case("65m", _long_requests("0+1x80", "0+100x80"), JOB),
        Case("65m", _long_requests("0+1x80", "0+1000x80")),
        # The errors ended ten minutes ago.
        Case("70m", _long_requests("0+1x60 60x20", "0+100x80")),
    ),
    "StarlingAvailabilityBurnsSlowly": (
        Case("1450m", _long_requests("0+1x1460", "0+500x1460"), JOB),
        Case("1450m", _long_requests("0+1x1460", "0+1000x1460")),
        Case("1450m", _long_requests("0+1x1300 1300x160", "0+500x1460")),
    ),
    "StarlingFreshnessBurnsFast": (
        Case("65m", _fresh("0+80x80", "0+100x80"), JOB),
        Case("65m", _fresh("0+95x80", "0+100x80")),
    ),
    "StarlingFreshnessBurnsSlowly": (
        Case("1450m", _fresh("0+95x1460", "0+100x1460"), JOB),
        Case("1450m", _fresh("0+98x1460", "0+100x1460")),
    ),
}
"""Alert -> its cases. Labels of a series that an alert does not read are left out."""
