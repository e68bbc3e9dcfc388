"""The edge under load: one worker process, a broker and a registry of its own, `wrk` as the clients.

    python benchmarks/ingest.py [--seconds 5] [--rounds 3]

Two figures count: single items acknowledged by the broker against a handler of the same server that answers at once, and
items a second in batches of 100. The two handlers take turns in every round, so that a busy machine slows both.
Needs `wrk` (apt-get install wrk). Writes `benchmarks/results/ingest.json`.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import uvloop
from confluent_kafka.admin import AdminClient
from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server

from starling_common.deploy import create_topics, register_schemas
from starling_common.kafka.topics import load_catalogue
from starling_common.wire import Registry
from starling_local.testing import embedded

RESULTS = Path(__file__).parent / "results" / "ingest.json"
CONNECTIONS = (256, 1024)
"""Every client waits for its answer, and an answer waits for the broker: with few of them the edge waits for clients."""
BATCH_CONNECTIONS = 16
BATCH_ITEMS = 100
NOOP_PORT, EDGE_PORT = 18_871, 18_872

SINGLE_LUA = """
wrk.method = "POST"
wrk.headers["X-Write-Key"] = "key"
local number = 0
request = function()
  number = number + 1
  return wrk.format(nil, nil, nil, string.format(%s, number, number % 5000))
end
"""

BATCH_LUA = """
wrk.method = "POST"
wrk.headers["X-Write-Key"] = "key"
local bodies = {}
for batch = 1, 50 do
  local items = {}
  for item = 1, %d do items[item] = string.format(%s, batch * 1000 + item, (batch * 97 + item) % 5000) end
  bodies[batch] = '{"sentAt":"2026-01-01T00:00:01.000Z","batch":[' .. table.concat(items, ",") .. ']}'
end
local number = 0
request = function()
  number = number + 1
  return wrk.format(nil, nil, nil, bodies[number % 50 + 1])
