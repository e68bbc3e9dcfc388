"""Edge: the `preStop` hook of a worker's pod: `python -m starling_stream.worker.scaled_in STATEFUL_SET`.

Kubernetes ends a pod with the same signal for a restart, an eviction and a scale-in. Only after a scale-in no process with this
worker's id follows, so only then the worker leaves its group. The hook asks the API server for the replicas of the StatefulSet: the
pod is scaled in if its ordinal is not below them. Then it sends SIGUSR1 to the first process, which passes it on to the worker.

It imports the standard library alone, because it starts while the pod has to stop.
"""

import json
import os
import signal
import ssl
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_SECONDS: Final = 5.0
"""The worker stops after this without an answer. Its partitions then wait until its session ends."""

_NOT_FOUND: Final = 404


def is_scaled_in(pod: str, replicas: int) -> bool:
    """Return whether a StatefulSet with that many replicas has no pod of this name. Raises: ValueError for another pod's name."""
    ordinal = pod.rpartition("-")[2]
    if not ordinal.isdecimal():
        raise ValueError(f"{pod} is not the name of a pod of a StatefulSet: set STARLING_INSTANCE_ID to metadata.name")
    return int(ordinal) >= replicas


def replicas_of(stateful_set: str, environment: Mapping[str, str], account: Path) -> int | None:
    """Return the replicas that are asked for; None if the StatefulSet is gone. Raises: OSError, ValueError, KeyError."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
    if ":" in host:
        host = f"[{host}]"
    namespace, token = (account / "namespace").read_text().strip(), (account / "token").read_text().strip()
    url = f"https://{host}:{port}/apis/apps/v1/namespaces/{namespace}/statefulsets/{stateful_set}/scale"
    request = Request(url, headers={"Authorization": f"Bearer {token}", "Accept": "application/json"})
    trusted = ssl.create_default_context(cafile=str(account / "ca.crt"))
    try:
        with urlopen(request, timeout=_SECONDS, context=trusted) as answer:  # noqa: S310 - https only
            # The server leaves a zero out.
            return int(json.load(answer)["spec"].get("replicas", 0))
    except HTTPError as error:
        if error.code == _NOT_FOUND:
            return None
        raise


def main(
    arguments: list[str],
    environment: Mapping[str, str] = os.environ,
    account: Path = _ACCOUNT,
    leave: Callable[[], None] = lambda: os.kill(1, signal.SIGUSR1),
) -> int:
    """Let a worker that is scaled in leave its group. Return 1 without an answer: Kubernetes shows it as an Event of the pod."""
    [stateful_set] = arguments
    try:
        replicas = replicas_of(stateful_set, environment, account)
        if replicas is not None and is_scaled_in(environment["STARLING_INSTANCE_ID"], replicas):
            leave()
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"the worker stays in its group: {type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
