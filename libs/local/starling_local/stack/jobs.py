"""Adapter: a Spark job that runs once on a running instance, as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Sequence

from starling_local.errors import LocalError
from starling_local.instance import Instance
from starling_local.java import find_java
from starling_local.runtime import BUNDLES, fetch
from starling_local.runtime.fetching import default_runtime_dir
from starling_local.stack.launch import running_report, tail
from starling_local.stack.services import Host, job_env


class JobFailed(LocalError):
    """The job ended with an error; the text names its log."""


def run_job(instance: Instance, name: str, module: str, words: Sequence[str], done: Sequence[int] = (0,)) -> int:
    """Run it to its end; what it prints is printed, its log goes to `logs/<name>.log`. Returns its exit code, one of `done`.

    Raises: StackError when the instance does not run, JobFailed, JavaError, FetchError.
    """
    running_report(instance)
    environment = {**os.environ, **environment_of_job(instance, name)}
    instance.logs.mkdir(parents=True, exist_ok=True)
    with instance.log_file(name).open("ab") as log:
        code = subprocess.run([sys.executable, "-m", module, *words], env=environment, stderr=log, check=False).returncode
    if code not in done:
        raise JobFailed(f"{name} ended with code {code}: {tail(instance, name)}")
    return code


def environment_of_job(instance: Instance, name: str) -> dict[str, str]:
    """The settings of a Spark job beside this instance. Raises JavaError, FetchError."""
    options = instance.options()
    jars = {
        bundle: tuple(sorted(fetch(BUNDLES[bundle], default_runtime_dir()).glob("*.jar")))
        for bundle in ("spark", *(("iceberg",) if options.lake else ()))
    }
    return job_env(name, instance.data_dir, options, Host(sys.executable, find_java().home, jars["spark"], jars.get("iceberg", ())))
