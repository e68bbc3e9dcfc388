"""The thread that starts a job while there is work for it, and the job in a cluster."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

from kubernetes import client
from prometheus_client import CollectorRegistry

from starling_api.jobs.kubernetes import JobSpec, KubernetesJob
from starling_api.jobs.runner import FAILURES, Runner
from starling_common.telemetry.metrics import Metrics


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


SHAPE = JobSpec(
    "imports",
    "starling-imports",
    "shop",
    "starling:1",
    {"STARLING_CLOCK": "wall"},
    ("starling",),
    ("starling-secrets",),
    volume_claim="shop-files",
)


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


def test_the_job_in_a_cluster() -> None:
    server = HTTPServer(("127.0.0.1", 0), Cluster)
    Thread(target=server.serve_forever, daemon=True).start()
    settings = client.Configuration(host=f"http://127.0.0.1:{server.server_port}")
    settings.proxy = None
    try:
        job = KubernetesJob(client.BatchV1Api(client.ApiClient(settings)), SHAPE)
        assert not job.is_running()
        job.start()
        assert Cluster.job is not None
        (container,) = Cluster.job["spec"]["template"]["spec"]["containers"]
        assert Cluster.job["metadata"]["name"] == "starling-imports"
        assert container["command"] == ["python", "-m", "starling_spark.jobs.imports"]
        assert container["envFrom"] == [{"configMapRef": {"name": "starling"}}, {"secretRef": {"name": "starling-secrets"}}]
        assert container["volumeMounts"] == [{"mountPath": "/imports", "name": "files", "readOnly": True}]
        (volume,) = Cluster.job["spec"]["template"]["spec"]["volumes"]
        assert volume["persistentVolumeClaim"] == {"claimName": "shop-files", "readOnly": True}
        assert (job.is_running(), job.has_failed()) == (True, False)
        Cluster.job["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
        assert (job.is_running(), job.has_failed()) == (False, True)
        job.start()
        jobs = "/apis/batch/v1/namespaces/shop/jobs"
        assert Cluster.seen == [f"POST {jobs}", f"DELETE {jobs}/starling-imports", f"POST {jobs}"]
    finally:
        server.shutdown()
        server.server_close()