end
"""

ITEM = (
    '{"type":"track","event":"Order Completed","messageId":"0b6d8c2e-6d5b-4f4f-9f3d-%012d","userId":"user-%d","anonymousId":null,'
    '"timestamp":"2026-01-01T00:00:00.000+00:00","properties":{"revenue":29.9,"currency":"EUR","product_id":"p-1"},'
    '"context":{"library":{"name":"analytics-python","version":"2.4.0"}},"integrations":{}}'
)


class Noop:
    """Reads the body and answers at once."""

    async def __rsgi__(self, _scope: Any, exchange: Any) -> None:
        await exchange()
        exchange.response_bytes(200, [("content-type", "application/json")], b'{"success":true}')


async def serve_noop() -> None:
    server = Server(
        Noop(),
        address="127.0.0.1",
        port=NOOP_PORT,
        interface=Interfaces.RSGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=2048,
        backpressure=2048,
        log_enabled=False,
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
    await server.serve()


@contextmanager
def process(arguments: list[str], environment: dict[str, str], url: str) -> Iterator[psutil.Process]:
    started = subprocess.Popen([sys.executable, *arguments], env=os.environ | environment, stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                if httpx.get(url, timeout=5).status_code == 200:
                    break
            except httpx.TransportError:
                pass
            if started.poll() is not None:
                raise SystemExit(f"{arguments} ended with {started.returncode}")
            time.sleep(0.1)
        yield psutil.Process(started.pid)
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(60)


def load(script: Path, port: int, path: str, connections: int, seconds: int) -> dict[str, float]:
    """One run of wrk: requests a second, latency in milliseconds. Raises: SystemExit if any answer was no success."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), f"http://127.0.0.1:{port}{path}"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        raise SystemExit(f"not every request was answered well:\n{text}")
    return {
        "per_second": _number(r"Requests/sec:\s+([\d.]+)()", text),
        "p50_ms": _number(r"50%\s+([\d.]+)(us|ms|s)\b", text),
        "p99_ms": _number(r"99%\s+([\d.]+)(us|ms|s)\b", text),
    }


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    if found is None:
        raise SystemExit(f"unknown output of wrk:\n{text}")
    return float(found[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0, "": 1.0}[found[2]]


def measure(edge: psutil.Process, directory: Path, seconds: int, rounds: int) -> dict[str, Any]:
    single, batch = directory / "single.lua", directory / "batch.lua"
    quoted = "[[" + ITEM + "]]"
    single.write_text(SINGLE_LUA.replace("%s", quoted, 1))
    batch.write_text(BATCH_LUA.replace("%d", str(BATCH_ITEMS), 1).replace("%s", quoted, 1))
    for _ in range(3):
        load(single, EDGE_PORT, "/v1/track", CONNECTIONS[-1], 4)  # the broker's JVM is not warm before
    runs: list[dict[str, Any]] = []
    for _ in range(rounds):
        found: dict[str, Any] = {str(connections): _singles(edge, single, connections, seconds) for connections in CONNECTIONS}
        batches = load(batch, EDGE_PORT, "/v1/batch", BATCH_CONNECTIONS, seconds)
        found |= {"batches": batches | {"items_per_second": batches["per_second"] * BATCH_ITEMS}}
        runs.append(found | {"load_average": os.getloadavg()[0]})
        print(json.dumps(runs[-1]), flush=True)
    median: dict[str, Any] = {
        str(connections): {
            "answers_at_once_per_second": statistics.median(run[str(connections)]["answers_at_once"]["per_second"] for run in runs),
            "acknowledged_per_second": statistics.median(run[str(connections)]["acknowledged"]["per_second"] for run in runs),
            "ratio": statistics.median(run[str(connections)]["ratio"] for run in runs),
        }
        for connections in CONNECTIONS
    }
    median["batch_items_per_second"] = statistics.median(run["batches"]["items_per_second"] for run in runs)
    return {"median": median, "runs": runs}


def _singles(edge: psutil.Process, script: Path, connections: int, seconds: int) -> dict[str, Any]:
    noop = load(script, NOOP_PORT, "/v1/track", connections, seconds)
    before = sum(edge.cpu_times()[:2])
    acknowledged = load(script, EDGE_PORT, "/v1/track", connections, seconds)
    used = sum(edge.cpu_times()[:2]) - before
    return {
        "answers_at_once": noop,
        "acknowledged": acknowledged | {"cpu_us_per_request": used / (acknowledged["per_second"] * seconds) * 1e6},
        "ratio": acknowledged["per_second"] / noop["per_second"],
    }


def main() -> int:
    if sys.argv[1:] == ["noop"]:
        uvloop.run(serve_noop())
        return 0
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is missing: apt-get install wrk")
    with tempfile.TemporaryDirectory() as name, embedded({"kafka", "registry"}, Path(name) / "stack") as stack:
        topics = [topic for topic in load_catalogue().topics.values() if topic.name.startswith("ingest.")]
        create_topics(AdminClient({"bootstrap.servers": stack.kafka}), topics, 1)
        register_schemas(Registry(stack.registry_url), topics)
        settings = {
            "STARLING_KAFKA__BROKERS": stack.kafka,
            "STARLING_REGISTRY__URL": stack.registry_url,
            "STARLING_HTTP__PORT": str(EDGE_PORT),
            "STARLING_INSTANCE_ID": "edge-0",
            "STARLING_WRITE_KEYS": "key=bench",
            "STARLING_RATE_ITEMS_PER_SECOND": "10000000",
            "STARLING_RATE_BURST_ITEMS": "10000000",
        }
        noop = process([__file__, "noop"], {}, f"http://127.0.0.1:{NOOP_PORT}/")
        edge = process(["-m", "starling_ingest"], settings, f"http://127.0.0.1:{EDGE_PORT}/readyz")
        with noop, edge as running:
            found = measure(running, Path(name), chosen.seconds, chosen.rounds)
    setting = {
        "connections": CONNECTIONS,
        "batch_connections": BATCH_CONNECTIONS,
        "batch_items": BATCH_ITEMS,
        "item_bytes": len(ITEM),
        "processors": os.cpu_count(),
        "seconds": chosen.seconds,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    RESULTS.write_text(json.dumps({"setting": setting, **found}, indent=1) + "\n")
    print(json.dumps(found["median"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
