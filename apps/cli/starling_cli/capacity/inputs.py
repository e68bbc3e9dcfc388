"""Pure core: the load and the installation that a capacity plan is for, with their bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from starling_common.kafka.topics import BEHAVIOUR, DELIVERY, PROFILE, Catalogue
from starling_local.errors import NotPossible

Mix: TypeAlias = Literal["crowded", "every-kind"]
EVENT_TOPICS: Final = (BEHAVIOUR, PROFILE, DELIVERY)


class Bounds(NamedTuple):
    """The option of an input, its least and greatest value, and what it counts."""

    option: str
    least: float
    most: float
    unit: str


BOUNDS: Final[Mapping[str, Bounds]] = {
    "rps": Bounds("--rps", 1, 1e8, "events/s"),
    "average_rps": Bounds("--average-rps", 1, 1e8, "events/s"),
    "users": Bounds("--users", 1, 1e11, "users"),
    "segments": Bounds("--segments", 1, 100_000, "segments"),
    "changes": Bounds("--changes", 0, 100, "membership changes an event"),
    "memberships": Bounds("--memberships", 0, 100_000, "memberships a user"),
    "traits": Bounds("--traits", 0, 10_000, "computed traits"),
    "items_per_request": Bounds("--items-per-request", 1, 10_000, "items"),
    "history_days": Bounds("--history-days", 0, 1_095, "days"),
    "replication": Bounds("--replication", 1, 7, "copies"),
    "headroom": Bounds("--headroom", 0, 0.9, "of the capacity"),
    "replica_cores": Bounds("--replica-cores", 0.1, 512, "cores"),
    "broker_cores": Bounds("--broker-cores", 1, 512, "cores"),
    "broker_disk_tb": Bounds("--broker-disk-tb", 0.01, 1_000, "TB"),
    "cassandra_cores": Bounds("--cassandra-cores", 1, 512, "cores"),
    "cassandra_disk_tb": Bounds("--cassandra-disk-tb", 0.01, 1_000, "TB"),
    "network_gbit": Bounds("--network-gbit", 0.1, 800, "Gbit/s"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The load, and the machines that carry it.

    Units: `rps`: events/s at the peak; `average_rps`: events/s over days, None for the peak; `changes`: membership changes an
           event; `items_per_request`: items of an HTTP request; None in both is the measured number; `memberships`: segments with
           a row of a user, None for a tenth of the segments; `history_days`: for how long the events of users are readable,
           0: none are stored; `headroom`: share that stays free at the peak;
           `retention_days`: topic -> days, instead of those of the catalogue.
    """

    rps: float
    users: float
    segments: int
    average_rps: float | None = None
    changes: float | None = None
    memberships: float | None = None
    traits: int = 0
    mix: Mix = "crowded"
    items_per_request: float | None = None
    history_days: int = 30
    replication: int = 3
    headroom: float = 0.3
    replica_cores: float = 1.0
    broker_cores: float = 8
    broker_disk_tb: float = 10
    cassandra_cores: float = 8
    cassandra_disk_tb: float = 4
    network_gbit: float = 10
    retention_days: Mapping[str, float] = field(default_factory=dict)


def check(inputs: Inputs, worker_cores: float) -> None:
    """Raise NotPossible for an input outside its bounds; the text names the option and the cure.

    `worker_cores`: the cores that a worker process uses at most.
    """
    for name, bounds in BOUNDS.items():
        value = getattr(inputs, name)
        # NaN is within no bounds.
        if value is not None and not bounds.least <= value <= bounds.most:
            least, most = number(bounds.least), number(bounds.most)
            raise NotPossible(f"{bounds.option} is {number(value)}: give a number from {least} to {most} {bounds.unit}")
    if inputs.replica_cores > worker_cores:
        raise NotPossible(
            f"--replica-cores is {number(inputs.replica_cores)}: one worker process uses at most {number(worker_cores)} cores, "
            "so give at most that; the plan has more replicas then"
        )
    if inputs.average_rps is not None and inputs.average_rps > inputs.rps:
        raise NotPossible(
            f"--average-rps {number(inputs.average_rps)} is above --rps {number(inputs.rps)}: give the peak to --rps, "
            "and the mean of a day to --average-rps"
        )


def parse_retention(texts: Sequence[str], catalogue: Catalogue) -> Mapping[str, float]:
    """Return topic -> days from `TOPIC=DAYS`; `events=DAYS` means each topic of events. Raises: NotPossible."""
    found: dict[str, float] = {}
    changeable = [name for name, topic in catalogue.topics.items() if topic.cleanup == "delete" and topic.retention_ms > 0]
    for text in texts:
        name, equals, days = text.partition("=")
        topics = EVENT_TOPICS if name == "events" else (name,)
        if not equals or not set(topics) <= set(changeable):
            raise NotPossible(
                f"--retention-days {text}: write TOPIC=DAYS with a topic whose records expire, such as {BEHAVIOUR}=30, or events=30"
            )
        try:
            value = float(days)
        except ValueError:
            value = float("nan")
        if not 0 < value <= 36_500:
            raise NotPossible(f"--retention-days {text}: give a number of days above 0, at most 36,500")
        found |= dict.fromkeys(topics, value)
    return found


def number(value: float) -> str:
    """Return a number with separators and at most three decimals."""
    return f"{value:,.3f}".rstrip("0").rstrip(".")
