"""Edge: `plan-capacity`: the size of an installation, from the measured rates."""

import json
from dataclasses import replace
from typing import Annotated

import typer

from starling_cli.capacity.document import formulas, plan_document, tables
from starling_cli.capacity.inputs import Inputs, Mix, parse_retention
from starling_cli.capacity.plan import Plan, plan
from starling_cli.capacity.rates import load_rates
from starling_cli.commands.common import print_line, print_table
from starling_common.kafka.topics import load_catalogue

Rps = Annotated[float, typer.Option("--rps", help="Events/s at the peak.")]
Users = Annotated[float, typer.Option("--users", help="Users with a state, such as 200e6.")]
Segments = Annotated[int, typer.Option("--segments", help="Active segments.")]
AverageRps = Annotated[float | None, typer.Option("--average-rps", help="Events/s over days, for the disk. Default: as --rps.")]
Changes = Annotated[float | None, typer.Option("--changes", help="Membership changes an event. Default: as measured.")]
Memberships = Annotated[
    float | None, typer.Option("--memberships", help="Segments that a user was ever in. Default: a tenth of --segments.")
]
Traits = Annotated[int, typer.Option("--traits", help="Computed traits; 0: without the Spark job.")]
SegmentMix = Annotated[
    Mix,
    typer.Option(
        "--mix", help="Segments over a few event names, as measured for the platform (crowded), or over many (every-kind)."
    ),
]
ItemsPerRequest = Annotated[
    float | None, typer.Option("--items-per-request", help="Items of an HTTP request. Default: as measured.")
]
HistoryDays = Annotated[
    int, typer.Option("--history-days", help="Days for which events of users are readable (STARLING_HISTORY_DAYS); 0: none.")
]
Replication = Annotated[int, typer.Option("--replication", help="Copies of each record in Kafka and row in Cassandra.")]
RetentionDays = Annotated[
    list[str] | None,
    typer.Option("--retention-days", help="TOPIC=DAYS, or events=DAYS. Default: those of the catalogue. Repeatable."),
]
Headroom = Annotated[float, typer.Option("--headroom", help="Share of cores, disk and network that stays free at the peak.")]
ReplicaCores = Annotated[float, typer.Option("--replica-cores", help="Cores of one worker process, which uses about 1.")]
BrokerCores = Annotated[float, typer.Option("--broker-cores", help="Cores of a Kafka broker.")]
BrokerDiskTb = Annotated[float, typer.Option("--broker-disk-tb", help="Disk of a Kafka broker in TB.")]
CassandraCores = Annotated[float, typer.Option("--cassandra-cores", help="Cores of a Cassandra node.")]
CassandraDiskTb = Annotated[float, typer.Option("--cassandra-disk-tb", help="Disk of a Cassandra node in TB.")]
NetworkGbit = Annotated[float, typer.Option("--network-gbit", help="Network of a Kafka broker in Gbit/s.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")]
Formula = Annotated[bool, typer.Option("--formula", help="Print the formula of each figure, with its source.")]


def plan_capacity(  # noqa: PLR0913, PLR0917 - the command line: each option is an argument
    rps: Rps,
    users: Users,
    segments: Segments,
    average_rps: AverageRps = None,
    changes: Changes = None,
    memberships: Memberships = None,
    traits: Traits = 0,
    mix: SegmentMix = "crowded",
    items_per_request: ItemsPerRequest = None,
    history_days: HistoryDays = 30,
    replication: Replication = 3,
    retention_days: RetentionDays = None,
    headroom: Headroom = 0.3,
    replica_cores: ReplicaCores = 1.0,
    broker_cores: BrokerCores = 8,
    broker_disk_tb: BrokerDiskTb = 10,
    cassandra_cores: CassandraCores = 8,
    cassandra_disk_tb: CassandraDiskTb = 4,
    network_gbit: NetworkGbit = 10,
    as_json: AsJson = False,
    formula: Formula = False,
) -> None:
    """Compute cores, replicas, memory, disk, network and partitions from the rates in benchmarks/results. Needs no instance."""
    catalogue = load_catalogue()
    events = Inputs(rps=rps, users=users, segments=segments, average_rps=average_rps, changes=changes, memberships=memberships)
    load = replace(events, traits=traits, mix=mix, items_per_request=items_per_request)
    stored = replace(load, history_days=history_days, replication=replication, headroom=headroom)
    workers = replace(stored, replica_cores=replica_cores, retention_days=parse_retention(retention_days or [], catalogue))
    kafka = replace(workers, broker_cores=broker_cores, broker_disk_tb=broker_disk_tb, network_gbit=network_gbit)
    inputs = replace(kafka, cassandra_cores=cassandra_cores, cassandra_disk_tb=cassandra_disk_tb)
    made = plan(inputs, load_rates(), catalogue)
    if as_json:
        print_line(json.dumps(plan_document(made), indent=2, ensure_ascii=False))
    else:
        _print_plan(made, with_formulas=formula)


def _print_plan(made: Plan, *, with_formulas: bool) -> None:
    for index, (heading, table) in enumerate(tables(made)):
        print_line(f"\n{heading}\n" if index else f"{heading}\n")
        print_table(table)
    if with_formulas:
        print_line("\nFormulas\n")
        for figure, text in formulas(made):
            print_line(f"{figure} = {text}")
