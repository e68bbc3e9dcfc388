"""Pure core: the capacity plan: cores, replicas, memory, disk, network, partitions and nodes, each with its formula."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from starling_cli.capacity.assumptions import (
    BROKER_GB,
    DEFAULT_PARTITIONS,
    MIN_REPLICAS,
    NODE_GB,
    PARTITIONS_A_WORKER,
    Assumption,
    assumptions,
)
from starling_cli.capacity.cpu import CASSANDRA, KAFKA, SPARK, Cpu, measured_rps, platform_cpu, worker_cores
from starling_cli.capacity.inputs import Inputs, check, number
from starling_cli.capacity.rates import Rates
from starling_cli.capacity.storage import STATEFUL, Flow, Storage, Stored
from starling_common.kafka.topics import Catalogue
from starling_local.errors import NotPossible

MOST_PARTITIONS: Final = 8_192
"""The greatest power of two that the deploy step accepts."""
PARTITIONED: Final = ("normalizer", "segmenter", "projector", "delivery")
"""Stages whose workers divide the partitions among themselves."""
_SPARK_DRIVERS: Final = 1


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the installation. `cores`: needed at the peak, headroom included; `memory_gb`: of one replica."""

    name: str
    cpu: Cpu
    cores: float
    replicas: int
    memory_gb: float
    formula: str
    memory_formula: str

    @property
    def memory_is_assumed(self) -> bool:
        """The memory of this part was not measured."""
        return self.memory_formula.startswith("assumed")


@dataclass(frozen=True, slots=True)
class Driver:
    """A large share of a resource."""

    resource: str
    item: str
    share: float


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes of a cluster. `formula` names the resource that decides."""

    count: int
    formula: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole plan. `cpu_micros`: of an event, all parts, at the measured rate and above; `idle_micros` is contained in it."""

    inputs: Inputs
    measured_rps: float
    cpu_micros: float
    idle_micros: float
    partitions: int
    partitions_formula: str
    parts: Sequence[Part]
    stored: Sequence[Stored]
    flows: Sequence[Flow]
    brokers: Nodes
    cassandra_nodes: Nodes
    drivers: Sequence[Driver]
    assumptions: Sequence[Assumption]

    @property
    def cores(self) -> float:
        """All cores at the peak, headroom included."""
        return sum(part.cores for part in self.parts)

    @property
    def marginal_cores(self) -> float:
        """The cores without the idle cost, headroom included: a lower bound."""
        return self.inputs.rps * (self.cpu_micros - self.idle_micros) / 1e6 / (1 - self.inputs.headroom)

    @property
    def memory_gb(self) -> float:
        """The memory of all replicas and nodes."""
        return sum(part.memory_gb * part.replicas for part in self.parts)

    @property
    def disk_bytes(self) -> float:
        """The disk of all copies of all stores."""
        return sum(one.disk_bytes for one in self.stored)


def plan(inputs: Inputs, rates: Rates, catalogue: Catalogue) -> Plan:
    """Return the plan. Raises: NotPossible for an input outside its bounds, and for more partitions than a topic can have."""
    check(inputs, worker_cores(rates))
    storage, cpus = Storage(inputs, rates, catalogue), platform_cpu(inputs, rates)
    cores = {cpu.part: cpu.busy_cores(inputs.rps, measured_rps(rates)) / (1 - inputs.headroom) for cpu in cpus}
    slowest = max(PARTITIONED, key=lambda stage: cores[stage])
    partitions = partitions_for(cores[slowest], inputs.replica_cores)
    stored = [*storage.kafka(), *storage.cassandra(), *storage.local_stores()]
    flows = list(storage.flows())
    brokers = _brokers(inputs, cores[KAFKA], stored, flows)
    nodes = _cassandra_nodes(inputs, cores[CASSANDRA], stored)
    sizes = {KAFKA: brokers.count, CASSANDRA: nodes.count}
    parts = [_part(cpu, cores[cpu.part], partitions, sizes.get(cpu.part), inputs, rates) for cpu in cpus]
    return Plan(
        inputs=inputs,
        measured_rps=measured_rps(rates),
        cpu_micros=sum(cpu.micros for cpu in cpus),
        idle_micros=sum(cpu.idle for cpu in cpus),
        partitions=partitions,
        partitions_formula=(
            f"least power of two from {DEFAULT_PARTITIONS} and from {PARTITIONS_A_WORKER} * "
            f"{number(cores[slowest])} cores of {slowest} / {number(inputs.replica_cores)} cores a replica"
        ),
        parts=parts,
        stored=stored,
        flows=flows,
        brokers=brokers,
        cassandra_nodes=nodes,
        drivers=[
            *_drivers("cores", cores.items()),
            *_drivers("disk", ((f"{one.store} {one.name}", one.disk_bytes) for one in stored)),
        ],
        assumptions=list(assumptions(inputs, rates, storage.memberships)),
    )


