"""A kubelet that runs the containers of its pods as processes of this machine, without images and without isolation.

A pod is read from the API server. Its first container runs as the Python module of its command, with the environment of its
ConfigMaps, Secrets and fields. Probes, restarts, the preStop hook, SIGTERM and the grace period follow the specification. The
differences from a real node, because all pods share the network and the files of one machine:

- `tini -- python` is the interpreter of the tests, with all packages of the repository.
- A variable whose value is a port of the container gets a free port instead, and 0.0.0.0 becomes 127.0.0.1.
- `service:port` in a variable becomes the address of a ready pod of that Service in the pod's namespace: there is no cluster DNS.
- A path below a mounted volume becomes a directory: one for each claim, one for each pod and other volume. Secrets are files there.
- Requests, limits, security contexts, network policies, init containers and further containers have no effect.
"""

import os
import re
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from starling_common.testing import free_port
from starling_local.stack.supervision.process import spawn
from tests.kubernetes.api import Api, Manifest
from tests.kubernetes.kubelet import NODE, conditions, container_status, missing_references, now, remove, unless_changed, waiting

_POLL_SECONDS: Final = 0.1
_FIRST_BACKOFF_SECONDS: Final = 1.0
_LAST_BACKOFF_SECONDS: Final = 30.0
_COMMAND: Final = ("tini", "--", "python", "-m")
_PROBE_DEFAULTS: Final = {
    "periodSeconds": 10,
    "timeoutSeconds": 1,
    "failureThreshold": 3,
    "successThreshold": 1,
    "initialDelaySeconds": 0,
}


class Probe:
    """One probe of a container: whether it passes, as of its thresholds. `passing`: before the first answer."""

    def __init__(self, spec: Manifest, port: int, *, passing: bool) -> None:
        self._spec = {**_PROBE_DEFAULTS, **spec}
        self._url = f"http://127.0.0.1:{port}{spec['httpGet']['path']}"
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
    port: int | None
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
        seconds = self.container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        began = time.monotonic()
        try:
            container.process.wait(min(seconds, self._grace_seconds))
        except subprocess.TimeoutExpired:
            self._grace_seconds -= time.monotonic() - began

    def _end(self, container: Container, grace_seconds: float) -> int:
        container.process.terminate()
        try:
            return container.process.wait(max(grace_seconds, 0.0))
        except subprocess.TimeoutExpired:
            container.process.kill()
            return container.process.wait()

    def _start(self) -> Container:
        command = self.container["command"]
        assert tuple(command[: len(_COMMAND)]) == _COMMAND, f"{self.name}: {command}"
        ports = {port["name"]: (port["containerPort"], free_port()) for port in self.container.get("ports", ())}
        variables = self._kubelet.environment(self, dict(ports.values()))
        pairs = [f"{name}={value}" for name, value in variables.items()]
        # `env -i`: nothing of the environment of the tests but what every image has.
        process = spawn(["env", "-i", *pairs, sys.executable, "-m", *command[len(_COMMAND) :]], {}, self.log, cwd=self.directory)
        probes = {
            name: Probe(self.container[name], ports[self.container[name]["httpGet"]["port"]][1], passing=name == "livenessProbe")
            for name in ("startupProbe", "livenessProbe", "readinessProbe")
            if name in self.container
        }
        return Container(process, next((local for _, local in ports.values()), None), probes)

    def _report(self, phase: str, state: Mapping[str, Any], *, ready: bool, started: bool = False) -> None:
        if self._reported == (reported := (phase, sorted(state), ready, started, self.restarts)):
            return
        self._reported = reported
        status = container_status(self.container, state, ready=ready, started=started, restarts=self.restarts)
        others = [container_status(one, state, ready=ready) for one in self.spec["containers"][1:]]
        body = {"phase": phase, "podIP": "127.0.0.1", "conditions": conditions(ready=ready), "containerStatuses": [status, *others]}
        unless_changed(lambda: self._kubelet.api.merge(f"{self.path}/status", {"status": body}))


