"""Pure core: the figures of the benchmarks of stream layer and Spark as a table, each beside its goal."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One line: what was measured, the figure as text, the goal as text, and whether it was met (None: no goal)."""

    what: str
    figure: str
    goal: str = ""
    met: bool | None = None


def table(found: Mapping[str, Any]) -> str:
    """Parts that were not measured are left out."""
    parts: dict[str, Callable[[Any], Iterator[Row]]] = {
        "counter": _counter, "segments": _segments, "thousand": _thousand, "curve": _curve, "crowded": _crowded,
        "crowded_curve": _crowded_curve, "latency": _latency, "timers": _timers,
        "lateness": _lateness, "state": _state, "definitions": _definitions, "growth_5_to_200": _growth, "lake": _lake,
    }  # fmt: skip
    return as_text([row for name, rows_of in parts.items() if name in found for row in rows_of(found[name])])


def as_text(rows: Iterable[Row]) -> str:
    """Return the rows below a heading, in columns."""
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
        if goal and "ours_exactly_once" in found:
            by_the_clock = round(found["ours_exactly_once"]["events_per_second"] / one["events_per_second"], 2)
            yield Row("  by the clock", f"ours is {by_the_clock} x", goal, by_the_clock >= least)


def _segments(found: Mapping[str, Any]) -> Iterator[Row]:
    yield _rate(f"job 2: {found['segments']} segments of every kind", found, 30_000)


def _thousand(found: Mapping[str, Any]) -> Iterator[Row]:
    first, *later = found["each_events_per_second"]
    what = f"{found['segments']:,} segments of every kind"
    yield Row(f"{what}, the first {found['events']:,} events", f"{first:>9,}/s", ">= 15,000/s", first >= 15_000)
    if later:
        yield Row("  as many more of the same users, again and again", "   ".join(f"{rate:>9,}/s" for rate in later))


def _crowded(found: Mapping[str, Any]) -> Iterator[Row]:
    yield _rate(f"{found['segments']} segments, most of them on five kinds of events", found)


def _rate(what: str, found: Mapping[str, Any], goal: int | None = None) -> Row:
    rate = found["events_per_second"]
    figure = f"{rate:>9,}/s  {found['events_per_cpu_second']:>9,}/CPU-s"
    return Row(what, figure) if goal is None else Row(what, figure, f">= {goal:,}/s", rate >= goal)


def _curve(found: Mapping[str, Any]) -> Iterator[Row]:
    yield from _costs(found)
    yield Row("the most / the least", f"{found['growth']} x", "<= 3 x", found["growth"] <= 3)


def _crowded_curve(found: Mapping[str, Any]) -> Iterator[Row]:
    yield from (row._replace(what=f"{row.what}, most on five kinds of events") for row in _costs(found))
    yield Row("the most / the least", f"{found['growth']} x")


def _costs(found: Mapping[str, Any]) -> Iterator[Row]:
    for count, micros in found["cpu_micros_an_event"].items():
        yield Row(f"an event with {count} segments", f"{micros:.1f} CPU-µs")


def _latency(found: Mapping[str, Any]) -> Iterator[Row]:
    what = f"latency at {found['events_per_second']:,}/s (half of the top rate)"
    yield Row(f"{what}, p50", f"{found['p50_ms']:,} ms", "<= 150 ms", found["p50_ms"] <= 150)
    yield Row(f"{what}, p99", f"{found['p99_ms']:,} ms", "<= 500 ms", found["p99_ms"] <= 500)
    if (begun := found.get("first_half_minute")) is not None:
        yield Row("  in the worker's first half minute, p50 and p99", f"{begun['p50_ms']:,} and {begun['p99_ms']:,} ms")


def _timers(found: Mapping[str, Any]) -> Iterator[Row]:
    yield Row(f"{found['timers']:,} timers worked off", f"{found['worked_off_in_seconds']} s")
    added = found["added_ms_max"]
    yield Row(
        "  delay they add to a live event, at most", f"{added:,} ms (p99 {found['added_ms_p99']:,} ms)", "<= 500 ms", added <= 500
    )


