"""A release as Helm renders it, with every optional component, as processes with the environments of their pods.

`make test-k8s` does the same for fewer components through a real API server.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from starling_common.testing import Service, eventually, running
from starling_local.testing import embedded
from tests.helm.rendering import Manifest, Workload, environment, rendered, workloads
from tests.installed_services import SERVICES
from tests.secured_pipeline import run

OPTIONAL: dict[str, Any] = {
    **{name: {"enabled": True} for name in ("messenger", "email", "feeds", "broadcaster", "audience")},
    "tracker": {"enabled": True, "publicUrl": "https://t.example.com"},
    "spark": {"profiles": {"enabled": False}},
}
SEGMENT = {"key": "buyers", "name": "Buyers", "where": {"event": "Order Completed"}}


def variables_of(pod: Workload, manifests: list[Manifest], directory: Path) -> dict[str, str]:
    """Return the environment of a pod. A path below a mounted volume becomes one below `directory`."""
    mounts = [mount["mountPath"] for mount in pod.container.get("volumeMounts", ())]

    def local(value: str) -> str:
        return f"{directory}{value}" if any(value == path or value.startswith(f"{path}/") for path in mounts) else value

    return {name: local(value) for name, value in environment(pod, manifests, {}).items()}


def job(pod: Workload, variables: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return run([sys.executable, *pod.container["command"][3:]], variables)


@pytest.mark.long
def test_every_component_of_a_rendered_release_runs_and_ends(tmp_path: Path) -> None:
    with embedded({"kafka", "registry", "cassandra"}, tmp_path / "parts", kills_cassandra=False) as found, ExitStack() as last:
        connections: dict[str, Any] = {
            "kafka": {"brokers": found.kafka},
            "schemaRegistry": {"url": found.registry_url},
            "cassandra": {"contactPoints": found.cassandra_host, "port": found.cassandra_port},
        }
        manifests = rendered(OPTIONAL | connections, ci="demo", custom=())
        pods = {pod.component: pod for pod in workloads(manifests)}
        deploy, test = pods.pop("deploy"), pods.pop("test")
        assert sorted(pods) == SERVICES
        done = job(deploy, variables_of(deploy, manifests, tmp_path))
        assert done.returncode == 0, done.stdout + done.stderr

        processes: dict[str, Service] = {}
        for name, pod in pods.items():
            variables = variables_of(pod, manifests, tmp_path / name)
            log = tmp_path / f"{name}.log"
            processes[name] = last.enter_context(running(pod.container["command"][4], variables, log, ready=False))
        for name, process in processes.items():
            _await_ready(name, process)
        _enters(processes)

        variables = variables_of(test, manifests, tmp_path)
        urls = re.sub(r"http://\S+?-(ingest|api):\d+", lambda url: processes[url[1]].url, variables["STARLING_VERIFY_URLS"])
        done = job(test, variables | {"STARLING_VERIFY_URLS": urls})
        assert done.returncode == 0, done.stdout + done.stderr

        for process in processes.values():
            process.process.terminate()
        seconds = {name: pod.spec["terminationGracePeriodSeconds"] for name, pod in pods.items()}
        assert {name: process.process.wait(seconds[name]) for name, process in processes.items()} == dict.fromkeys(processes, 0)


def _await_ready(name: str, process: Service) -> None:
    def is_ready() -> bool:
        assert process.process.poll() is None, f"{name}: {process.log.read_text()[-4_000:]}"
        return process.is_ready()

    eventually(is_ready, 240)


def _enters(processes: Mapping[str, Service]) -> None:
    """Send an event through the edge, and wait until the API returns the membership."""
    headers = {"Authorization": "Bearer demo-admin-token"}
    with httpx.Client(base_url=processes["api"].url, headers=headers, timeout=30, trust_env=False) as api:
        assert api.post("/v1/segments", json=SEGMENT).status_code == 201
        event = {"userId": "ada", "event": "Order Completed"}
        ingest = processes["ingest"].url
        sent = httpx.post(f"{ingest}/v1/track", json=event, auth=("demo-write-key", ""), timeout=30, trust_env=False)
        assert sent.is_success, sent.text
        eventually(lambda: api.get("/v1/users/ada/segments").json()["items"], 240)
