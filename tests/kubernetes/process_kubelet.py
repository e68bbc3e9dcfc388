"""A kubelet that runs the containers of its pods as processes of this machine, without images and without isolation.

A pod is read from the API server. Its first container runs as the Python module of its command, or of the entry point of its image
in `docker/Dockerfile`, with the environment of its ConfigMaps, Secrets and fields. Probes, restarts, preStop hooks, SIGTERM and the
grace period follow the specification. Each pod and each Service has an address of its own below 127.0.0.0/8, with the ports of the
specification. `kubectl logs` and `exec` work.

The differences from a real node, because all pods share the network and the files of one machine:

- `tini -- python` is the interpreter of the tests, with all packages of the repository. Java and the jars are those of the stack.
- 0.0.0.0 in a variable becomes the address of the pod, and `service:port` or `service.namespace:port` that of the Service: there
  is no cluster DNS.
- A path below a mounted volume becomes a directory: one for each claim, one for each pod and other volume. Secrets are files there.
- A token of a service account is not at the path that all clients know. The scaler and the drivers of Spark get a kubeconfig with
  it. The preStop hook of a worker runs in the kubelet, with the token of the worker's pod.
- The API server has its own address instead of `kubernetes.default.svc`, and a driver of Spark that of its pod instead of the name
  of its Service, also in the properties that `spark-submit` has written for it.
- Requests, limits, security contexts, network policies, init containers and further containers have no effect.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from starling_local.java import find_java
from starling_local.runtime.fetching import runtime_jars
from starling_local.stack.supervision.process import spawn
from starling_stream.worker import scaled_in
from tests.kubernetes.api import Manifest
from tests.kubernetes.control_plane import ROOT, ControlPlane, access
from tests.kubernetes.kubelet import NODE, conditions, container_status, missing_references, now, remove, unless_changed, waiting
from tests.kubernetes.kubelet_server import KubeletServer
from tests.kubernetes.service_network import Addresses, Forwarder

_POLL_SECONDS: Final = 0.1
_FIRST_BACKOFF_SECONDS: Final = 1.0
_LAST_BACKOFF_SECONDS: Final = 30.0
_COMMAND: Final = ("tini", "--", "python", "-m")
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_API_SERVER: Final = "https://kubernetes.default.svc"
_JARS: Final = "/opt/jars"
"""Where the image of Spark has its jars."""
_PROPERTIES: Final = "spark.properties"
"""The file of a driver that `spark-submit` has started."""
_PROBE_DEFAULTS: Final = {
    "periodSeconds": 10,
    "timeoutSeconds": 1,
    "failureThreshold": 3,
    "successThreshold": 1,
    "initialDelaySeconds": 0,
}


class Probe:
    """One probe of a container: whether it passes, as of its thresholds. `passing`: before the first answer."""

    def __init__(self, spec: Manifest, place: str, *, passing: bool) -> None:
        """`place`: host:port."""
        self._spec = {**_PROBE_DEFAULTS, **spec}
        self._url = f"http://{place}{spec['httpGet']['path']}"
        self._next_at = time.monotonic() + self._spec["initialDelaySeconds"]
        self._same = 0
        self._last = passing
        self.passing = passing

    @property
    def failed(self) -> bool:
        """Whether as many answers in a row were wrong as the threshold allows."""
        return not self._last and self._same >= self._spec["failureThreshold"]

    def step(self) -> None:
        """Ask when it is time."""
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + self._spec["periodSeconds"]
        answer = self._asked()
        self._same = self._same + 1 if answer is self._last else 1
        self._last = answer
        if self._same >= self._spec["successThreshold" if answer else "failureThreshold"]:
            self.passing = answer

    def _asked(self) -> bool:
        try:
            return 200 <= httpx.get(self._url, timeout=self._spec["timeoutSeconds"]).status_code < 400
        except httpx.TransportError:
            return False


@dataclass
class Container:
    """A container that runs. Times are of `time.monotonic`."""

    process: "subprocess.Popen[bytes]"
    variables: Mapping[str, str]
    probes: Mapping[str, Probe]
    started_at: str = field(default_factory=now)

    @property
    def started(self) -> bool:
        """Whether the startup probe has passed."""
        return "startupProbe" not in self.probes or self.probes["startupProbe"].passing

    @property
    def ready(self) -> bool:
        """Whether it gets requests."""
        return self.started and ("readinessProbe" not in self.probes or self.probes["readinessProbe"].passing)

    def step(self) -> str | None:
        """Ask the probes; return the name of the one by which the container has to end."""
        names = ("livenessProbe", "readinessProbe") if self.started else ("startupProbe",)
        for name in (name for name in names if name in self.probes):
            self.probes[name].step()
            if name != "readinessProbe" and self.probes[name].failed:
                return name
        return None


class Pod(threading.Thread):
    """One pod: its container from the first start to the last end, and its status on the server."""

    def __init__(self, kubelet: "ProcessKubelet", manifest: Manifest) -> None:
        metadata = manifest["metadata"]
        super().__init__(name=metadata["name"])
        self.manifest, self.uid, self.namespace = manifest, metadata["uid"], metadata["namespace"]
        self.spec, [self.container, *_] = manifest["spec"], manifest["spec"]["containers"]
        self.directory = kubelet.directory / f"{self.namespace}-{self.name}-{self.uid[:8]}"
        self.path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        self.address = kubelet.addresses.new()
        self.running: Container | None = None
        self.restarts = 0
        self.exits: list[int] = []
        """Exit codes of the container, in order; negative: the signal that ended it."""
        self._kubelet = kubelet
        self._stopping = threading.Event()
        self._grace_seconds = 0.0
        self._reported: Any = None

    @property
    def log(self) -> Path:
        """The file with the output of all starts."""
        return self.directory / "log"

    @property
    def words(self) -> Sequence[str]:
        """The command of the container without its arguments."""
        found: Sequence[str] = self.container.get("command") or entry_point(self.container["image"])
        return found

    @property
    def stops(self) -> bool:
        """Whether it is deleted: no Service sends it requests any more."""
        return self._stopping.is_set()

    def stop(self, grace_seconds: float) -> None:
        """End the container, as after the deletion of the pod; `grace_seconds` include the preStop hook."""
        self._grace_seconds = grace_seconds
        self._stopping.set()

    def run(self) -> None:
        """Run the pod until it is deleted, or has ended and may not be started again."""
        backoff = _FIRST_BACKOFF_SECONDS
        while not self._stopping.is_set():
            missing = missing_references(self._kubelet.api, self.manifest)
            if missing:
                self._report("Pending", waiting("CreateContainerConfigError", missing), ready=False)
                self._stopping.wait(_FIRST_BACKOFF_SECONDS)
                continue
            code = self._start_and_watch()
            if code is None:
                break
            self.exits.append(code)
            reason = "Error" if code else "Completed"
            ended = {"terminated": {"exitCode": abs(code), "reason": reason, "startedAt": now(), "finishedAt": now()}}
            if self.spec["restartPolicy"] == "Never":
                self._report("Failed" if code else "Succeeded", ended, ready=False)
                self._stopping.wait()
                break
            self.restarts += 1
            self._report("Running", waiting("CrashLoopBackOff", f"ended with {code}"), ready=False)
            self._stopping.wait(backoff)
            backoff = min(2 * backoff, _LAST_BACKOFF_SECONDS)
        unless_changed(lambda: remove(self._kubelet.api, self.path, self.uid))

    def _start_and_watch(self) -> int | None:
        """Start the container; return its exit code when it has ended, None when the pod is deleted."""
        container = self.running = self._start()
        try:
            while not self._stopping.wait(_POLL_SECONDS):
                code = container.process.poll()
                if code is not None:
                    return code
                failed = container.step()
                if failed is not None:
                    return self._end(container, self.spec["terminationGracePeriodSeconds"])
                state = {"running": {"startedAt": container.started_at}}
                self._report("Running", state, ready=container.ready, started=container.started)
            # A pod that stops is no longer ready: the endpoints lose it before SIGTERM.
            self._pre_stop(container)
            self.exits.append(self._end(container, self._grace_seconds))
            return None
        finally:
            self.running = None

    def _pre_stop(self, container: Container) -> None:
        hook, began = self.container.get("lifecycle", {}).get("preStop", {}), time.monotonic()
        if "exec" in hook:
            self._scale_in(container, hook["exec"]["command"])
        try:
            container.process.wait(min(hook.get("sleep", {}).get("seconds", 0), self._grace_seconds))
        except subprocess.TimeoutExpired:
            self._grace_seconds -= time.monotonic() - began

    def _scale_in(self, container: Container, command: list[str]) -> None:
        """Run the hook of a worker that may be scaled in: the one hook that is a command."""
        *module, stateful_set = command
        assert module == ["python", "-m", "starling_stream.worker.scaled_in"], command
        account = self._kubelet.directories(self)[_ACCOUNT]
        scaled_in.main([stateful_set], container.variables, account, lambda: container.process.send_signal(signal.SIGUSR1))

    def _end(self, container: Container, grace_seconds: float) -> int:
        container.process.terminate()
        try:
            return container.process.wait(max(grace_seconds, 0.0))
        except subprocess.TimeoutExpired:
            container.process.kill()
            return container.process.wait()

    def _start(self) -> Container:
        command = self.words
        assert tuple(command[: len(_COMMAND)]) == _COMMAND, f"{self.name}: {command}"
        variables, adapt = self._kubelet.environment(self), self._kubelet.adaptation(self)
        words = self.command(["python", "-m", *command[len(_COMMAND) :], *map(adapt, self.container.get("args", ()))], variables)
        process = spawn(words, {}, self.log, cwd=self.directory)
        probes = {
            name: Probe(self.container[name], f"{self.address}:{self.port(self.container[name]['httpGet']['port'])}", passing=alive)
            for name, alive in (("startupProbe", False), ("livenessProbe", True), ("readinessProbe", False))
            if name in self.container
        }
        return Container(process, variables, probes)

    def port(self, name: str | int) -> int:
        """Return a port of the container by its name."""
        if isinstance(name, int):
            return name
        [port] = [one["containerPort"] for one in self.container["ports"] if one["name"] == name]
        return int(port)

    def command(self, words: Sequence[str], variables: Mapping[str, str] | None = None) -> list[str]:
        """Return the command with the environment alone that every image has and that of the pod."""
        found = self._kubelet.environment(self) if variables is None else variables
        return ["env", "-i", *(f"{name}={value}" for name, value in found.items()), *words]

    def _report(self, phase: str, state: Mapping[str, Any], *, ready: bool, started: bool = False) -> None:
        if self._reported == (reported := (phase, sorted(state), ready, started, self.restarts)):
            return
        self._reported = reported
        status = container_status(self.container, state, ready=ready, started=started, restarts=self.restarts)
        others = [container_status(one, state, ready=ready) for one in self.spec["containers"][1:]]
        body = {
            "phase": phase,
            "podIP": self.address,
            "conditions": conditions(ready=ready),
            "containerStatuses": [status, *others],
        }
        unless_changed(lambda: self._kubelet.api.merge(f"{self.path}/status", {"status": body}))


class ProcessKubelet:
    """Runs the pods of the node as processes, and connects clients of a Service with them. `directory`: for volumes and logs."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.api = plane.api
        self.directory = directory
        self.addresses = Addresses()
        self.pods: dict[str, Pod] = {}
        """Each pod that has run, by its id."""
        self._plane = plane
        self._services: dict[str, tuple[str, list[Forwarder]]] = {}
        """Address and listeners of a Service, by its id."""
        self._lock = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)
        self._server = KubeletServer(directory, self._find)
        self.port = self._server.port
        """At which the API server reaches this kubelet."""
        self._java = find_java().home
        self._jars = directory / "jars"
        self._jars.mkdir(parents=True)
        for jar in {path.name: path for bundle in ("spark", "iceberg", "jdbc") for path in runtime_jars(bundle)}.values():
            (self._jars / jar.name).symlink_to(jar)

    def step(self) -> None:
        """Start the new pods of the node, and stop those that are deleted."""
        for manifest in self.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={NODE}"):
            metadata = manifest["metadata"]
            pod = self.pods.get(metadata["uid"])
            if pod is None:
                pod = self.pods[metadata["uid"]] = Pod(self, manifest)
                pod.directory.mkdir(parents=True)
                pod.start()
            if "deletionTimestamp" in metadata:
                pod.stop(metadata["deletionGracePeriodSeconds"])

    @contextmanager
    def ended(self) -> Iterator[None]:
        """End all pods at the end of the block, and the listeners of Services."""
        try:
            yield
        finally:
            for pod in self.pods.values():
                pod.stop(0.0)
            for pod in self.pods.values():
                pod.join()
            for _, forwarders in self._services.values():
                for one in forwarders:
                    one.close()
            self._server.close()

    def _find(self, namespace: str, name: str) -> Pod | None:
        found = [pod for pod in list(self.pods.values()) if (pod.namespace, pod.name) == (namespace, name)]
        return found[-1] if found else None

    def address(self, namespace: str, service: str) -> str:
        """Return the address of a Service with its own ports, behind which its ready pods are. Raises: Refused."""
        found = self.api.request("GET", f"/api/v1/namespaces/{namespace}/services/{service}")
        with self._lock:
            uid = found["metadata"]["uid"]
            if uid not in self._services:
                address, selector = self.addresses.new(), found["spec"]["selector"]
                ports = [(one["port"], one["targetPort"]) for one in found["spec"]["ports"]]
                forwarders = [
                    Forwarder(address, port, lambda target=target: self._ready(namespace, selector, target))  # type: ignore[misc]
                    for port, target in ports
                ]
                self._services[uid] = address, forwarders
            return self._services[uid][0]

    def _ready(self, namespace: str, selector: Mapping[str, str], port: str | int) -> tuple[str, int] | None:
        """Return the place of a ready pod; None if there is none."""
        for pod in list(self.pods.values()):
            running, labels = pod.running, pod.manifest["metadata"].get("labels", {})
            if pod.namespace == namespace and selector.items() <= labels.items() and running and running.ready and not pod.stops:
                return pod.address, pod.port(port)
        return None

    def environment(self, pod: Pod) -> dict[str, str]:
        """Return the environment of a pod's container."""
        container, namespace = pod.container, pod.namespace
        found: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            kind, reference = ("ConfigMap", source["configMapRef"]) if "configMapRef" in source else ("Secret", source["secretRef"])
            if not reference.get("optional"):
                found |= self._data(kind, namespace, reference["name"])
        for variable in container.get("env", ()):
            found[variable["name"]] = self._value(variable, pod)
        adapt = self.adaptation(pod)
        for volume in pod.spec.get("volumes", ()):
            self._fill(volume, pod)
        mounts = self.directories(pod)
        server = urlsplit(self._plane.url)
        path = os.pathsep.join([str(Path(sys.executable).parent), str(self._java / "bin"), os.environ["PATH"]])
        return {name: adapt(value) for name, value in found.items()} | {
            "PATH": path, "JAVA_HOME": str(self._java), "HOME": str(pod.directory), "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(mounts.get("/tmp", pod.directory)),
            "KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port),
            **self._access(pod, mounts),
        }  # fmt: skip

    def _access(self, pod: Pod, mounts: Mapping[str, Path]) -> dict[str, str]:
        """Return the variable that names the kubeconfig of a process that calls the API server."""
        kind = "STARLING_KUBECONFIG" if "starling_scaler" in pod.words else "KUBECONFIG"
        return {kind: str(mounts[_ACCOUNT] / "kubeconfig")} if _ACCOUNT in mounts else {}

    def _value(self, variable: Manifest, pod: Pod) -> str:
        if "value" in variable:
            value: str = variable["value"]
            assert "$(" not in value, f"{variable}: references between variables are not implemented"
            return value
        source = variable["valueFrom"]
        if "fieldRef" in source:
            fields: Mapping[str, str] = {
                "metadata.name": pod.name, "metadata.namespace": pod.namespace, "status.podIP": pod.address,
            }  # fmt: skip
            return fields[source["fieldRef"]["fieldPath"]]
        kind, reference = (
            ("Secret", source["secretKeyRef"]) if "secretKeyRef" in source else ("ConfigMap", source["configMapKeyRef"])
        )
        return self._data(kind, pod.namespace, reference["name"])[reference["key"]]

    def _data(self, kind: str, namespace: str, name: str) -> dict[str, str]:
        metadata = {"namespace": namespace, "name": name}
        data = self.api.get({"apiVersion": "v1", "kind": kind, "metadata": metadata}).get("data", {})
        return data if kind == "ConfigMap" else {key: b64decode(value).decode() for key, value in data.items()}

    def directories(self, pod: Pod) -> dict[str, Path]:
        """Return the directory of each mount, by its path in the container. Nothing is read: a pod may outlive its objects."""
        volumes = {volume["name"]: self._directory(volume, pod) for volume in pod.spec.get("volumes", ())}
        return {mount["mountPath"]: volumes[mount["name"]] for mount in pod.container.get("volumeMounts", ())}

    def _directory(self, volume: Manifest, pod: Pod) -> Path:
        if "persistentVolumeClaim" in volume:
            return self.directory / "claims" / f"{pod.namespace}-{volume['persistentVolumeClaim']['claimName']}"
        found: Path = pod.directory / "volumes" / volume["name"]
        return found

    def _fill(self, volume: Manifest, pod: Pod) -> None:
        """Make the directory of a volume, and write what the server has for it now. Raises: Refused."""
        directory = self._directory(volume, pod)
        directory.mkdir(parents=True, exist_ok=True)
        if "projected" in volume:
            self._write_account(pod, directory)
        for kind, field_name, key_of_name in (("Secret", "secret", "secretName"), ("ConfigMap", "configMap", "name")):
            if field_name in volume:
                source = volume[field_name]
                data = self._data(kind, pod.namespace, source[key_of_name])
                items = {item["key"]: item["path"] for item in source.get("items", ())} or {key: key for key in data}
                for key, path in items.items():
                    text = self._properties(data[key], pod) if key == _PROPERTIES else data[key]
                    (directory / path).write_text(text)

    def _properties(self, text: str, pod: Pod) -> str:
        """Return the properties of a driver with the paths and addresses of this machine."""
        for path, directory in self.directories(pod).items():
            text = text.replace(f"={path}/", f"={directory}/")
        server = self._plane.url.replace(":", "\\:")
        text = re.sub(r"https\\?://kubernetes\.default\.svc(\\?:443)?", lambda _: server, text)
        text = re.sub(r"^(spark\.driver\.host)=.*$", rf"\1={pod.address}", text, flags=re.MULTILINE)
        return f"{text}\nspark.kubernetes.driver.master={self._plane.url}\n"

    def _write_account(self, pod: Pod, directory: Path) -> None:
        """Write the token of the pod's service account with what a client needs beside it, and a kubeconfig of the same."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
        path = f"/api/v1/namespaces/{pod.namespace}/serviceaccounts/{pod.spec['serviceAccountName']}/token"
        token = self.api.request("POST", path, request)["status"]["token"]
        authority = self._data("ConfigMap", pod.namespace, "kube-root-ca.crt")["ca.crt"]
        for name, text in (("token", token), ("ca.crt", authority), ("namespace", pod.namespace)):
            (directory / name).write_text(text)
        (directory / "kubeconfig").write_text(access(self._plane.url, directory / "ca.crt", token))

    def adaptation(self, pod: Pod) -> Callable[[str], str]:
        """Return the function that replaces addresses and paths in the value of a variable, and in an argument."""
        mounts = self.directories(pod)
        found = self.api.items(f"/api/v1/namespaces/{pod.namespace}/services")
        services = sorted((one["metadata"]["name"] for one in found), key=len, reverse=True)
        named = re.compile(rf"\b({'|'.join(map(re.escape, services))})(?:\.{re.escape(pod.namespace)})?:(\d+)\b")

        def adapt(value: str) -> str:
            for path, directory in mounts.items():
                if value == path or value.startswith(f"{path}/"):
                    return f"{directory}{value.removeprefix(path)}"
            if value == "0.0.0.0":
                return pod.address
            for path, directory in mounts.items():
                value = value.replace(f'"{path}/', f'"{directory}/')  # in JSON
            value = value.replace(f"{_JARS}/", f"{self._jars}/").replace(_API_SERVER, self._plane.url)
            return named.sub(lambda found: f"{self.address(pod.namespace, found[1])}:{found[2]}", value) if services else value

        return adapt


def entry_point(image: str) -> list[str]:
    """Return the entry point of an image of the repository, `…/starling-NAME:TAG`."""
    [name] = re.findall(r"starling-(\w+)", image.rpartition("/")[2])
    text = (ROOT / "docker/Dockerfile").read_text().partition(f"\nFROM base AS {name}\n")[2]
    found: list[str] = json.loads(text.partition("\nENTRYPOINT ")[2].splitlines()[0])
    return found


@contextmanager
def explained(node: ProcessKubelet) -> Iterator[None]:
    """Add the logs of all pods to a failure in the block."""
    try:
        yield
    except Exception as error:
        for pod in node.pods.values():
            text = pod.log.read_text(errors="replace") if pod.log.exists() else ""
            error.add_note(f"--- {pod.name}, exits {pod.exits}\n{text[-3000:]}")
        raise
