"""Edge: operators' commands on states and offsets: `python -m starling_stream.inspect.operations … COMMAND`.

Settings are read from the environment, as for the services. Workers may run meanwhile. Exit codes: 0 success, 1 failure.
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
from pydantic_settings import BaseSettings

from starling_common.kafka.clients import BrokerUnavailable
from starling_common.settings import FROM_ENVIRONMENT, Cassandra, Kafka, SchemaRegistry
from starling_common.wire import RegistryUnavailable, SchemaMissing
from starling_stream.inspect import positions
from starling_stream.inspect.audit import Audit, NoStates, Readable, Source
from starling_stream.inspect.consistency import ConsistencyCheck
from starling_stream.inspect.positions import CannotMove, Moved
from starling_stream.model.backing_store import BackingStoreUnavailable

_POLL_SECONDS: Final = 0.5


class OperationSettings(BaseSettings):
    """The settings of the commands."""

    model_config = FROM_ENVIRONMENT

    kafka: Kafka
    registry: SchemaRegistry
    cassandra: Cassandra


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    options = _parser().parse_args(arguments)
    settings = OperationSettings()
    source = Source(settings.kafka.brokers, settings.registry.url, settings.cassandra, options.disk)
    try:
        if options.run in {resume, accept_loss, rewind}:
            return int(options.run(source, options))
        with closing(Audit(options.stage, source, readable_of(options.stage))) as audit:
            return int(options.run(audit, options))
    except (NoStates, CannotMove) as cause:
        return _fail(str(cause))
    except (BackingStoreUnavailable, BrokerUnavailable, KafkaException, RegistryUnavailable, SchemaMissing) as cause:
        return _fail(f"{type(cause).__name__}: {cause}")


def readable_of(stage: str) -> Readable | None:
    """Return `readable` of `starling_<stage>.state_view`; None without that module. By name: this layer imports no service."""
    module = f"starling_{stage}.state_view"
    try:
        found: Readable = importlib.import_module(module).readable
    except ModuleNotFoundError as missing:
        if missing.name not in {module, f"starling_{stage}"}:
            raise
        return None
    return found


def inspect(audit: Audit, options: argparse.Namespace) -> int:
    """Print one user's state in every store, as JSON."""
    key = options.user if "/" in options.user else f"{options.workspace}/{options.user}"
    _print(json.dumps(audit.user(key.encode()), indent=2, ensure_ascii=False))
    return 0


def verify(audit: Audit, options: argparse.Namespace) -> int:
    """Compare every store with the changelog; exit code 1 if one contains a wrong row or lacks one."""
    numbers = range(audit.layout.partitions) if options.partition is None else [options.partition]
    violations = 0
    for number in numbers:
        for check in audit.checks(number):
            _print(check_line(check))
            for example in check.examples:
                _print(f"  {example}")
            violations += check.violations
    _print(f"{audit.stage}: {violations or 'no'} violation{'' if violations == 1 else 's'}")
    return 1 if violations else 0


def rebuild(audit: Audit, options: argparse.Namespace) -> int:
    """Discard the stored states of a partition, or of all; the partition's worker restarts and rebuilds them from the changelog."""
    if options.partition == "all":
        numbers: Iterable[int] = range(audit.layout.partitions)
        audit.forget_layout()
    else:
        numbers = [int(options.partition)]
    for number in numbers:
        _print(f"partition {number}: incarnation {audit.rebuild(number)} created")
    deadline = time.monotonic() + options.timeout
    waiting = set(numbers)
    while waiting and time.monotonic() < deadline:
        for number in sorted(waiting):
            flushed_offset = audit.flushed_offset(number)
            if flushed_offset is not None:
                _print(f"partition {number}: rebuilt, up to offset {flushed_offset}")
                waiting.discard(number)
        time.sleep(_POLL_SECONDS if waiting else 0)
    return _fail(f"not rebuilt yet: {sorted(waiting)}; is a worker of {audit.stage} running?") if waiting else 0


def resume(source: Source, options: argparse.Namespace) -> int:
    """Commit the offsets at which the stage's states continue; for a consumer group that was deleted or moved."""
    return _print_moves(positions.resume(source.brokers, source.registry_url, options.stage, options.timeout))


def accept_loss(source: Source, options: argparse.Namespace) -> int:
    """Continue without input that expired, or at the start of a topic that was created again."""
    return _print_moves(positions.accept_loss(source.brokers, source.registry_url, options.stage, options.timeout))


def rewind(source: Source, options: argparse.Namespace) -> int:
    """Continue a stage without states at the start of its input; the projector then fills empty tables."""
    return _print_moves(positions.rewind(source.brokers, source.registry_url, options.stage, options.timeout))


def _print_moves(moves: Sequence[Moved]) -> int:
    for one in moves:
        _print(f"{one.topic} {one.partition}: {'none' if one.before is None else one.before} -> {one.offset}")
    _print(f"{len(moves)} offset{'' if len(moves) == 1 else 's'} changed: start the workers")
    return 0


def check_line(check: ConsistencyCheck) -> str:
    """Return the line for one store of one partition."""
    position = "incomplete" if check.position is None else f"complete up to {check.position:,} of {check.log_end:,}"
    return (
        f"partition {check.partition} · {check.store}: {check.users:,} users, {position}, "
        f"{check.behind:,} behind, {check.violations:,} violations"
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
    for name, run in (("resume", resume), ("accept-loss", accept_loss), ("rewind", rewind)):
        moving = commands.add_parser(name, help=run.__doc__)
        moving.add_argument("--timeout", type=float, default=120.0, help="seconds to wait until all workers have left the group")
        moving.set_defaults(run=run)
    return parser


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _fail(line: str) -> int:
    sys.stderr.write(f"{line}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