def partitions_for(cores: float, replica_cores: float) -> int:
    """Return the partitions that the slowest stage needs, a power of two. Raises: NotPossible if no topic can have as many."""
    needed = max(DEFAULT_PARTITIONS, math.ceil(PARTITIONS_A_WORKER * cores / replica_cores))
    partitions = 1 << (needed - 1).bit_length()
    if partitions > MOST_PARTITIONS:
        raise NotPossible(
            f"the slowest stage needs {partitions:,} partitions, and a topic has at most {MOST_PARTITIONS:,}: "
            "plan several installations, each with some of the workspaces and a part of --rps"
        )
    return partitions


def workers_for(cores: float, partitions: int, replica_cores: float) -> int:
    """Return the workers among which no one gets more partitions than it has cores for."""
    most = min(partitions, math.floor(replica_cores * partitions / cores)) if cores else partitions
    return max(MIN_REPLICAS, math.ceil(partitions / most))


def _part(cpu: Cpu, cores: float, partitions: int, nodes: int | None, inputs: Inputs, rates: Rates) -> Part:
    name, cores_each = cpu.part, inputs.replica_cores
    if nodes is not None:
        replicas = nodes
    elif name in PARTITIONED:
        replicas = workers_for(cores, partitions, cores_each)
    elif name == SPARK:
        replicas = _SPARK_DRIVERS + math.ceil(cores / rates["traits/cores"])
    else:
        replicas = max(MIN_REPLICAS, math.ceil(cores / cores_each))
    memory, memory_formula = _memory(name, inputs.users / replicas, rates)
    free = number(1 - inputs.headroom)
    rate = (
        f"{number(inputs.rps)} events/s * ({cpu.formula}) µs"
        if inputs.rps >= measured_rps(rates)
        else f"({number(inputs.rps)} events/s * {number(cpu.marginal)} µs"
        f" + {number(measured_rps(rates))} events/s * idle {number(cpu.idle)} µs)"
    )
    return Part(name, cpu, cores, replicas, memory, f"{rate} / {free}", memory_formula)


def _memory(part: str, users: float, rates: Rates) -> tuple[float, str]:
    """Return GB of one replica and the formula."""
    if part == KAFKA:
        return BROKER_GB, f"assumed {number(BROKER_GB)} GB"
    if part == CASSANDRA:
        return NODE_GB, f"assumed {number(NODE_GB)} GB"
    if part == SPARK:
        most = max(rates.group("spark/memory_mb").values())
        return most / 1000, f"measured {number(most)} MB of a Spark process"
    if part == "api":
        measured = rates["api/resident_mb"]
        return measured / 1000, f"measured {number(measured)} MB after a list of a million ids"
    (few, low), (many, high) = rates.points("worker/resident_mb")
    soak = rates[f"worker/soak_resident_mb/{many:.0f}"]
    if part not in STATEFUL:
        return soak / 1000, f"assumed as a segmenter: {number(soak)} MB"
    a_user = (high - low) / (many - few)
    more = max(0.0, users - many) * a_user
    formula = f"{number(soak)} MB with {number(many)} users + {a_user * 1e6:.0f} B for each user above them, {users:,.0f} users"
    return (soak + more) / 1000, formula if part == "segmenter" else f"assumed as a segmenter: {formula}"


def _brokers(inputs: Inputs, cores: float, stored: Iterable[Stored], flows: Iterable[Flow]) -> Nodes:
    disk = sum(one.disk_bytes for one in stored if one.store == "Kafka")
    moved = sum(flow.bytes_per_second for flow in flows if "Kafka" in flow.name or flow.name == "between brokers")
    link = inputs.network_gbit * 1e9 / 8 * (1 - inputs.headroom)
    needs = {
        f"{inputs.replication} copies": float(inputs.replication),
        f"{number(cores)} cores / {number(inputs.broker_cores)}": cores / inputs.broker_cores,
        f"{number(disk / 1e12)} TB / {number(inputs.broker_disk_tb)} TB": disk / 1e12 / inputs.broker_disk_tb,
        f"{number(moved / 1e6)} MB/s / {number(link / 1e6)} MB/s of a broker": moved / link,
    }
    return _largest(needs)


def _cassandra_nodes(inputs: Inputs, cores: float, stored: Iterable[Stored]) -> Nodes:
    disk = sum(one.disk_bytes for one in stored if one.store == "Cassandra")
    needs = {
        f"{inputs.replication} copies": float(inputs.replication),
        f"{number(cores)} cores / {number(inputs.cassandra_cores)}": cores / inputs.cassandra_cores,
        f"{number(disk / 1e12)} TB / {number(inputs.cassandra_disk_tb)} TB": disk / 1e12 / inputs.cassandra_disk_tb,
    }
    return _largest(needs)


def _largest(needs: dict[str, float]) -> Nodes:
    words = max(needs, key=lambda name: needs[name])
    return Nodes(math.ceil(needs[words]), f"{words}, the greatest of {'; '.join(needs)}")


def _drivers(resource: str, items: Iterable[tuple[str, float]]) -> Iterator[Driver]:
    used = sorted(items, key=lambda one: -one[1])
    whole = sum(each for _, each in used)
    yield from (Driver(resource, name, each / whole) for name, each in used[:3] if whole)
