"""Pure core: the document of `starling status --json`."""

from collections.abc import Mapping
from typing import Any

from starling_local.instance import Options, PartReport, Report
from starling_local.stack.parts.jvm_registry import registry_url
from starling_local.stack.parts.part import HttpProbe, Part

NO_INSTANCE: Mapping[str, Any] = {
    "ready": False,
    "endpoints": {
        **dict.fromkeys(("ingest", "api", "console", "tracker", "registry", "kafka", "cassandra")),
        "metrics": {},
    },
    "parts": [],
}


def status_document(options: Options, parts: list[Part], report: Report, lags: Mapping[str, int | None]) -> dict[str, Any]:
    """Return the addresses, parts and lags of an instance.

    Shape: `restarts` and `last_end` are those since the start of the instance.
           An address is null if the instance does not have that part. A step is listed only until it is done.
           `lags` maps a service to the lag of its consumer group, null if it is unknown; all workers of a service
           have the lag of their group. A service that was started by hand has the state `external` and no process id.
    """
    shown = [part for part in report.parts if not (part.is_step and part.is_ready)]
    own = {service_of(part.name) for part in report.parts}
    external = [
        {"name": name, "state": "external", "pid": None, "lag": lag, "restarts": 0, "last_end": ""}
        for name, lag in lags.items()
        if name not in own
    ]
    return {
        "ready": report.is_ready,
        "endpoints": endpoints(options, parts),
        "parts": [*(_part(part, lags) for part in shown), *external],
    }


def endpoints(options: Options, parts: list[Part]) -> dict[str, Any]:
    """Return the address of each part. `metrics` has one entry a process: `segmenter`, then `segmenter-1` for the second worker."""
    ports = options.ports
    names = {part.name for part in parts}
    api = f"http://{ports.address('api')}"
    addresses = {
        "ingest": f"http://{ports.address('ingest')}",
        "api": api,
        "console": api,
        "tracker": f"http://{ports.address('tracker')}",
        "registry": registry_url(ports),
        "kafka": ports.address("kafka"),
        "cassandra": ports.address("cassandra"),
    }
    owner = {"console": "api"}
    known = {name: address if owner.get(name, name) in names else None for name, address in addresses.items()}
    return {**known, "metrics": _metrics(parts)}


def service_of(part: str) -> str:
    """Return the service of a part: `segmenter-1` → `segmenter`; a name without a number is a service."""
    service, dash, number = part.rpartition("-")
    return service if dash and number.isdigit() else part


def stopped(report: Report) -> Report:
    """Return the report of a dead supervisor with all parts stopped."""
    parts = tuple(PartReport(name=part.name, state="stopped", is_step=part.is_step) for part in report.parts)
    return Report(
        supervisor_pid=report.supervisor_pid,
        supervisor_started_at=report.supervisor_started_at,
        revision=report.revision,
        parts=parts,
    )


def _metrics(parts: list[Part]) -> dict[str, str]:
    served = {part.name: part.probe.url for part in parts if isinstance(part.probe, HttpProbe)}
    return {name.removesuffix("-0"): url.replace("/readyz", "/metrics") for name, url in served.items() if url.endswith("/readyz")}


def _part(part: PartReport, lags: Mapping[str, int | None]) -> dict[str, Any]:
    return {
        "name": part.name,
        "state": part.state,
        "pid": part.pid,
        "lag": lags.get(service_of(part.name)),
        "restarts": part.restarts,
        "last_end": part.last_end,
    }
