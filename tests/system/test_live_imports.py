"""A file of events on the whole platform: `starling import run` makes members of a segment, and `rejects` lists the other rows."""

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.system.conftest import Platform
from tests.system.live import define, members, starling


@pytest.mark.long
def test_imported_events_make_members_and_bad_rows_are_listed(live: Platform, tmp_path: Path) -> None:
    name = f"Order {uuid.uuid4().hex}"
    key = define(live, {"event": name, "measure": {"sum": "revenue"}, "op": "gte", "value": 100})
    rows = ["user,at,total", "ada,2026-01-05T10:00:00Z,60", "ada,2026-01-06T10:00:00Z,40", "grace,2026-01-06T10:00:00Z,99"]
    bad = [",2026-01-07T10:00:00Z,7", "linus,yesterday,500"]
    (tmp_path / "orders.csv").write_text("\n".join([*rows, *bad]) + "\n")
    options = ["--event", name, "--user-column", "user", "--time-column", "at", "--mapping", "total=properties.revenue"]
    command = ["import", "run", str(tmp_path / "orders.csv"), *options, "--wait", "--timeout", "240s"]
    data_dir = ["--data-dir", str(live.instance.data_dir)]
    done = subprocess.run(
        [sys.executable, "-m", "starling_cli", *command, *data_dir], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 1, done.stdout + done.stderr
    identity, summary, *_ = done.stdout.splitlines()
    assert summary == f"{identity} is done, rows read 5, sent 3, rejected 2"
    live.settle()
    assert members(live, key) == {"ada"}
    found = [json.loads(line) for line in starling(live, "import", "rejects", identity, "--json").splitlines()]
    assert [(one["row"], one["column"], one["code"]) for one in found] == [(4, "user", "missing_id"), (5, "at", "bad_value")]
    shown = json.loads(starling(live, "import", "status", identity, "--json"))
    assert (shown["state"], shown["rows_done"], shown["accepted"], shown["rejected"]) == ("done", 5, 3, 2)
