"""Pure core: the Cassandra node as a part (one node on the loopback address)."""

from pathlib import Path

from starling_local.ports import HOST, Ports
from starling_local.stack.parts.part import CqlProbe, Part

_YAML = """\
cluster_name: starling
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "{host}:{storage}"
listen_address: {host}
rpc_address: {host}
storage_port: {storage}
native_transport_port: {native}
endpoint_snitch: SimpleSnitch
data_file_directories:
  - "{home}/data"
commitlog_directory: "{home}/commitlog"
saved_caches_directory: "{home}/saved_caches"
hints_directory: "{home}/hints"
cdc_raw_directory: "{home}/cdc_raw"
commitlog_sync: periodic
commitlog_sync_period: 10000ms
commitlog_segment_size: 16MiB
commitlog_total_space: 512MiB
memtable_allocation_type: offheap_objects
# A development instance needs no snapshot of a dropped table.
auto_snapshot: false
"""

_LOGBACK = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""

_EXPORTS = (
    *("java.base/jdk.internal.misc", "java.base/jdk.internal.ref", "java.base/sun.nio.ch", "java.base/java.lang.ref"),
    *("java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server"),
    *("java.sql/java.sql", "jdk.unsupported/sun.misc"),
)
_OPENED_IN_JAVA_BASE = (
    *("java.lang.module", "jdk.internal.loader", "jdk.internal.ref", "jdk.internal.reflect", "jdk.internal.math"),
    *("jdk.internal.module", "jdk.internal.util.jar", "jdk.internal.misc", "sun.nio.ch", "java.io", "java.util"),
    *("java.nio", "java.lang", "java.util.concurrent", "java.util.concurrent.atomic"),
)
_OPENS = (*(f"java.base/{package}" for package in _OPENED_IN_JAVA_BASE), "jdk.management/com.sun.management.internal")

MODULE_OPTIONS = (
    *(f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTS),
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENS),
)
"""Options of Java that the node and its tools need."""


def cassandra_part(data_dir: Path, jars: Path, ports: Ports, java: str) -> Part:
    """Return the node. JMX is off: it needs one more port, and the stack does not use it. `jcmd` can start its agent."""
    home = data_dir / "cassandra"
    config = home / "conf" / "cassandra.yaml"
    options = {
        "cassandra.storagedir": home,
        "cassandra.config": f"file:{config}",
        "cassandra-foreground": "yes",
        # The ring has one node, so there is no gossip to wait for.
        "cassandra.skip_wait_for_gossip_to_settle": "0",
        "cassandra.ring_delay_ms": "100",
        # The default of 2 ms causes half of the processor time of an idle node.
        "cassandra.approximate_time_precision_ms": "20",
        "jdk.attach.allowAttachSelf": "true",
        # The address that an agent of JMX gives to its clients, which is that of the host's name otherwise.
        "java.rmi.server.hostname": HOST,
        "logback.configurationFile": f"file:{home / 'conf' / 'logback.xml'}",
    }
    return Part(
        name="cassandra",
        command=(
            *(java, "-Xms512m", "-Xmx1g", "-XX:+UseParallelGC", "-XX:+ExitOnOutOfMemoryError", "-Xss512k"),
            *MODULE_OPTIONS,
            *(f"-D{name}={value}" for name, value in options.items()),
            # Without the directory of the configuration, which the options name: an archive of classes needs a path of jars alone.
            *("-cp", f"{jars}/*", "org.apache.cassandra.service.CassandraDaemon"),
        ),
        probe=CqlProbe(HOST, ports.fixed("cassandra")),
        alive=CqlProbe(HOST, ports.fixed("cassandra")),
        ports={name: ports.fixed(name) for name in ("cassandra", "cassandra-storage")},
        files={config: render_yaml(home, ports), home / "conf" / "logback.xml": _LOGBACK},
        directories=(home / "data",),
        grace_seconds=30.0,
        # A restart takes up to a minute on a busy machine: a node that is stopped for a shorter time is back earlier.
        most_silent_seconds=90.0,
    )


def render_yaml(home: Path, ports: Ports) -> str:
    """Return `cassandra.yaml` of the node."""
    return _YAML.format(host=HOST, storage=ports.fixed("cassandra-storage"), native=ports.fixed("cassandra"), home=home)
