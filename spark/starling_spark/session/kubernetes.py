"""Edge: a job in pods that Spark creates: the processes of driver and executors, and the settings of the driver.

Spark starts an executor with the word `executor` after the entry point of its image, and describes it in environment variables.
`spark-submit` in cluster mode starts a driver with the word `driver`, and arguments for another `spark-submit`. The names are those
of Spark 4.1 (`org.apache.spark.deploy.k8s.Constants`).
"""

import argparse
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import pyspark

EXECUTOR: Final = "executor"
"""The argument with which Spark starts the container of an executor."""
DRIVER: Final = "driver"
"""The first argument with which `spark-submit` in cluster mode starts the container of a driver."""
_BIND_ADDRESS: Final = "SPARK_DRIVER_BIND_ADDRESS"
"""The variable of a driver's pod that `spark-submit` has created; the chart's own pods have none."""
_PYTHON: Final = "org.apache.spark.deploy.PythonRunner"

_BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION: Final = re.compile(r"SPARK_JAVA_OPT_(\d+)")
_DESCRIBED: Final[Mapping[str, str]] = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Argument of the executor -> the variable with its value."""


class NotAnExecutor(Exception):
    """The environment is not that of an executor."""


def executor_command(environment: Mapping[str, str]) -> list[str]:
    """Return the command of the executor that the environment describes.

    Raises: NotAnExecutor if a variable is missing, or Java.
    """
    missing = [name for name in ("SPARK_EXECUTOR_MEMORY", *_DESCRIBED.values()) if not environment.get(name)]
    if missing:
        raise NotAnExecutor(f"{', '.join(missing)}: not set; Spark's driver sets them in the pods that it creates")
    home = environment.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    if java is None:
        raise NotAnExecutor("java: no such program in PATH; set JAVA_HOME")
    numbered = {int(found[1]): environment[name] for name in environment if (found := _OPTION.fullmatch(name))}
    jars = str(Path(pyspark.__path__[0], "jars", "*"))
    classes = [environment.get("SPARK_CONF_DIR", ""), environment.get("SPARK_CLASSPATH", ""), jars]
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    return [
        java,
        *(numbered[number] for number in sorted(numbered)),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        os.pathsep.join(part for part in classes if part),
        _BACKEND,
        *(word for option, name in _DESCRIBED.items() for word in (option, environment[name])),
    ]


class NotADriver(Exception):
    """The arguments are not those of a driver's container."""


class SubmittedDriver(NamedTuple):
    """The job of a driver's container, with its words, and more variables for its process."""

    job: list[str]
    variables: dict[str, str]


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise NotADriver(message)


def submitted_driver(words: Sequence[str], environment: Mapping[str, str]) -> SubmittedDriver:
    """Return the driver that the arguments after `driver` describe.

    The process itself is the driver, so SIGTERM stops its job in order; a `spark-submit` in between would be stopped instead. The
    JVM that it starts reads the properties of the submission. Raises: NotADriver.
    """
    arguments = _Arguments(prog=DRIVER, add_help=False, allow_abbrev=False)
    arguments.add_argument("--properties-file", required=True)
    arguments.add_argument("--class", dest="main", required=True)
    arguments.add_argument("program")
    arguments.add_argument("job", nargs=argparse.REMAINDER)
    given = arguments.parse_args(words)
    if given.main != _PYTHON:
        raise NotADriver(f"--class {given.main}: the image runs the jobs of Starling alone; submit its submit.py")
    address = environment.get(_BIND_ADDRESS)
    if not address:
        raise NotADriver(f"{_BIND_ADDRESS}: not set; spark-submit sets it in the pod that it creates")
    try:
        properties = Path(given.properties_file).read_text(encoding="utf-8")
    except OSError as error:
        raise NotADriver(f"--properties-file: {error}") from None
    submission = ["--properties-file", given.properties_file, "--deploy-mode", "client"]
    submission += ["--conf", f"spark.driver.bindAddress={address}", "--conf", f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}"]
    variables = {"PYSPARK_SUBMIT_ARGS": shlex.join([*submission, "pyspark-shell"])}
    for name, key in (
        ("STARLING_SPARK_MASTER", "spark.master"),
        ("STARLING_SPARK_DRIVER_MEMORY", "spark.driver.memory"),
        ("STARLING_INSTANCE_ID", "spark.kubernetes.driver.pod.name"),
    ):
        if not environment.get(name) and (value := _property(properties, key)):
            variables[name] = value
    return SubmittedDriver(given.job, variables)


def _property(text: str, name: str) -> str:
    """Return the value of a key in Java properties as Spark writes them, a line each; "" without one."""
    found = re.search(rf"^{re.escape(name)}=(.*)$", text, re.MULTILINE)
    return re.sub(r"\\(.)", r"\1", found[1]) if found else ""


def driver_config(master: str, instance_id: str, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the Spark settings of a driver in a pod, whose executors are removed with it; none outside of Kubernetes.

    `instance_id`: the name of the driver's pod.
    """
    if not master.startswith("k8s:") or "KUBERNETES_SERVICE_HOST" not in environment:
        return {}
    # `spark-submit` in cluster mode knows the name of the pod that it has created.
    name = {} if environment.get(_BIND_ADDRESS) else {"spark.kubernetes.driver.pod.name": instance_id}
    return name | {
        # Without these Spark asks for volume claims, for which the driver needs no rights otherwise.
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    }