class ProcessKubelet:
    """Runs the pods of the node as processes. `directory`: for volumes and logs."""

    def __init__(self, api: Api, directory: Path) -> None:
        self.api = api
        self.directory = directory
        self.pods: dict[str, Pod] = {}
        """Each pod that has run, by its id."""

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
        """End all pods at the end of the block."""
        try:
            yield
        finally:
            for pod in self.pods.values():
                pod.stop(0.0)
            for pod in self.pods.values():
                pod.join()

    def address(self, namespace: str, service: str) -> str | None:
        """Return host and port of a ready pod of a Service; None if there is none."""
        selector = self.api.request("GET", f"/api/v1/namespaces/{namespace}/services/{service}")["spec"]["selector"]
        for pod in list(self.pods.values()):
            running, labels = pod.running, pod.manifest["metadata"]["labels"]
            if pod.namespace == namespace and selector.items() <= labels.items() and running and running.ready and not pod.stops:
                return f"127.0.0.1:{running.port}"
        return None

    def environment(self, pod: Pod, ports: Mapping[int, int]) -> dict[str, str]:
        """Return the environment of a pod's container. `ports`: of the container -> of this machine."""
        container, namespace = pod.container, pod.namespace
        found: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            kind, reference = ("ConfigMap", source["configMapRef"]) if "configMapRef" in source else ("Secret", source["secretRef"])
            if not reference.get("optional"):
                found |= self._data(kind, namespace, reference["name"])
        for variable in container.get("env", ()):
            found[variable["name"]] = self._value(variable, pod)
        mounts = self._mounts(pod)
        adapt = self._adaptation(namespace, ports, mounts)
        return {name: adapt(value) for name, value in found.items()} | {
            "PATH": os.environ["PATH"], "HOME": str(pod.directory), "TMPDIR": str(mounts["/tmp"]), "PYTHONUNBUFFERED": "1",
        }  # fmt: skip

    def _value(self, variable: Manifest, pod: Pod) -> str:
        if "value" in variable:
            value: str = variable["value"]
            assert "$(" not in value, f"{variable}: references between variables are not implemented"
            return value
        source = variable["valueFrom"]
        if "fieldRef" in source:
            fields: Mapping[str, str] = {"metadata.name": pod.name, "metadata.namespace": pod.namespace}
            return fields[source["fieldRef"]["fieldPath"]]
        kind, reference = (
            ("Secret", source["secretKeyRef"]) if "secretKeyRef" in source else ("ConfigMap", source["configMapKeyRef"])
        )
        return self._data(kind, pod.namespace, reference["name"])[reference["key"]]

    def _data(self, kind: str, namespace: str, name: str) -> dict[str, str]:
        metadata = {"namespace": namespace, "name": name}
        data = self.api.get({"apiVersion": "v1", "kind": kind, "metadata": metadata}).get("data", {})
        return data if kind == "ConfigMap" else {key: b64decode(value).decode() for key, value in data.items()}

    def _mounts(self, pod: Pod) -> dict[str, Path]:
        """Return the directory of each mount, by its path in the container."""
        directories = {volume["name"]: self._volume(volume, pod) for volume in pod.spec.get("volumes", ())}
        return {mount["mountPath"]: directories[mount["name"]] for mount in pod.container.get("volumeMounts", ())}

    def _volume(self, volume: Manifest, pod: Pod) -> Path:
        directory: Path = pod.directory / "volumes" / volume["name"]
        if "persistentVolumeClaim" in volume:
            directory = self.directory / "claims" / f"{pod.namespace}-{volume['persistentVolumeClaim']['claimName']}"
        directory.mkdir(parents=True, exist_ok=True)
        for kind, field_name, key_of_name in (("Secret", "secret", "secretName"), ("ConfigMap", "configMap", "name")):
            if field_name in volume:
                source = volume[field_name]
                data = self._data(kind, pod.namespace, source[key_of_name])
                items = {item["key"]: item["path"] for item in source.get("items", ())} or {key: key for key in data}
                for key, path in items.items():
                    (directory / path).write_text(data[key])
        return directory

    def _adaptation(self, namespace: str, ports: Mapping[int, int], mounts: Mapping[str, Path]) -> Callable[[str], str]:
        """Return the function that replaces ports, addresses and paths in the value of a variable."""
        services = {one["metadata"]["name"] for one in self.api.items(f"/api/v1/namespaces/{namespace}/services")}
        named = re.compile(rf"\b({'|'.join(map(re.escape, sorted(services, key=len, reverse=True)))}):\d+\b")
        own = {str(port): str(local) for port, local in ports.items()} | {"0.0.0.0": "127.0.0.1"}

        def adapt(value: str) -> str:
            for path, directory in mounts.items():
                if value == path or value.startswith(f"{path}/"):
                    return f"{directory}{value.removeprefix(path)}"
            return own.get(value) or named.sub(lambda found: self.address(namespace, found[1]) or found[0], value)

        return adapt if services else lambda value: own.get(value, value)
