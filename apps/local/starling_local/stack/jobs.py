"""Adapter: runs a Spark job once against a running instance, as a separate process."""

import os
import subprocess
import sys
from collections.abc import Sequence

from starling_local.errors import UserError
from starling_local.instance import Instance
from starling_local.java import find_java
from starling_local.runtime import BUNDLES, fetch
from starling_local.runtime.fetching import default_runtime_dir
from starling_local.stack.launch import running_report, tail
from starling_local.stack.parts.services import Host, job_env


class JobFailed(UserError):
    """The job failed. The text contains the end of its log."""


def run_job(instance: Instance, name: str, module: str, arguments: Sequence[str], success_codes: Sequence[int] = (0,)) -> int:
    """Run a job and return its exit code, one of `success_codes`. Its output is printed, its log goes to `logs/<name>.log`.

    Raises: StackError if the instance does not run, JobFailed, JavaError, FetchError.
    """
    running_report(instance)
    environment = {**os.environ, **environment_of_job(instance, name)}
    instance.logs.mkdir(parents=True, exist_ok=True)
    with instance.log_file(name).open("ab") as log:
        code = subprocess.run([sys.executable, "-m", module, *arguments], env=environment, stderr=log, check=False).returncode
    if code not in success_codes:
        raise JobFailed(f"{name} ended with exit code {code}: {tail(instance, name)}")
    return code


def environment_of_job(instance: Instance, name: str) -> dict[str, str]:
    """Return the environment of a Spark job for this instance. Raises JavaError, FetchError."""
    options = instance.options()
    jars = {
        bundle: tuple(sorted(fetch(BUNDLES[bundle], default_runtime_dir()).glob("*.jar")))
        for bundle in ("spark", *(("iceberg",) if options.lake else ()))
    }
    return job_env(name, instance.data_dir, options, Host(sys.executable, find_java().home, jars["spark"], jars.get("iceberg", ())))
