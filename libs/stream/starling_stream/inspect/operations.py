"""Edge: what operators ask of the states. `python -m starling_stream.inspect.operations … inspect|verify|rebuild`.

Settings come from the environment, as those of the services do. Workers may run meanwhile. Exit codes: 0 well, 1 not.
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from pydantic_settings import BaseSettings, SettingsConfigDict

from starling_common.settings import Cassandra, Kafka, SchemaRegistry
from starling_common.wire import RegistryUnavailable, SchemaMissing
from starling_stream.inspect.audit import Audit, NotKept, Readable, Source
from starling_stream.inspect.consistency import Verdict
from starling_stream.model.backing_store import BackingAway

_POLL_SECONDS: Final = 0.5


class OperationSettings(BaseSettings):
    """What the operations need to know."""

    model_config = SettingsConfigDict(env_prefix="STARLING_", env_nested_delimiter="__", frozen=True, extra="ignore")

    kafka: Kafka
    registry: SchemaRegistry
    cassandra: Cassandra


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one operation."""
    asked = _parser().parse_args(arguments)
    settings = OperationSettings()
    source = Source(settings.kafka.brokers, settings.registry.url, settings.cassandra, asked.disk)
    try:
        with closing(Audit(asked.stage, source, _readable(asked.stage))) as audit:
            return int(asked.run(audit, asked))
    except NotKept as cause:
        return _complain(str(cause))
    except (BackingAway, KafkaException, RegistryUnavailable, SchemaMissing) as cause:
        return _complain(f"{type(cause).__name__}: {cause}")


def _readable(stage: str) -> Readable | None:
    """What the stage's service says, if it is one of ours: found by name, for this layer knows no service."""
    module = f"starling_{stage}.state_view"
    try:
        found: Readable = importlib.import_module(module).readable
    except ModuleNotFoundError as missing:
        if missing.name not in {module, f"starling_{stage}"}:
            raise
        return None
    return found


def inspect(audit: Audit, asked: argparse.Namespace) -> int:
    """One user's state in every tier, as JSON."""
    key = asked.user if "/" in asked.user else f"{asked.workspace}/{asked.user}"
    _say(json.dumps(audit.user(key.encode()), indent=2, ensure_ascii=False))
    return 0


def verify(audit: Audit, asked: argparse.Namespace) -> int:
    """Every tier against the changelog; 1 when one holds what it must not hold, or lacks what it must."""
    numbers = range(audit.facts.partitions) if asked.partition is None else [asked.partition]
    faults = 0
    for number in numbers:
        for verdict in audit.verdicts(number):
            _say(verdict_line(verdict))
            for example in verdict.examples:
                _say(f"  {example}")
            faults += verdict.faults
    _say(f"{audit.stage}: {faults or 'no'} fault{'' if faults == 1 else 's'}")
    return 1 if faults else 0


def rebuild(audit: Audit, asked: argparse.Namespace) -> int:
    """Throw away what the tiers hold of a partition, or of all; the worker that has it starts anew from the changelog."""
    if asked.partition == "all":
        numbers: Iterable[int] = range(audit.facts.partitions)
        audit.forget_facts()
    else:
        numbers = [int(asked.partition)]
    for number in numbers:
        _say(f"partition {number}: incarnation {audit.rebuild(number)} begun")
    deadline = time.monotonic() + asked.timeout
    waiting = set(numbers)
    while waiting and time.monotonic() < deadline:
        for number in sorted(waiting):
            floor = audit.floor(number)
            if floor is not None:
                _say(f"partition {number}: rebuilt, up to offset {floor}")
                waiting.discard(number)
        time.sleep(_POLL_SECONDS if waiting else 0)
    return _complain(f"not rebuilt yet: {sorted(waiting)}; is a worker of {audit.stage} running?") if waiting else 0


def verdict_line(verdict: Verdict) -> str:
    """One tier of one partition."""
    position = "not whole yet" if verdict.position is None else f"whole up to {verdict.position:,} of {verdict.log_end:,}"
    return (
        f"partition {verdict.partition} · {verdict.tier}: {verdict.users:,} users, {position}, "
        f"{verdict.behind:,} behind, {verdict.faults:,} faults"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="starling_stream.inspect.operations", description="The states of a stream service.")
    parser.add_argument("--stage", required=True, help="such as segmenter")
    parser.add_argument("--disk", action="append", type=Path, default=[], help="a worker's state directory")
    commands = parser.add_subparsers(required=True)
    inspecting = commands.add_parser("inspect", help=inspect.__doc__)
    inspecting.add_argument("user")
    inspecting.add_argument("--workspace", default="default")
    inspecting.set_defaults(run=inspect)
    verifying = commands.add_parser("verify", help=verify.__doc__)
    verifying.add_argument("--partition", type=int)
    verifying.set_defaults(run=verify)
    rebuilding = commands.add_parser("rebuild", help=rebuild.__doc__)
    rebuilding.add_argument("partition", help="a number, or `all`")
    rebuilding.add_argument("--timeout", type=float, default=120.0, help="seconds")
    rebuilding.set_defaults(run=rebuild)
    return parser


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _complain(line: str) -> int:
    sys.stderr.write(f"{line}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
