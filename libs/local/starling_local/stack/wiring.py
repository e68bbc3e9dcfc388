"""An instance's options → the parts to run. The only place that knows both."""

import sys
from collections.abc import Iterable
from pathlib import Path

from starling_local.instance import Options
from starling_local.java import Java
from starling_local.runtime import BUNDLES, fetch
from starling_local.runtime.fetch import Say, default_runtime_dir
from starling_local.stack.jvm_cassandra import cassandra_part
from starling_local.stack.jvm_kafka import kafka_part
from starling_local.stack.jvm_registry import registry_part
from starling_local.stack.parts import Part, start_order, with_needs
from starling_local.stack.services import Host, service_parts


def needed_bundles(options: Options) -> list[str]:
    """The runtime bundles this instance runs on."""
    stores = ["kafka", "cassandra", "registry"]
    wanted = [name for name in stores if not options.only or name in wanted_names(options)]
    return [*wanted, "spark"] if "spark" in wanted_names(options) else wanted


def wanted_names(options: Options) -> set[str]:
    """Names of the parts that will run; worked out without fetching anything."""
    nowhere = Path("/")
    everything = _all_parts(nowhere, options, dict.fromkeys(BUNDLES, nowhere), Java("java", nowhere), ())
    return {part.name for part in _chosen(everything, options)}


def parts_of(data_dir: Path, options: Options, java: Java, say: Say = lambda _line: None) -> list[Part]:
    """Every part of the instance in the order of starting; what is not on this machine yet is fetched.

    Raises: PlanError for an unknown name in `only`, FetchError when Maven cannot bring a bundle.
    """
    homes = {name: fetch(BUNDLES[name], default_runtime_dir(), say) for name in needed_bundles(options)}
    jars = sorted(homes["spark"].glob("*.jar")) if "spark" in homes else []
    return start_order(_chosen(_all_parts(data_dir, options, homes, java, jars), options))


def _all_parts(data_dir: Path, options: Options, homes: dict[str, Path], java: Java, spark_jars: Iterable[Path]) -> list[Part]:
    ports, nowhere = options.ports, Path("/")
    registry = homes.get("registry", nowhere)
    runner = next(registry.glob("apicurio-registry-app-*-runner.jar"), registry)
    return [
        kafka_part(data_dir, homes.get("kafka", nowhere), ports, java.command),
        cassandra_part(data_dir, homes.get("cassandra", nowhere), ports, java.command),
        registry_part(data_dir, runner, ports, java.command),
        *service_parts(data_dir, options, Host(sys.executable, java.home, tuple(spark_jars))),
    ]


def _chosen(parts: list[Part], options: Options) -> list[Part]:
    return with_needs(parts, options.only) if options.only else parts
