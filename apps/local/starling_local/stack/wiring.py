"""Adapter: an instance's options → the parts to run."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from starling_common.security.sealing import new_key
from starling_local.instance import Options, write_atomically
from starling_local.java import Java
from starling_local.runtime import BUNDLES, fetch
from starling_local.runtime.archives import PARTS, options_for
from starling_local.runtime.fetching import default_runtime_dir
from starling_local.stack.parts.jvm_cassandra import cassandra_part
from starling_local.stack.parts.jvm_kafka import kafka_part
from starling_local.stack.parts.jvm_registry import registry_part
from starling_local.stack.parts.part import Part, PlanError, start_order, with_dependencies
from starling_local.stack.parts.services import Host, keys_file, service_parts

_PARTS_OF_BUNDLE = {"spark": {"spark", "lake", "views"}, "iceberg": {"lake"}, "jdbc": {"api"}}
"""Bundle → the parts that need it, where the names differ."""

_MOST_NICE = 19


def planned_parts(data_dir: Path, options: Options) -> list[Part]:
    """Return the parts in the order of starting. Fetches nothing, so only names, ports and probes are valid, not commands.

    Raises: PlanError for an unknown name in `only`.
    """
    nowhere = Path("/")
    return _ordered(_all_parts(data_dir, options, dict.fromkeys(BUNDLES, nowhere), Java("java", nowhere)), options)


def needed_bundles(options: Options) -> list[str]:
    """Return the names of the bundles that the instance needs. Raises PlanError."""
    names = {part.name for part in planned_parts(Path("/"), options)}
    return [name for name in BUNDLES if names & _PARTS_OF_BUNDLE.get(name, {name})]


def runnable_parts(data_dir: Path, options: Options, java: Java, *, archives: bool = True) -> list[Part]:
    """Return the parts in the order of starting, ready to run. Fetch missing bundles, and make a key for secrets if there is none.

    `archives`: the parts of the JVM use those archives of their classes that exist.
    Raises: PlanError for an unknown name in `only` or a wrong niceness, FetchError if Maven cannot fetch a bundle.
    """
    if not keys_file(data_dir).exists():
        write_atomically(keys_file(data_dir), f"{new_key('local')}\n".encode())  # readable by its owner alone
    homes = {name: fetch(BUNDLES[name], default_runtime_dir()) for name in needed_bundles(options)}
    parts = _ordered(_all_parts(data_dir, options, homes, java), options)
    more = {name: options_for(name, java, default_runtime_dir()) for name in PARTS if archives}
    return [part.with_java_options(more[part.name]) if more.get(part.name) else part for part in parts]


def _all_parts(data_dir: Path, options: Options, homes: Mapping[str, Path], java: Java) -> list[Part]:
    ports, nowhere = options.ports, Path("/")
    registry = homes.get("registry", nowhere)
    runner = next(registry.glob("apicurio-registry-app-*-runner.jar"), registry)
    spark, iceberg, jdbc = (tuple(sorted(homes.get(name, nowhere).glob("*.jar"))) for name in ("spark", "iceberg", "jdbc"))
    return [
        kafka_part(data_dir, homes.get("kafka", nowhere), ports, java.command),
        cassandra_part(data_dir, homes.get("cassandra", nowhere), ports, java.command),
        registry_part(data_dir, runner, ports, java.command),
        *service_parts(data_dir, options, Host(sys.executable, java.home, spark, iceberg, jdbc, _job_nice())),
    ]


def _job_nice() -> int:
    """Return `STARLING_JOB_NICE`, by default 10. Raises PlanError."""
    given = os.environ.get("STARLING_JOB_NICE", "10")
    if not (given.isdecimal() and int(given) <= _MOST_NICE):
        raise PlanError(f"STARLING_JOB_NICE is {given!r}: it is a number from 0 to {_MOST_NICE}")
    return int(given)


def _ordered(parts: list[Part], options: Options) -> list[Part]:
    return start_order(with_dependencies(parts, options.only) if options.only else parts)
