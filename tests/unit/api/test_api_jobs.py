"""The thread that starts a job while there is work for it, and the job in a cluster."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from kubernetes import client
from prometheus_client import CollectorRegistry

from starling_api.jobs.kubernetes import KubernetesJob
from starling_api.jobs.runner import FAILURES, Runner
from starling_common.telemetry.metrics import Metrics
from starling_common.testing import free_port


class Submitted:
    def __init__(self) -> None:
        self.starts, self.running, self.failed = 0, False, False

    def is_running(self) -> bool:
        return self.running

    def has_failed(self) -> bool:
        return self.failed

    def start(self) -> None:
        self.starts += 1

    def stop(self) -> None: ...


def test_one_job_at_a_time_and_a_delay_after_failures() -> None:
    submitter, metrics, works = Submitted(), Metrics(CollectorRegistry()), [True]
    runner = Runner("imports", submitter, lambda: works[0], metrics.gauge(FAILURES))

    def failures() -> float | None:
        return metrics.registry.get_sample_value(FAILURES, {"spark_job": "imports"})

    runner.check(0.0)
    assert submitter.starts == 1
    submitter.running = True
    runner.check(1.0)
    assert submitter.starts == 1
    submitter.running, submitter.failed = False, True
    runner.check(2.0)
    runner.check(3.0)
    assert submitter.starts == 1
    runner.check(8.0)
    assert submitter.starts == 2
    runner.check(9.0)
    runner.check(15.0)
    assert submitter.starts == 2  # twice in a row: longer
    runner.check(40.0)
    assert (submitter.starts, failures()) == (3, 2)
    works[0] = False
    runner.check(41.0)
    assert (submitter.starts, failures()) == (3, 0)
    runner.stop()


class Cluster(BaseHTTPRequestHandler):
    """The part of the Kubernetes API that is used, with one Job at most."""

    job: dict[str, Any] | None = None
    seen: list[str] = []

    def answer(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.answer(*((200, Cluster.job) if Cluster.job else (404, {})))

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Cluster.seen.append(f"POST {self.path}")
        if Cluster.job:
            self.answer(409, {})
        else:
            Cluster.job = {**sent, "status": {}}
            self.answer(201, Cluster.job)

    def do_DELETE(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        Cluster.seen.append(f"DELETE {self.path.partition('?')[0]}")
        Cluster.job = None
        self.answer(200, {})

    def log_message(self, *_: object) -> None: ...


@contextmanager
def cluster() -> Iterator[client.BatchV1Api]:
    """Yield a client of a cluster without a Job."""
    Cluster.job, Cluster.seen = None, []
    server = HTTPServer(("127.0.0.1", 0), Cluster)
    Thread(target=server.serve_forever, daemon=True).start()
    settings = client.Configuration(host=f"http://127.0.0.1:{server.server_port}")
    settings.proxy = None
    try:
        yield client.BatchV1Api(client.ApiClient(settings))
    finally:
        server.shutdown()
        server.server_close()


def test_the_job_in_a_cluster(tmp_path: Path) -> None:
    template = tmp_path / "imports.json"
    pod = {"spec": {"containers": [{"name": "imports"}], "restartPolicy": "Never"}}
    own: dict[str, Any] = {
        "metadata": {"name": "shop-imports", "namespace": "shop"}, "spec": {"backoffLimit": 3, "template": pod},
    }  # fmt: skip
    template.write_text(json.dumps(own))
    with cluster() as api:
        job = KubernetesJob(template, lambda: api)
        assert not job.is_running()
        job.start()
        assert Cluster.job == {**own, "status": {}}
        assert (job.is_running(), job.has_failed()) == (True, False)
        Cluster.job["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
        assert (job.is_running(), job.has_failed()) == (False, True)
        # An upgrade of the release changes the file while the API runs.
        template.write_text(json.dumps(own | {"spec": {"backoffLimit": 5, "template": pod}}))
        job.start()
        assert Cluster.job["spec"]["backoffLimit"] == 5
        jobs = "/apis/batch/v1/namespaces/shop/jobs"
        assert Cluster.seen == [f"POST {jobs}", f"DELETE {jobs}/shop-imports", f"POST {jobs}"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"metadata": {"name": "shop-imports"}}', None])
def test_a_file_without_a_job_is_an_error_that_names_it(text: str | None, tmp_path: Path) -> None:
    template = tmp_path / "imports.json"
    if text is not None:
        template.write_text(text)
    with cluster() as api, pytest.raises(OSError, match=re.escape(str(template))):
        KubernetesJob(template, lambda: api).start()
    assert Cluster.seen == []


@pytest.mark.parametrize("file", ["none", None])
def test_without_access_to_a_cluster_the_error_names_the_cure(
    file: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imports.json").write_text('{"metadata": {"name": "imports", "namespace": "shop"}}')
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    if file is not None:
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / file))
    with pytest.raises(OSError, match="needs the token of a service account, or KUBECONFIG"):
        KubernetesJob(tmp_path / "imports.json").is_running()


def test_a_cluster_that_does_not_respond_is_an_error_that_the_runner_survives(tmp_path: Path) -> None:
    (tmp_path / "imports.json").write_text('{"metadata": {"name": "imports", "namespace": "shop"}}')
    settings = client.Configuration(host=f"http://127.0.0.1:{free_port()}")
    settings.proxy, settings.retries = None, False
    job = KubernetesJob(tmp_path / "imports.json", lambda: client.BatchV1Api(client.ApiClient(settings)))
    with pytest.raises(OSError, match="Kubernetes does not respond"):
        job.start()
