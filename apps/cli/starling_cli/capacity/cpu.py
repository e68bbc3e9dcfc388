"""Pure core: the processor time of an event by part, idle and marginal cost apart, for other loads than the measured one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starling_cli.capacity.inputs import Inputs, number
from starling_cli.capacity.rates import Rates
from starling_common.kafka.topics import BEHAVIOUR, MEMBERSHIP, MEMBERSHIP_STATE

INGEST: Final = "ingest"
SEGMENTER: Final = "segmenter"
KAFKA: Final = "kafka"
CASSANDRA: Final = "cassandra"
PROJECTOR: Final = "projector"
SPARK: Final = "spark profiles"
SEGMENTER_CHANGELOG: Final = "segmenter-state-changelog"

CHANGE_TOPICS: Final = (MEMBERSHIP, MEMBERSHIP_STATE)
_CHANGE_TABLES: Final = ("segment_members", "user_memberships", "segment_counts", "segment_days")
_RECORDS: Final[Mapping[str, Sequence[str]]] = {
    "segmenter": (BEHAVIOUR, MEMBERSHIP, MEMBERSHIP_STATE, SEGMENTER_CHANGELOG),
    "projector": (BEHAVIOUR, MEMBERSHIP),
    "delivery": (MEMBERSHIP,),
}
"""Service whose cost depends on the membership changes -> the topics that it reads and writes."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processor time of one part, in µs an event: `idle` at the measured rate, and `marginal`. `formula` explains both.

    `is_measured`: the sum is the measured one, unchanged.
    """

    part: str
    idle: float
    marginal: float
    formula: str
    sources: tuple[str, ...]
    is_measured: bool

    @property
    def micros(self) -> float:
        """CPU-µs an event at the measured rate and above."""
        return self.idle + self.marginal

    def busy_cores(self, rps: float, measured_rps: float) -> float:
        """Return the cores that are busy. Below the measured rate the idle cost does not decrease."""
        return (self.marginal * rps + self.idle * max(rps, measured_rps)) / 1e6


def measured_rps(rates: Rates) -> float:
    """Return the rate at which the processor time of an event was measured, in events/s."""
    return rates["platform/events_per_second"]


def worker_cores(rates: Rates) -> float:
    """Return the cores that a busy worker process uses, as measured of the segmenter."""
    return round(rates["worker/events_per_second"] / rates["worker/events_per_cpu_second"], 2)


def changes_of(inputs: Inputs, rates: Rates) -> float:
    """Return the membership changes an event: the input, else the measured number."""
    return rates["platform/changes_an_event"] if inputs.changes is None else inputs.changes


def items_of(inputs: Inputs, rates: Rates) -> float:
    """Return the items of an HTTP request: the input, else the measured number."""
    return rates["platform/items_per_request"] if inputs.items_per_request is None else inputs.items_per_request


def interpolated(points: Sequence[tuple[float, float]], x: float) -> float:
    """Return the value of the line through the nearest two points; beyond the last point the line continues."""
    after = next((index for index, (known, _) in enumerate(points) if known >= x), len(points) - 1)
    (x0, y0), (x1, y1) = points[max(0, after - 1)], points[max(1, after)]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def platform_cpu(inputs: Inputs, rates: Rates) -> Sequence[Cpu]:
    """Return the processor time of every measured part, and of the Spark job if there are computed traits."""
    parts = [_part(part, inputs, rates) for part in rates.group("platform/cpu_micros")]
    return [*parts, _traits(inputs.traits, rates)] if inputs.traits else parts


def idle_micros(part: str, rates: Rates) -> float:
    """Return the CPU-µs an event that the processes of a part would have used without events, at the measured rate."""
    return rates.group("platform/idle_micros").get(part, 0.0)


def change_share(part: str, rates: Rates) -> float:
    """Return the share of the membership changes in the marginal cost of a part: their share of its records or rows."""
    if part == CASSANDRA:
        rows = rates.group("platform/writes")
        changed = {table: count for table, count in rows.items() if table.rpartition(".")[2] in _CHANGE_TABLES}
        return sum(changed.values()) / sum(rows.values())
    records = {name: rates[f"platform/topics/{name}/records"] for name in _topics_of(part, rates)}
    return sum(records.get(topic, 0.0) for topic in CHANGE_TOPICS) / sum(records.values()) if records else 0.0


def _topics_of(part: str, rates: Rates) -> Sequence[str]:
    if part == KAFKA:
        names = (name.rpartition("/") for name in rates.group("platform/topics"))
        return [topic for topic, _, figure in names if figure == "records"]
    return _RECORDS.get(part, ())


def _part(part: str, inputs: Inputs, rates: Rates) -> Cpu:
    measured = rates[f"platform/cpu_micros/{part}"]
    idle = idle_micros(part, rates)
    marginal = measured - idle
    formula = f"idle {number(idle)} + marginal {number(marginal)}"
    sources = [
        rates.source(f"platform/{figure}/{part}")
        for figure in ("cpu_micros", "idle_micros")
        if f"platform/{figure}/{part}" in rates.entries
    ]
    for factor, words, source in _factors(part, inputs, rates):
        marginal *= factor
        formula += words
        sources.append(source)
    for extra, words, source in _growth(part, inputs, rates):
        marginal += extra
        formula += words
        sources.append(source)
    if part in {KAFKA, CASSANDRA}:
        idle, marginal = idle * inputs.replication, marginal * inputs.replication
        formula = f"({formula}) * {inputs.replication} copies" if inputs.replication > 1 else formula
    marginal = max(0.0, marginal)
    return Cpu(part, idle, marginal, formula, tuple(sources), abs(idle + marginal - measured) < 1e-6)


def _factors(part: str, inputs: Inputs, rates: Rates) -> Iterator[tuple[float, str, str]]:
    """Yield (factor of the marginal cost, its part of the formula, source)."""
    measured, changes = rates["platform/changes_an_event"], changes_of(inputs, rates)
    share = change_share(part, rates)
    if share and changes != measured:
        words = f" * (1 + {number(share)} * ({number(changes)} / {number(measured)} changes - 1))"
        yield 1 + share * (changes / measured - 1), words, rates.source("platform/changes_an_event")


def _growth(part: str, inputs: Inputs, rates: Rates) -> Iterator[tuple[float, str, str]]:
    """Yield (addition to the marginal cost, its part of the formula, source)."""
    measured = rates["platform/options/segments"]
    if part == SEGMENTER and inputs.segments != measured:
        curve = rates.points(f"curve/{inputs.mix}")
        here, there = interpolated(curve, inputs.segments), interpolated(curve, measured)
        words = f" + {number(here)} with {inputs.segments} segments - {number(there)} with {number(measured)}"
        yield here - there, words, rates.source(f"curve/{inputs.mix}/{curve[-1][0]:.0f}").rpartition("/")[0]
    if part in {PROJECTOR, CASSANDRA} and not inputs.history_days:
        saved = max(0.0, rates[f"history/stored/{part}"] - rates[f"history/not-stored/{part}"])
        yield -saved, f" - {number(saved)} for the events of users", rates.source(f"history/not-stored/{part}")
    items = items_of(inputs, rates)
    if part == INGEST and items != rates["platform/items_per_request"]:
        name, request = request_micros(rates)
        known = rates["platform/items_per_request"]
        words = f" + {number(request)} a request * (1/{number(items)} - 1/{number(known)} items)"
        yield request * (1 / items - 1 / known), words, rates.source(name)


def request_micros(rates: Rates) -> tuple[str, float]:
    """Return the name and the value of the median run: CPU-µs of a request with one item."""
    runs = sorted((value, name) for name, value in rates.group("ingest/request_micros").items())
    value, name = runs[len(runs) // 2]
    return f"ingest/request_micros/{name}", value


def _traits(traits: int, rates: Rates) -> Cpu:
    curve = [(0.0, rates["traits/read"]), *rates.points("traits/definitions")]
    micros = interpolated(curve, traits)
    sources = (rates.source(f"traits/definitions/{curve[-1][0]:.0f}"), rates.source("traits/read"))
    return Cpu(SPARK, 0.0, micros, f"{number(micros)} with {traits} computed traits", sources, traits in {int(x) for x, _ in curve})
