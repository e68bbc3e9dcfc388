"""Edge: a job's executors as pods: their process, and the settings of the driver that starts them.

Spark starts an executor with the word `executor` after the entry point of its image, and describes it in environment variables.
Their names are those of Spark 4.1 (`org.apache.spark.deploy.k8s.Constants`).
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark

EXECUTOR: Final = "executor"
"""The argument with which Spark starts the container of an executor."""

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


def driver_config(master: str, instance_id: str, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the Spark settings of a driver in a pod, whose executors are removed with it; none outside of Kubernetes.

    `instance_id`: the name of the driver's pod.
    """
    if not master.startswith("k8s:") or "KUBERNETES_SERVICE_HOST" not in environment:
        return {}
    return {
        "spark.kubernetes.driver.pod.name": instance_id,
        # Without these Spark asks for volume claims, for which the driver needs no rights otherwise.
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    }
