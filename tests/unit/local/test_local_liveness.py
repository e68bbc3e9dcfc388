"""Liveness checks of real sockets."""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from prometheus_client import CollectorRegistry

from starling_common.telemetry.health import HealthServer
from starling_local.stack.parts.part import CqlProbe, ExitProbe, HttpProbe, KafkaProbe
from starling_local.stack.supervision.liveness import CheckResult, LivenessCheck

PATIENCE_SECONDS = 20.0


def polled(check: LivenessCheck) -> CheckResult:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := check.poll()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def sent(check: LivenessCheck, listener: socket.socket) -> socket.socket:
    """Accept the check's connection; return it when the request is there."""
    connection, _ = listener.accept()
    connection.setblocking(False)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        assert check.poll() is None
        with suppress(BlockingIOError):
            assert connection.recv(1024)
            return connection
        time.sleep(0.01)
    raise AssertionError("no request was sent")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.settimeout(PATIENCE_SECONDS)
        yield found


def port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("problem", "expected"),
    [(None, CheckResult(answered=True)), ("none for 300 s", CheckResult(answered=True, failure="503 batches: none for 300 s"))],
)
def test_the_health_of_a_service(problem: str | None, expected: CheckResult) -> None:
    server = HealthServer(("127.0.0.1", 0), CollectorRegistry(), alive=lambda: {"batches": problem, "input": None}, ready=dict)
    server.start()
    try:
        assert polled(LivenessCheck(HttpProbe(f"http://127.0.0.1:{server.port}/healthz"))) == expected
    finally:
        server.stop()


def test_a_process_that_accepts_and_answers_nothing_has_no_result(listener: socket.socket) -> None:
    check = LivenessCheck(HttpProbe(f"http://127.0.0.1:{port_of(listener)}/healthz"))
    with sent(check, listener) as connection:
        assert check.poll() is None
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n")
        assert check.poll() is None
    check.close()


def test_a_closed_port_does_not_answer(listener: socket.socket) -> None:
    port = port_of(listener)
    listener.close()
    assert polled(LivenessCheck(HttpProbe(f"http://127.0.0.1:{port}/healthz"))) == CheckResult(answered=False)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0\r\n\r\n"])
def test_what_is_no_http_is_no_answer(listener: socket.socket, answer: bytes) -> None:
    check = LivenessCheck(HttpProbe(f"http://127.0.0.1:{port_of(listener)}/healthz"))
    with sent(check, listener) as connection:
        connection.sendall(answer)
    assert polled(check) == CheckResult(answered=False)


@pytest.mark.parametrize("kind", ["kafka", "cql"])
def test_any_whole_answer_to_a_binary_request_is_life(listener: socket.socket, kind: str) -> None:
    port = port_of(listener)
    check = LivenessCheck(KafkaProbe(f"127.0.0.1:{port}") if kind == "kafka" else CqlProbe("127.0.0.1", port))
    with sent(check, listener) as connection:
        connection.sendall(bytes(12))
        assert polled(check) == CheckResult(answered=True)


def test_a_step_has_no_liveness() -> None:
    with pytest.raises(ValueError, match="no liveness check"):
        LivenessCheck(ExitProbe())
