"""Adapter for tests: a real OpenSearch node of a test's own, for the duration of a block. It has no logins and no TLS."""

import random
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from starling_local.errors import NotPossible
from starling_local.java import find_java
from starling_local.ports import HOST
from starling_local.preflight import is_free
from starling_local.runtime import BUNDLES, fetch
from starling_local.runtime.fetching import default_runtime_dir
from starling_local.stack.supervision.process import end_with_parent, wait_or_kill

_MAIN: Final = "org.codelibs.opensearch.runner.OpenSearchRunner"
_PORTS: Final = range(9_201, 9_300)
"""The runner uses no others."""
_OPTIONS: Final = ("-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_ATTEMPTS: Final = 5
_START_SECONDS: Final = 180.0
_STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.2


class OpenSearchError(NotPossible):
    """The node cannot be started. The text states the reason."""


@contextmanager
def opensearch() -> Iterator[str]:
    """Start a node on a free port and yield its URL; stop it and delete its data at the end.

    Raises: OpenSearchError, FetchError.
    """
    jars = fetch(BUNDLES["opensearch"], default_runtime_dir())
    with tempfile.TemporaryDirectory(prefix="starling-opensearch-") as scratch:
        node, url = _started(jars, Path(scratch))
        try:
            yield url
        finally:
            node.terminate()
            wait_or_kill(node, _STOP_SECONDS)


def _started(jars: Path, scratch: Path) -> tuple[subprocess.Popen[bytes], str]:
    log = scratch / "log"
    for attempt in range(_ATTEMPTS):
        port = next((one for one in random.sample(_PORTS, len(_PORTS)) if is_free(one)), None)
        if port is None:
            break
        # The node listens at the port after the base.
        words = ["-basePath", str(scratch / f"node-{attempt}"), "-clusterName", f"tests-{port}", "-numOfNode", "1", "-useLogger"]
        with log.open("wb") as out:
            node = subprocess.Popen(
                [find_java().command, *_OPTIONS, "-cp", f"{jars}/*", _MAIN, *words, "-baseHttpPort", str(port - 1)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=scratch,
                process_group=0,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - as for the parts of the stack
            )
        url, deadline = f"http://{HOST}:{port}", time.monotonic() + _START_SECONDS
        while node.poll() is None and time.monotonic() < deadline:
            if _is_ready(url):
                return node, url
            time.sleep(_POLL_SECONDS)
        # Another process may have taken the port meanwhile.
        node.kill()
        node.wait()
    raise OpenSearchError(f"OpenSearch did not start: {log.read_text()[-2000:] if log.exists() else 'no port is free'}")


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/_cluster/health?wait_for_status=yellow&timeout=1s", timeout=5) as answer:  # noqa: S310 - ours
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
