"""The deploy step on two brokers: `min.insync.replicas`, and topics with fewer replicas than the setting."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from starling_common.deploy import DeployFailed, create_topics
from starling_common.kafka.topics import Topic
from starling_common.testing import eventually, free_port
from starling_local.instance import Instance
from starling_local.java import find_java
from starling_local.runtime.fetching import runtime_jars
from starling_local.stack.parts.jvm_kafka import CLUSTER_ID
from starling_local.testing import embedded
from tests.processes import end

_PROPERTIES = """\
process.roles=broker
node.id=2
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={logs}
"""


def topic(name: str) -> Topic:
    return Topic(name, "ClockAdvanced", 2, False, "delete", 3_600_000, "FULL_TRANSITIVE")


@contextmanager
def second_broker(home: Path, controller: int) -> Iterator[None]:
    home.mkdir()
    config, port = home / "server.properties", free_port()
    config.write_text(_PROPERTIES.format(controller=controller, port=port, logs=home / "data"))
    java = [find_java().command, "-Xmx256m", "-cp", f"{runtime_jars('kafka')[0].parent}/*"]
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)], check=True, stdout=subprocess.DEVNULL
    )
    with (home / "log").open("wb") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=log, stderr=log)
    try:
        yield
    finally:
        end(process)


def in_sync(admin: AdminClient, name: str) -> str | None:
    """Return the setting; None on a broker that does not know the topic yet."""
    place = ConfigResource(ResourceType.TOPIC, name)
    try:
        value: str | None = admin.describe_configs([place])[place].result()["min.insync.replicas"].value
    except KafkaException:
        return None
    return value


def raised(admin: AdminClient) -> str | None:
    """Deploy, and return the setting of the topic with copies. A broker that lags lists it as missing, or with its old setting."""
    create_topics(admin, [topic("copied")], 2)
    return in_sync(admin, "copied")


def set_in_sync(admin: AdminClient, name: str, value: int) -> None:
    place = ConfigResource(ResourceType.TOPIC, name)
    place.add_incremental_config(ConfigEntry("min.insync.replicas", str(value), incremental_operation=AlterConfigOpType.SET))
    admin.incremental_alter_configs([place])[place].result()


@pytest.mark.long
def test_topics_with_two_copies_require_both(tmp_path: Path) -> None:
    with embedded({"kafka"}, tmp_path / "instance") as at:
        controller = Instance(at.data_dir).options().ports.fixed("kafka-controller")
        with second_broker(tmp_path / "second", controller):
            admin = AdminClient({"bootstrap.servers": at.kafka})
            eventually(lambda: len(admin.list_topics(timeout=10).brokers) == 2, 60)
            create_topics(admin, [topic("copied")], 2)
            create_topics(admin, [topic("single")], 1)
            eventually(lambda: [in_sync(admin, name) for name in ("copied", "single")] == ["2", "1"])

            set_in_sync(admin, "copied", 1)  # as an earlier release left it
            eventually(lambda: in_sync(admin, "copied") == "1")
            eventually(lambda: raised(admin) == "2")

            with pytest.raises(DeployFailed, match="single has 1 replicas, not 2: add replicas"):
                create_topics(admin, [topic("copied"), topic("single")], 2)