def _lateness(found: Mapping[str, Any]) -> Iterator[Row]:
    beside = f"{found['segments']:,} segments, {found['events_per_second']:,}/s"
    for name in ("exits", "entries"):
        one = found[name]
        figure = f"p50 {one['p50_ms']:,} ms, p99 {one['p99_ms']:,} ms of {one['count']:,}"
        yield Row(f"{name} by time beside {beside}", figure, "p99 <= 1,000 ms", one["p99_ms"] <= 1000)


def _state(found: Mapping[str, Any]) -> Iterator[Row]:
    for one in (one for one in found.values() if isinstance(one, Mapping)):
        users = f"{one['users']:,} users"
        resident = one["memory"]["resident_mb_with_all_users"]
        yield Row(f"resident, {users}", f"{resident} MB", "<= 700 MB", resident <= 700)
        if "soak" in one:
            soak = one["soak"]
            thirds = f"{soak['resident_mb_middle_third']} MB in the middle third, {soak['resident_mb_last_third']} MB in the last"
            flat = soak["resident_mb_last_third"] <= 1.02 * soak["resident_mb_middle_third"]
            most = f"at most {soak['resident_mb_max']} MB; {soak['events_behind']:,} events behind at the end"
            yield Row(f"  soak of {soak['seconds']} s", f"{thirds}, {most}", "flat (2 %)", flat)
        back = one["restore"]
        first, steady_after = back["seconds_to_first_event"], back["seconds_to_80_percent"]
        yield Row(f"restore, disk gone, {users}: first event", f"{first} s", "<= 3 s", first <= 3)
        yield Row("  all partitions", f"{back['seconds_to_all_partitions']} s")
        yield Row("  80 % of the steady rate", f"{steady_after} s", "<= 60 s", steady_after is not None and steady_after <= 60)
        if "stock_faust" in one:
            times = back["times_faster_than_stock_faust"]
            theirs = f"stock Faust {one['stock_faust']['seconds_scaled_to_all_users']} s"
            yield Row("  faster than stock Faust's recovery", f"{times} x ({theirs})", ">= 20 x", times >= 20)


def _definitions(found: Mapping[str, Any]) -> Iterator[Row]:
    for count, one in found.items():
        share = one["rate_to_read_and_decode_fields_needed"]
        figure = f"{one['events_per_second']:>9,}/s  {share} of reading and decoding the needed fields"
        goal = ">= 0.5" if count == "50" else ""
        yield Row(f"computed traits: {count} definitions", figure, goal, share >= 0.5 if goal else None)
        state = one["state"]
        yield Row(
            "  state of a person, p50 / p99 / most",
            f"{state['bytes_p50']:,} / {state['bytes_p99']:,} / {state['bytes_max']:,} bytes",
        )


def _growth(found: float) -> Iterator[Row]:
    yield Row("computed traits: from 5 to 200 definitions", f"{found} x", "<= 3 x", found <= 3)


def _lake(found: Mapping[str, Any]) -> Iterator[Row]:
    yield Row("read and decode alone", f"{found['read_and_decode']['events_per_second']:>9,}/s")
    share = found["rate_to_read_and_decode"]
    yield Row("lake", f"{found['lake']['events_per_second']:>9,}/s  {share} of read and decode", ">= 0.65", share >= 0.65)
    if "lake_s3" in found:
        share = found["s3_rate_to_directory"]
        rate = f"{found['lake_s3']['events_per_second']:>9,}/s"
        yield Row("lake in S3", f"{rate}  {share} of a lake in a directory", ">= 0.7", share >= 0.7)
        yield Row("  rows by Iceberg's writer", f"{found['lake_s3_by_rows']['events_per_second']:>9,}/s")
