"""A real control plane: etcd, the API server, the controllers and the scheduler as processes on free ports of 127.0.0.1."""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from starling_common.testing import free_port
from starling_local.stack.supervision.process import spawn
from tests.kubernetes.api import Api, Refused
from tests.processes import end

ROOT: Final = Path(__file__).parents[2]
READY_SECONDS: Final = 300.0
POLL_SECONDS: Final = 0.2
_TOKEN: Final = "administrator"  # of a server on 127.0.0.1, with no other data than that of the tests


class NotReady(Exception):
    """A part of the control plane ended, or a condition was not met in time."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running control plane. `kubeconfig`: a file for its administrator."""

    api: Api
    url: str
    kubeconfig: Path


def tools() -> dict[str, Path]:
    """Return the verified programs and definitions of `make k8s-tools`, by name. Raises: NotReady with the cure."""
    done = subprocess.run([ROOT / "tools/k8s_tools.sh", "--check"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotReady(done.stderr)
    return {name: Path(path) for name, path in (line.split(" ", 1) for line in done.stdout.splitlines())}


def wait_until(condition: Callable[[], bool], what: str, seconds: float = READY_SECONDS) -> None:
    """Return when the condition is true. Raises: NotReady after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            raise NotReady(f"{what}: not within {seconds:.0f} s")
        time.sleep(POLL_SECONDS)  # sleep: between two looks at a condition


class _Parts:
    """The processes of a control plane."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, program: Path, *arguments: str) -> None:
        """Start a program. It ends with the calling thread."""
        name = program.name
        self._running.append((name, spawn([str(program), *arguments], {}, self._directory / f"{name}.log")))

    def check(self) -> None:
        """Raise NotReady if a process has ended, with the end of its log."""
        for name, process in self._running:
            if process.poll() is not None:
                lines = (self._directory / f"{name}.log").read_text(errors="replace").splitlines()
                raise NotReady("\n".join([f"{name} ended with {process.returncode}:", *lines[-20:]]))

    def end(self) -> None:
        """End all processes, the last one first."""
        for _, process in reversed(self._running):
            end(process)


@contextmanager
def control_plane(directory: Path) -> Iterator[ControlPlane]:
    """Start a control plane with the custom resources of `make k8s-tools`, its files below `directory`; yield when it is ready.

    Raises: NotReady.
    """
    programs = tools()
    definitions = [path for path in programs.values() if path.suffix == ".yaml"]
    directory.mkdir(parents=True, exist_ok=True)
    etcd, peers, port = (free_port() for _ in range(3))
    url, key = f"https://127.0.0.1:{port}", new_key(directory / "sa.key")
    certificates, tokens, kubeconfig = directory / "certificates", directory / "tokens.csv", directory / "kubeconfig"
    tokens.write_text(f"{_TOKEN},administrator,administrator,system:masters\n")
    parts = _Parts(directory)
    try:
        parts.start(
            programs["etcd"], f"--data-dir={directory / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn",
            f"--listen-client-urls=http://127.0.0.1:{etcd}", f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
        )  # fmt: skip
        parts.start(
            programs["kube-apiserver"], f"--etcd-servers=http://127.0.0.1:{etcd}", "--bind-address=127.0.0.1",
            f"--secure-port={port}", "--advertise-address=127.0.0.1", f"--cert-dir={certificates}",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", "--service-cluster-ip-range=10.0.0.0/16",
            "--authorization-mode=RBAC", f"--token-auth-file={tokens}", "--endpoint-reconciler-type=none",
            # `kubectl exec` reaches the kubelet of the tests as WebSocket (kubelet_server.py).
            "--feature-gates=TranslateStreamCloseWebsocketRequests=false",
        )  # fmt: skip
        certificate = certificates / "apiserver.crt"
        _wait(parts, certificate.exists, "the certificate of the API server")
        kubeconfig.write_text(access(url, certificate, _TOKEN))
        api = Api(url, certificate, _TOKEN)
        try:
            _wait(parts, lambda: _answers(api), "the API server")
            parts.start(
                programs["kube-controller-manager"], f"--kubeconfig={kubeconfig}", f"--service-account-private-key-file={key}",
                "--use-service-account-credentials=true", "--leader-elect=false", f"--root-ca-file={certificate}",
                "--secure-port=0", "--bind-address=127.0.0.1",
            )  # fmt: skip
            parts.start(programs["kube-scheduler"], f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0")
            _define(api, definitions)
            default = "/api/v1/namespaces/default/serviceaccounts"
            _wait(parts, lambda: bool(api.items(default)), "the controllers")
            yield ControlPlane(api, url, kubeconfig)
            parts.check()
        finally:
            api.close()
    finally:
        parts.end()


def _wait(parts: _Parts, condition: Callable[[], bool], what: str) -> None:
    def met() -> bool:
        parts.check()
        return condition()

    wait_until(met, what)


def _answers(api: Api) -> bool:
    try:
        api.request("GET", "/readyz")
    except (Refused, httpx.TransportError):
        return False
    return True


def _define(api: Api, definitions: Sequence[Path]) -> None:
    """Create the custom resources, and wait until the server serves them."""
    created = [api.create(yaml.safe_load(path.read_text())) for path in definitions]

    def established() -> bool:
        stored = [api.get(one).get("status", {}).get("conditions") or () for one in created]
        return all(("Established", "True") in {(one["type"], one["status"]) for one in found} for found in stored)

    wait_until(established, "the custom resources")


def new_key(path: Path) -> Path:
    """Write a private key for service accounts, which this user alone may read; return its path."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    path.touch(mode=0o600)
    path.write_bytes(text)
    return path


def access(url: str, certificate: Path, token: str) -> str:
    """Return a kubeconfig for the holder of the token."""
    name = "tests"
    return yaml.safe_dump({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority": str(certificate)}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    })  # fmt: skip
