"""Pure core: the figures of the stream layer's benchmark as a table, each beside its goal."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One line: what was measured, the figure as text, the goal as text, and whether it was met (None: no goal)."""

    what: str
    figure: str
    goal: str = ""
    met: bool | None = None


def table(found: Mapping[str, Any]) -> str:
    """Parts that were not measured are left out."""
    parts = {"counter": _counter, "segments": _segments, "curve": _curve, "latency": _latency, "timers": _timers, "state": _state}
    rows = [row for name, rows_of in parts.items() if name in found for row in rows_of(found[name])]
    texts = [("", "figure", "goal", "met"), *((row.what, row.figure, row.goal, _word(row.met)) for row in rows)]
    widths = [max(len(text[column]) for text in texts) for column in range(4)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(text, widths, strict=True)).rstrip() for text in texts)


def _word(met: bool | None) -> str:
    return "" if met is None else "yes" if met else "NO"


_TIMES_GOALS = {
    "kafka_streams_exactly_once": (">= 1.0 x", 1.0),
    "stock_faust_at_least_once": (">= 10 x", 10.0),
    "quix_exactly_once": ("> 1.0 x", 1.0),
    "quix_at_least_once": ("> 1.0 x", 1.0),
}


def _counter(found: Mapping[str, Any]) -> Iterator[Row]:
    for name, one in found.items():
        if not isinstance(one, Mapping):
            continue
        rates = f"{one['events_per_second']:>9,}/s  {one['events_per_cpu_second']:>9,}/CPU-s"
        times = one.get("ours_is_times_per_cpu_second")
        goal, least = _TIMES_GOALS.get(name, ("", 0.0))
        more = f"  ours is {times} x" if times is not None and name != "ours_exactly_once" else ""
        yield Row(f"job 1: {name.replace('_', ' ')}", rates + more, goal, times >= least if goal and times is not None else None)


def _segments(found: Mapping[str, Any]) -> Iterator[Row]:
    rate = found["events_per_second"]
    figure = f"{rate:>9,}/s  {found['events_per_cpu_second']:>9,}/CPU-s"
    yield Row(f"job 2: {found['segments']} segments", figure, ">= 30,000/s", rate >= 30_000)


def _curve(found: Mapping[str, Any]) -> Iterator[Row]:
    for count, micros in found["cpu_micros_an_event"].items():
        yield Row(f"an event with {count} segments", f"{micros:.1f} CPU-µs")
    yield Row("the most / the least", f"{found['growth']} x", "<= 3 x", found["growth"] <= 3)


def _latency(found: Mapping[str, Any]) -> Iterator[Row]:
    what = f"latency at {found['events_per_second']:,}/s (half of the top rate)"
    yield Row(f"{what}, p50", f"{found['p50_ms']:,} ms", "<= 150 ms", found["p50_ms"] <= 150)
    yield Row(f"{what}, p99", f"{found['p99_ms']:,} ms", "<= 500 ms", found["p99_ms"] <= 500)


def _timers(found: Mapping[str, Any]) -> Iterator[Row]:
    yield Row(f"{found['timers']:,} timers worked off", f"{found['worked_off_in_seconds']} s")
    added = found["added_ms_max"]
    yield Row(
        "  delay they add to a live event, at most", f"{added:,} ms (p99 {found['added_ms_p99']:,} ms)", "<= 500 ms", added <= 500
    )


def _state(found: Mapping[str, Any]) -> Iterator[Row]:
    for one in (one for one in found.values() if isinstance(one, Mapping)):
        users = f"{one['users']:,} users"
        resident = one["memory"]["resident_mb_with_all_users"]
        yield Row(f"resident, {users}", f"{resident} MB", "<= 700 MB", resident <= 700)
        if "soak" in one:
            soak = one["soak"]
            thirds = f"{soak['resident_mb_middle_third']} MB in the middle third, {soak['resident_mb_last_third']} MB in the last"
            flat = soak["resident_mb_last_third"] <= 1.02 * soak["resident_mb_middle_third"]
            yield Row(f"  soak of {soak['seconds']} s", f"{thirds}, at most {soak['resident_mb_max']} MB", "flat (2 %)", flat)
        back = one["restore"]
        first, steady_after = back["seconds_to_first_event"], back["seconds_to_80_percent"]
        yield Row(f"restore, disk gone, {users}: first event", f"{first} s", "<= 3 s", first <= 3)
        yield Row("  all partitions", f"{back['seconds_to_all_partitions']} s")
        yield Row("  80 % of the steady rate", f"{steady_after} s", "<= 60 s", steady_after is not None and steady_after <= 60)
        if "stock_faust" in one:
            times = back["times_faster_than_stock_faust"]
            theirs = f"stock Faust {one['stock_faust']['seconds_scaled_to_all_users']} s"
            yield Row("  faster than stock Faust's recovery", f"{times} x ({theirs})", ">= 20 x", times >= 20)
