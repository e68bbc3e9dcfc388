"""Pure core: the figures of the benchmarks of delivery as a table, each beside its goal."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from common.goals import Row, as_text

LEAST_A_WORKER: Final = 8_000
"""Messages a second of the kit."""
LEAST_DECISIONS: Final = 10_000
MOST_DECIDE_US: Final = 20
MILLION_SECONDS: Final = 300
READS_HISTORY: Final = "the same, its history read again"
"""The case of `decide` that sorts and indexes the earlier messages for each decision."""


def table(found: Mapping[str, Any]) -> str:
    """Return the table of the measured parts."""
    return as_text(list(rows(found)))


def rows(found: Mapping[str, Any]) -> Iterator[Row]:
    """Parts that were not measured are left out."""
    for name, rows_of in PARTS.items():
        if name in found:
            yield from rows_of(found[name])


def _feed_kit(found: Mapping[str, Any]) -> Iterator[Row]:
    names = {"reporting_loop": ("the loop with an outcome for each change", None), "kit": ("kit of feeds, no-op channel", 0.5)}
    yield from _compared(found, names, "a loop of decode and no-op send", LEAST_A_WORKER)
    of_reporting = found["contenders"]["kit"].get("events_per_cpu_second_of_reporting_loop")
    if of_reporting is not None:
        yield Row("  of the rate of the loop with outcomes, by CPU seconds", f"{of_reporting:.0%}")


def _message_kit(found: Mapping[str, Any]) -> Iterator[Row]:
    names = {
        "at_most_once": ("kit of messages, at most once, no-op channel", 0.5),
        "at_least_once": ("the same, at least once", 0.5),
    }
    yield from _compared(found, names, "a loop of decode and no-op send", LEAST_A_WORKER)


def _webhook(found: Mapping[str, Any]) -> Iterator[Row]:
    names = {
        "webhook": ("webhook", 0.7),
        "httpx_shared": ("the loop with one client of httpx", None),
        "aiohttp": ("the loop with one client of aiohttp", None),
    }
    yield from _compared(found, names, f"a loop of httpx, {found['requests_at_once']} at a time, a client for each")


def _email(found: Mapping[str, Any]) -> Iterator[Row]:
    names = {
        "unsigned": ("email without DKIM", 0.6),
        "rsa_2048": ("email, DKIM with RSA 2048", None),
        "ed25519": ("email, DKIM with Ed25519", None),
    }
    yield from _compared(found, names, f"a loop of aiosmtplib, {found['connections']} connections")
    for name, micros in found["signature_cpu_us"].items():
        yield Row(f"  a signature with {name.replace('_', ' ')}", f"{micros} CPU-µs")


def _compared(
    found: Mapping[str, Any], names: Mapping[str, tuple[str, float | None]], yardstick: str, least_a_second: int | None = None
) -> Iterator[Row]:
    contenders = found["contenders"]
    yield Row(yardstick, _rates(contenders[found["yardstick"]]))
    for name, (what, least) in names.items():
        if name not in contenders:
            continue
        one = contenders[name]
        if least_a_second is None or least is None:
            yield Row(what, _rates(one))
        else:
            met = one["events_per_second"] >= least_a_second
            yield Row(what, _rates(one), f">= {least_a_second:,}/s", met)
        for how, key in (("CPU seconds", "of_yardstick_by_cpu"), ("the clock", "of_yardstick_by_clock")):
            goal, is_met = ("", None) if least is None else (f">= {least:.0%}", one[key] >= least)
            yield Row(f"  of the loop's rate, by {how}", f"{one[key]:.0%}", goal, is_met)


def _rates(one: Mapping[str, Any]) -> str:
    return f"{one['events_per_second']:>9,}/s  {one['events_per_cpu_second']:>9,}/CPU-s"


def _messenger(found: Mapping[str, Any]) -> Iterator[Row]:
    for what, key in (("decisions", "decisions_per_cpu_second"), ("decisions, marketing", "marketing_decisions_per_cpu_second")):
        rate = found[key]
        yield Row(f"messenger: {what}", f"{rate:>9,}/CPU-s", f">= {LEAST_DECISIONS:,}/s", rate >= LEAST_DECISIONS)
    share = found["unwanted_of_empty"]
    yield Row("events that no campaign wants, of an empty Processor's rate", f"{share:.0%}", ">= 60%", share >= 0.6)


def _decide(found: Mapping[str, Any]) -> Iterator[Row]:
    for name, micros in found["cpu_us"].items():
        if name == READS_HISTORY:  # more than the decision
            yield Row(f"decide: {name}", f"{micros} CPU-µs")
        else:
            yield Row(f"decide: {name}", f"{micros} CPU-µs", f"<= {MOST_DECIDE_US} µs", micros <= MOST_DECIDE_US)


def _feed(found: Mapping[str, Any]) -> Iterator[Row]:
    yield from _latency(f"feed record readable → request, {found['records_per_second']}/s", found, 60, 300)


def _mail(found: Mapping[str, Any]) -> Iterator[Row]:
    yield from _latency(f"event acknowledged → mail at the server, {found['events_per_second']}/s", found, 400, 1_500)


def _latency(what: str, found: Mapping[str, Any], p50_ms: int, p99_ms: int) -> Iterator[Row]:
    for name, most in (("p50", p50_ms), ("p99", p99_ms)):
        taken = found[f"{name}_ms"]
        yield Row(f"{what}, {name}", f"{taken:,} ms", f"<= {most:,} ms", taken <= most)


def _hanging(found: Mapping[str, Any]) -> Iterator[Row]:
    ratio, alone, beside = found["p99_beside_to_alone"], found["alone"]["p99_ms"], found["beside"]["p99_ms"]
    figure = f"{ratio} x ({beside:,} ms, alone {alone:,} ms)"
    yield Row("p99 of a healthy endpoint beside a hanging one", figure, "<= 1.5 x", ratio <= 1.5)


def _broadcast(found: Mapping[str, Any]) -> Iterator[Row]:
    members, seconds, million = found["members"], found["seconds"], found["seconds_for_a_million"]
    yield Row(
        f"broadcast to {members:,} members, no-op channel",
        f"{seconds} s, {found['members_per_second']:,}/s: {million:,} s for a million",
        f"<= {MILLION_SECONDS} s for a million",
        million <= MILLION_SECONDS,
    )
    for name, one in found["each"][0]["stages"].items():
        rate = one["members_per_second"]
        queue = f", {one['mean_queue_before']:,} wait before it" if "mean_queue_before" in one else ""
        figure = f"{'?' if rate is None else f'{rate:,}'}/s, {one['of_a_core']} of a core{queue}"
        yield Row(f"  {name}{', which limits' if name == found['limiting_stages'][0] else ''}", figure)
    p99 = found["triggers_p99_ms"]
    figure = f"{p99:,} ms (alone {found['triggers_alone']['p99_ms']:,} ms)"
    yield Row(f"  p99 of triggers meanwhile, {found['triggers_per_second']}/s", figure, "<= 1,000 ms", p99 <= 1_000)


PARTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[Row]]]] = {
    "kit": _feed_kit,
    "message_kit": _message_kit,
    "webhook": _webhook,
    "email": _email,
    "messenger": _messenger,
    "decide": _decide,
    "feed": _feed,
    "mail": _mail,
    "hanging": _hanging,
    "broadcast": _broadcast,
}
"""Part -> its rows."""
