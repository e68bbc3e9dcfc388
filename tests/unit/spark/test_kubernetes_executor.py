"""The process of an executor on Kubernetes, and the settings of a driver there."""

import pyspark
import pytest

from starling_common.settings import Http, Kafka, SchemaRegistry
from starling_spark import submit
from starling_spark.session.kubernetes import NotAnExecutor, driver_config, executor_command
from starling_spark.session.settings import SparkSettings
from starling_spark.session.spark import session_config

ENVIRONMENT = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.5:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "2048m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_EXECUTOR_POD_NAME": "starling-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_JAVA_OPT_0": "-Da=1",
    "SPARK_JAVA_OPT_10": "-Dc=3",
    "SPARK_JAVA_OPT_2": "-Db=2",
    "JAVA_HOME": "/opt/java",
}


def test_an_executor_runs_with_what_spark_has_written_into_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__path__", ["/opt/pyspark"])
    assert executor_command(ENVIRONMENT) == [
        "/opt/java/bin/java",
        *("-Da=1", "-Db=2", "-Dc=3", "-Xms2048m", "-Xmx2048m"),
        *("-cp", "/opt/spark/conf:/opt/pyspark/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", "spark://CoarseGrainedScheduler@10.0.0.5:7078"),
        *("--executor-id", "3", "--cores", "2", "--app-id", "spark-1", "--hostname", "10.0.0.7"),
        *("--resourceProfileId", "0", "--podName", "starling-exec-3"),
    ]


def test_jars_of_the_operator_precede_those_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__path__", ["/opt/pyspark"])
    command = executor_command(ENVIRONMENT | {"SPARK_CLASSPATH": "/opt/jars/s3/*"})
    assert command[command.index("-cp") + 1] == "/opt/spark/conf:/opt/jars/s3/*:/opt/pyspark/jars/*"


@pytest.mark.parametrize("missing", ["SPARK_DRIVER_URL", "SPARK_EXECUTOR_MEMORY", "SPARK_EXECUTOR_POD_IP"])
def test_outside_of_a_pod_the_message_names_the_missing_variable(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(missing)
    with pytest.raises(SystemExit, match=f"executor: {missing}: not set"):
        submit.main(["executor"])


def test_java_is_found_in_the_path_or_the_message_has_the_cure() -> None:
    without = {name: value for name, value in ENVIRONMENT.items() if name != "JAVA_HOME"}
    with pytest.raises(NotAnExecutor, match="set JAVA_HOME"):
        executor_command(without | {"PATH": "/nowhere"})


def settings(master: str) -> SparkSettings:
    return SparkSettings(
        kafka=Kafka(brokers="127.0.0.1:1"),
        registry=SchemaRegistry(url="http://127.0.0.1:1"),
        http=Http(port=1),
        instance_id="prod-profiles-0",
        spark_jars="/opt/jars/a.jar",
        spark_master=master,
        spark_driver_host="10.0.0.5",
        checkpoint_dir="s3a://checkpoints",
    )


@pytest.mark.parametrize(("master", "host"), [("k8s://https://kubernetes.default.svc", "10.0.0.5"), ("local[2]", "127.0.0.1")])
def test_executors_elsewhere_reach_the_driver_at_the_address_of_its_pod(master: str, host: str) -> None:
    given = session_config(settings(master))
    assert (given["spark.driver.host"], given["spark.driver.bindAddress"]) == (host, host)


def test_the_jvm_of_a_streaming_job_optimises_and_that_of_a_short_one_does_not() -> None:
    options = [session_config(settings("local[2]"), is_streaming=one)["spark.driver.extraJavaOptions"] for one in (True, False)]
    assert ["TieredStopAtLevel" in one for one in options] == [False, True]
    assert all("-XX:+UseSerialGC" in one for one in options)


def test_a_driver_in_a_pod_owns_its_executors() -> None:
    inside = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    given = driver_config("k8s://https://kubernetes.default.svc", "prod-profiles-0", inside)
    assert given["spark.kubernetes.driver.pod.name"] == "prod-profiles-0"
    assert driver_config("k8s://https://kubernetes.example", "laptop", {}) == {}
    assert driver_config("spark://master:7077", "prod-profiles-0", inside) == {}
