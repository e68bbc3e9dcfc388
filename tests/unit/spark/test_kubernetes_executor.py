"""The processes of executors and drivers on Kubernetes, and the settings of a driver there."""

import shlex
from pathlib import Path

import pyspark
import pytest

from starling_common.settings import Http, Kafka, SchemaRegistry
from starling_spark import submit
from starling_spark.session.kubernetes import NotADriver, NotAnExecutor, driver_config, executor_command, submitted_driver
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


def test_jars_of_an_object_store_are_on_both_class_paths() -> None:
    given = session_config(
        settings("k8s://https://kubernetes.default.svc").model_copy(update={"spark_class_path": "/opt/jars/s3/*"})
    )
    assert {given[f"spark.{process}.extraClassPath"] for process in ("driver", "executor")} == {"/opt/jars/s3/*"}
    assert not any("ClassPath" in name for name in session_config(settings("local[2]")))


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


PROPERTIES = """#Java properties built from Kubernetes config map
#Mon Nov 30 15:00:00 UTC 2026
spark.master=k8s\\://https\\://kubernetes.default.svc\\:443
spark.driver.memory=2g
spark.kubernetes.driver.pod.name=audience-report-1-driver
spark.kubernetes.driver.pod.name.of.another=no
"""
PROGRAM = "local:///opt/starling/submit.py"


def submitted(tmp_path: Path, *words: str, main: str = "org.apache.spark.deploy.PythonRunner") -> list[str]:
    """Return the arguments of a driver's container after `driver`."""
    path = tmp_path / "spark.properties"
    path.write_text(PROPERTIES)
    return ["--properties-file", str(path), "--class", main, PROGRAM, *words]


def test_a_submitted_driver_takes_master_memory_and_name_from_the_submission(tmp_path: Path) -> None:
    inside = {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.5", "STARLING_SPARK_MASTER": ""}
    job, variables = submitted_driver(submitted(tmp_path, "audience_report", "--until", "now", "--class", "x"), inside)
    assert job == ["audience_report", "--until", "now", "--class", "x"]
    assert shlex.split(variables.pop("PYSPARK_SUBMIT_ARGS")) == [
        *("--properties-file", str(tmp_path / "spark.properties"), "--deploy-mode", "client"),
        *("--conf", "spark.driver.bindAddress=10.0.0.5", "--conf", "spark.executorEnv.SPARK_DRIVER_POD_IP=10.0.0.5"),
        "pyspark-shell",
    ]
    assert variables == {
        "STARLING_SPARK_MASTER": "k8s://https://kubernetes.default.svc:443",
        "STARLING_SPARK_DRIVER_MEMORY": "2g",
        "STARLING_INSTANCE_ID": "audience-report-1-driver",
    }


def test_the_settings_of_the_operator_precede_those_of_the_submission(tmp_path: Path) -> None:
    own = {"STARLING_SPARK_MASTER": "local[4]", "STARLING_SPARK_DRIVER_MEMORY": "4g", "STARLING_INSTANCE_ID": "report"}
    _, variables = submitted_driver(submitted(tmp_path, "lake"), own | {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.5"})
    assert set(variables) == {"PYSPARK_SUBMIT_ARGS"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--class", "x", PROGRAM], "driver: the following arguments are required: --properties-file"),
        (["--properties-file", "/nowhere", "--class", "org.apache.spark.deploy.PythonRunner", PROGRAM], "No such file"),
        (["--properties-file", "/nowhere", "--class", "org.example.Main", PROGRAM], "submit its submit.py"),
    ],
)
def test_other_arguments_of_a_driver_are_refused(words: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_DRIVER_BIND_ADDRESS", "10.0.0.5")
    with pytest.raises(SystemExit, match=message):
        submit.main(["driver", *words])


def test_a_driver_needs_the_address_of_its_pod(tmp_path: Path) -> None:
    with pytest.raises(NotADriver, match="SPARK_DRIVER_BIND_ADDRESS: not set"):
        submitted_driver(submitted(tmp_path, "lake"), {})


def test_a_submission_names_the_pod_of_its_driver_itself() -> None:
    inside = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.5"}
    assert "spark.kubernetes.driver.pod.name" not in driver_config("k8s://https://kubernetes.default.svc", "report", inside)


def test_the_usage_names_every_job() -> None:
    with pytest.raises(SystemExit, match=r"audience_report, backfill, .*, trait_verify, views"):
        submit.main([])
