"""Pure core: what one event used, by part, topic and table, from two readings."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from whole.meters import Reading

MEMBERSHIP = "segments.membership"


def result(
    options: Mapping[str, Any], before: Reading, after: Reading, idle: Mapping[str, float], *, sent_seconds: float, seconds: float
) -> dict[str, Any]:
    """Return the result as JSON. `idle`: processor seconds that each service uses in the same time without events.

    Shapes: `cpu_micros`, `idle_micros`: service -> microseconds an event. `threads`: the same by kind of thread.
            `topics`: topic -> records and bytes an event. `writes`: table -> mutations an event. Control records of
            transactions count as records.
    """
    events = options["events"]
    used = {name: after.cpu_seconds[name] - before.cpu_seconds.get(name, 0.0) for name in after.cpu_seconds}
    cpu = {name: round(max(0.0, each) * 1e6 / events, 1) for name, each in sorted(used.items(), key=lambda one: -one[1])}
    topics = {
        name: {
            "records": round((use.records - before.topics[name].records) / events, 3),
            "bytes": round((use.size_bytes - before.topics[name].size_bytes) / events),
        }
        for name, use in after.topics.items()
        if name in before.topics and use.records > before.topics[name].records
    }
    threads = {
        " ".join(name): round((seconds - before.thread_seconds.get(name, 0.0)) * 1e6 / events, 1)
        for name, seconds in after.thread_seconds.items()
    }
    writes = {name: round((count - before.writes.get(name, 0)) / events, 3) for name, count in after.writes.items()}
    return {
        "options": {name: value for name, value in options.items() if name in ("users", "events", "segments", "changes", "scale")},
        "changes_an_event": topics.get(MEMBERSHIP, {}).get("records", 0.0),
        "cpu_micros_an_event": round(sum(cpu.values()), 1),
        "idle_micros_an_event": round(sum(idle.values()) * 1e6 / events, 1),
        "cores_for_100000_events_a_second": round(sum(cpu.values()) / 10, 1),
        "edge_events_per_second": round(events / sent_seconds),
        "events_per_second": round(events / seconds),
        "cpu_micros": {name: micros for name, micros in cpu.items() if micros > 0},
        "idle_micros": {name: round(each * 1e6 / events, 1) for name, each in idle.items() if each > 0},
        "threads": {name: micros for name, micros in sorted(threads.items(), key=lambda one: -one[1]) if micros >= 1},
        "topics": dict(sorted(topics.items(), key=lambda one: -one[1]["bytes"])),
        "writes": {name: each for name, each in sorted(writes.items(), key=lambda one: -one[1]) if each >= 0.001},
    }


def print_report(found: Mapping[str, Any]) -> None:
    """Print the tables of a result; the largest part comes first."""
    console = Console(width=120)
    parts = Table("part", "CPU-µs an event", "without events", title="Processor time")
    for name, micros in found["cpu_micros"].items():
        parts.add_row(name, f"{micros:,.1f}", f"{found['idle_micros'].get(name, 0.0):,.1f}")
    parts.add_row("all", f"{found['cpu_micros_an_event']:,.1f}", style="bold")
    threads = Table("part and kind of thread", "CPU-µs an event", title="Threads")
    for name, micros in found["threads"].items():
        threads.add_row(name, f"{micros:,.1f}")
    topics = Table("topic", "records an event", "bytes an event", title="Topics")
    for name, use in found["topics"].items():
        topics.add_row(name, f"{use['records']:.3f}", f"{use['bytes']:,}")
    writes = Table("table", "mutations an event", title="Cassandra")
    for name, each in found["writes"].items():
        writes.add_row(name, f"{each:.3f}")
    fresh = Table("events/s", "feed p50", "feed p99", "read model p50", "read model p99", title="Milliseconds after the answer")
    for row in found.get("freshness", ()):
        columns = ("feed_p50_ms", "feed_p99_ms", "read_model_p50_ms", "read_model_p99_ms")
        fresh.add_row(f"{row['events_per_second']:,}", *(f"{row[column]:,.0f}" for column in columns))
    for table in (parts, threads, topics, writes, *([fresh] if fresh.row_count else [])):
        console.print(table)
    console.print(
        f"{found['events_per_second']:,} events/s until all are readable ({found['edge_events_per_second']:,}/s at the edge), "
        f"{found['changes_an_event']:.2f} membership changes an event, "
        f"{found['idle_micros_an_event']:,} CPU-µs an event would be used without events too, "
        f"{found['cores_for_100000_events_a_second']:,} cores for 100,000 events/s"
    )
