"""Pure core: the Kafka broker as a part (KRaft; one node is broker and controller)."""

from pathlib import Path

from starling_local.ports import HOST, Ports
from starling_local.stack.parts.part import KafkaProbe, Part, Preparation

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{broker},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={logs}
# The deploy step creates all topics; a mistyped name must fail.
auto.create.topics.enable=false
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=8
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=8
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# The groups of a development instance are complete at once, so a delay only slows each start.
group.initial.rebalance.delay.ms=0
# Retention deletes whole segments. Small ones limit the disk use of an import of history.
log.segment.bytes=134217728
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=16777216
"""

CLUSTER_ID = "c3RhcmxpbmctbG9jYWwtMQ"
"""22 characters of base64. All instances share the id, because each has its own data directory."""


def kafka_part(data_dir: Path, jars: Path, ports: Ports, java: str) -> Part:
    """Return the broker; its log directory is formatted once, before the first start."""
    home = data_dir / "kafka"
    config = home / "server.properties"
    classpath = f"{jars}/*"
    quiet = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")
    storage_tool = (java, "-Xmx128m", *quiet, "-cp", classpath, "kafka.tools.StorageTool")
    return Part(
        name="kafka",
        command=(
            *(java, "-Xms256m", "-Xmx512m", "-XX:+UseParallelGC", "-XX:+ExitOnOutOfMemoryError"),
            *(*quiet, "-cp", classpath, "kafka.Kafka", str(config)),
        ),
        probe=KafkaProbe(ports.address("kafka")),
        alive=KafkaProbe(ports.address("kafka")),
        ports={"kafka": ports.fixed("kafka"), "kafka-controller": ports.fixed("kafka-controller")},
        files={config: render_properties(home / "data", ports)},
        directories=(home / "data",),
        prepare=Preparation((*storage_tool, "format", "-t", CLUSTER_ID, "-c", str(config)), home / "data" / "meta.properties"),
        grace_seconds=30.0,
    )


def render_properties(logs: Path, ports: Ports) -> str:
    """Return `server.properties` of the broker."""
    return _PROPERTIES.format(host=HOST, broker=ports.fixed("kafka"), controller=ports.fixed("kafka-controller"), logs=logs)
