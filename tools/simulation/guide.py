"""Pure core: the figures of the section on the simulation in docs/how-to/capacity.md, as tables of Markdown."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_BLOCK: Final = re.compile(r"^(<!-- simulated: (\w+) -->\n).*?^(<!-- end of simulated -->)$", re.MULTILINE | re.DOTALL)
_STAGES: Final = ("edge", "normalizer", "segmenter", "projector")


def filled(page: str, found: Mapping[str, Any]) -> str:
    """Return the page with the tables of a result. Raises: KeyError for a block with an unknown name."""
    tables = {"validation": _validation, "load": _load, "faults": _faults, "skew": _skew}

    def block(match: re.Match[str]) -> str:
        return match[1] + "\n" + "".join(f"{line}\n" for line in tables[match[2]](found)) + "\n" + match[3]

    return _BLOCK.sub(block, page)


def _validation(found: Mapping[str, Any]) -> Iterator[str]:
    yield from ("| run | figure | measured | simulated | ratio |", "|---|---|---:|---:|---:|")
    checked = found["validation"]
    for name, one in checked["events_per_second"].items():
        yield f"| `platform.json/{name}` | events/s | {one['measured']:,} | {one['simulated']:,} | {one['ratio']:.2f} |"
    for file, name in (
        ("latency.json", "latency_of_the_platform_ms"),
        ("stream.json/latency", "latency_of_a_segmenter_at_half_of_its_rate_ms"),
    ):
        for figure, one in checked[name].items():
            yield f"| `{file}` | {figure} | {one['measured']:,} ms | {one['simulated']:,} ms | {one['ratio']:.2f} |"


def _load(found: Mapping[str, Any]) -> Iterator[str]:
    parameters, usage = found["parameters"], found["steady"]["utilisation"]
    yield from ("| stage | workers | CPU-µs an event | busy |", "|---|---:|---:|---:|")
    for stage in _STAGES:
        yield f"| {stage} | {parameters['workers'][stage]} | {parameters['micros_an_event'][stage]} | {usage[stage]:.0%} |"


def _faults(found: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        "| situation | feed p50 | feed p99 | read model p99 | largest backlog | repaired after | drained after the repair |",
        "|---|---:|---:|---:|---:|---:|---:|",
    )
    usual = found["steady"]
    yield f"| no fault | {_latencies(usual)} | | | |"
    for name, title in (
        ("worker_lost", "a segmenter is lost"),
        ("rolling_upgrade", "every segmenter restarts in turn"),
        ("broker_pause", "no broker answers for 10 s"),
    ):
        one, during = found[name], found[name]["during"]
        drained = "not in the run" if one["drain_seconds"] is None else f"{one['drain_seconds']:.0f} s"
        repaired = one["repaired_at_seconds"] - one["fault_at_seconds"]
        yield f"| {title} | {_latencies(during)} | {one['most_backlog_records']:,} | {repaired:.0f} s | {drained} |"


def _skew(found: Mapping[str, Any]) -> Iterator[str]:
    yield from (
        "| exponent | most active user, events/s | hottest segmenter, events/s | of its capacity | feed p50 | feed p99 |",
        "|---:|---:|---:|---:|---:|---:|",
    )
    for one in found["skew"]:
        hottest, most = one["hottest_worker_events_per_second"], one["worker_capacity_events_per_second"]
        yield (
            f"| {one['exponent']} | {one['most_active_user_events_per_second']:,.0f} | {hottest:,} | {hottest / most:.0%}"
            f" | {_seconds(one['feed_p50_ms'])} | {_seconds(one['feed_p99_ms'])} |"
        )


def _latencies(found: Mapping[str, float]) -> str:
    return " | ".join(_seconds(found[name]) for name in ("feed_p50_ms", "feed_p99_ms", "read_model_p99_ms"))


def _seconds(millis: float) -> str:
    return f"{millis / 1000:.1f} s"
