"""Lists of a million ids: uploaded as CSV, replaced as JSON, followed into a segment: `python benchmarks/list_upload.py --write`.

API, projector and segmenter run as processes of their own, on a real broker, registry and database.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
from common import segmenting
from common.bench import Progress, Watched, keep, stack

from starling_common.kafka.topics import LIST_MEMBERSHIP
from starling_common.testing import eventually, running

_MEMBERS: Final = "/v1/lists/fair/members"
_PATIENCE_SECONDS: Final = 1_200


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true", help="keep the figures in benchmarks/results")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="starling-lists-") as directory:
        found = measured(Path(directory), asked.ids)
    print(json.dumps(found, indent=2))
    if asked.write:
        keep("list_upload", found)
    return 0


def measured(directory: Path, ids: int) -> dict[str, Any]:
    """Seconds of each request, what the API's process held, and how long the segmenter needed for all of it."""
    with stack(directory / "stack", cassandra=True) as made:
        segmenting.define(made, {"on-the-list": {"list": "fair"}})
        environment = {**made.environment(), "STARLING_TOKENS": "token=marketer:default"}
        with (
            running("starling_projector", environment, directory / "projector.log"),
            running("starling_api", environment, directory / "api.log") as service,
        ):
            with httpx.Client(
                base_url=service.url, headers={"Authorization": "Bearer token"}, timeout=_PATIENCE_SECONDS, trust_env=False
            ) as api:
                api.put("/v1/lists/fair", json={"name": "Fair"}).raise_for_status()
                eventually(lambda: api.get("/v1/lists/fair").status_code == 200)
                figures = _uploads(api, ids)
            held = round(psutil.Process(service.process.pid).memory_info().rss / 1e6)
        worker, progress = segmenting.start(made, directory, "wall"), Progress(made.brokers, segmenting.GROUP, LIST_MEMBERSHIP)
        try:
            followed = _followed(worker, progress, 2 * ids + ids // 2)
        finally:
            worker.stop()
            progress.close()
    return {
        "ids": ids,
        **figures,
        "api_resident_mb_afterwards": held,
        "segmenter_seconds_for_all_records": followed,
        "load_average_5m": round(os.getloadavg()[1], 1),
    }


def _uploads(api: httpx.Client, ids: int) -> dict[str, Any]:
    def sent(name: str, first: int, body: Callable[[Sequence[str]], bytes], kind: str) -> float:
        users = [f"user-{number:07}" for number in range(first, first + ids)]
        began = time.monotonic()
        answer = api.put(_MEMBERS, content=body(users), headers={"Content-Type": kind})
        answer.raise_for_status()
        assert answer.json()["users"] == ids, name
        return round(time.monotonic() - began, 1)

    return {
        "csv_seconds": sent("csv", 0, lambda users: "\n".join(users).encode(), "text/csv"),
        "json_seconds_with_half_of_them_new": sent(
            "json", ids // 2, lambda users: json.dumps({"users": users}).encode(), "application/json"
        ),
    }


def _followed(worker: Watched, progress: Progress, records: int) -> float:
    """Until the segmenter has taken all records of the list: two uploads, and the half of the first that was taken off."""
    began = time.monotonic()
    progress.wait(records, worker, _PATIENCE_SECONDS)
    return round(time.monotonic() - began, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
