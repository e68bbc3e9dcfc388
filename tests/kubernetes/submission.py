"""`spark-submit` in cluster mode: the objects and the command of docs/how-to/spark/running.md. `make test-k8s` runs it."""

import os
import re
import subprocess
import time
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

import pyarrow.parquet as pq
import pyspark
import yaml
from confluent_kafka import Producer

from starling_common.deploy import DeploySettings, deploy
from starling_common.kafka.clients import produce_and_wait
from starling_common.kafka.topics import MEMBERSHIP, MEMBERSHIP_STATE
from starling_common.settings import Cassandra, Kafka, SchemaRegistry
from starling_common.wire import Registry
from starling_local.java import find_java
from starling_local.runtime import runtime_jars
from starling_local.testing import Addresses, embedded
from tests.kubernetes.control_plane import ROOT, ControlPlane, wait_until
from tests.kubernetes.prepared import prepare_namespace
from tests.kubernetes.process_kubelet import Pod, ProcessKubelet, explained
from tests.unit.delivery.making import change

PAGE: Final = ROOT / "docs/how-to/spark/running.md"
NAMESPACE: Final = "reports"
PATIENCE_SECONDS: Final = 300.0
USERS: Final = 20
"""Users who enter the segment."""
_CASSANDRA: Final = "spark.kubernetes.driverEnv.STARLING_CASSANDRA__"
_BLOCK: Final = re.compile(r"^```(yaml|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> tuple[str, str, str]:
    """Return the rights, the template of a pod, and the command of the page."""
    section = PAGE.read_text().partition("\n## Kubernetes\n")[2].partition("\n## ")[0]
    found = _BLOCK.findall(section)
    assert [kind for kind, _ in found] == ["yaml", "yaml", "console"]
    rights, template, command = (text for _, text in found)
    return rights, template, command


def test_a_report_is_submitted_to_the_cluster_although_an_executor_dies(
    plane: ControlPlane, node: ProcessKubelet, tmp_path: Path
) -> None:
    rights, template, command = blocks()
    prepare_namespace(plane.api, NAMESPACE)
    for manifest in yaml.safe_load_all(rights.replace("namespace: starling", f"namespace: {NAMESPACE}")):
        plane.api.create(manifest | {"metadata": {**manifest["metadata"], "namespace": NAMESPACE}})
    (tmp_path / "spark-pod.yaml").write_text(template)
    out = tmp_path / "report"
    with embedded({"kafka", "registry", "cassandra"}, tmp_path / "parts") as parts, explained(node):
        publish_changes(parts)
        submission = subprocess.Popen(
            ["bash", "-c", adapted(command, plane, parts, out)],
            cwd=tmp_path, env=environment(plane), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            wait_until(
                lambda: submission.poll() is not None or len(running(node, "executor")) == 2, "two executors", PATIENCE_SECONDS
            )
            assert submission.poll() is None, submission.communicate()[0]
            [driver] = running(node, "driver")
            victim, _ = executors = running(node, "executor")
            assert {owner(pod) for pod in executors} == {driver.name}
            assert victim.running is not None
            victim.running.process.send_signal(SIGKILL)
            output, _ = submission.communicate(timeout=PATIENCE_SECONDS)
        finally:
            submission.kill()
        assert submission.returncode == 0, output
        assert driver.exits == [0], output
        assert "unreadable=0" in driver.log.read_text()
        wait_until(lambda: left(plane) == {driver.name}, "the removal of the executors", PATIENCE_SECONDS)
    assert sum(day["entries"] for day in pq.read_table(out / "days").to_pylist()) == USERS


def publish_changes(parts: Addresses) -> None:
    """Create topics and tables, and publish the entries into a segment."""
    deploy(
        DeploySettings(
            kafka=Kafka(brokers=parts.kafka),
            registry=SchemaRegistry(url=parts.registry_url),
            cassandra=Cassandra(contact_points=parts.cassandra_host, port=parts.cassandra_port),
            acknowledge_single_copy=True,
        )
    )
    codec = Registry(parts.registry_url).codec(MEMBERSHIP, "SegmentMembershipChanged")
    producer, now = Producer({"bootstrap.servers": parts.kafka}), time.time_ns() // 1000
    for number in range(USERS):
        value = codec.encode(change(f"u{number}", received_at=now))
        for topic in (MEMBERSHIP, MEMBERSHIP_STATE):
            produce_and_wait(producer, topic, key=f"default/u{number}".encode(), value=value, headers=[])


def adapted(command: str, plane: ControlPlane, parts: Addresses, out: Path) -> str:
    """Return the command of the page with the places and sizes of this test."""
    jars = ",".join(f"/opt/jars/{path.name}" for path in runtime_jars("spark"))
    for before, after in {
        "https://kubernetes.example:6443": plane.url,
        "spark.kubernetes.namespace=starling": f"spark.kubernetes.namespace={NAMESPACE}",
        "spark.executor.memory=3g": "spark.executor.memory=512m",
        "spark.driver.memory=1g": "spark.driver.memory=512m",
        "kafka-0:9092": parts.kafka,
        "http://registry:8080": parts.registry_url,
        f"{_CASSANDRA}CONTACT_POINTS=cassandra": (
            f"{_CASSANDRA}CONTACT_POINTS={parts.cassandra_host} --conf {_CASSANDRA}PORT={parts.cassandra_port}"
        ),
        "s3a://bucket/checkpoints": (out.parent / "checkpoints").as_uri(),
        "STARLING_SPARK_JARS=JARS": f"STARLING_SPARK_JARS={jars}",
        "s3a://reports/2026-03-10": out.as_uri(),
    }.items():
        assert before in command, f"the page lacks {before}"
        command = command.replace(before, after)
    return command


def environment(plane: ControlPlane) -> dict[str, str]:
    """Return the environment of a shell with `spark-submit` and the rights of an administrator."""
    home = find_java().home
    programs = [Path(pyspark.__path__[0]) / "bin", home / "bin", os.environ["PATH"]]
    path = os.pathsep.join(map(str, programs))
    return {
        "PATH": path,
        "SPARK_HOME": pyspark.__path__[0],
        "JAVA_HOME": str(home),
        "KUBECONFIG": str(plane.kubeconfig),
        "HOME": str(plane.kubeconfig.parent),
    }


def running(node: ProcessKubelet, role: str) -> list[Pod]:
    """Return the running pods of that role."""
    return [
        pod
        for pod in list(node.pods.values())
        if pod.running is not None and not pod.stops and pod.manifest["metadata"]["labels"].get("spark-role") == role
    ]


def owner(pod: Pod) -> str:
    """Return the name of the pod with which the cluster removes this one."""
    [found] = pod.manifest["metadata"]["ownerReferences"]
    name: str = found["name"]
    return name


def left(plane: ControlPlane) -> set[str]:
    """Return the names of the pods that the cluster still has."""
    found: list[Any] = plane.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods")
    return {one["metadata"]["name"] for one in found}
