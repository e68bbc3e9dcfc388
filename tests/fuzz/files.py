"""Door: files for `starling import` and `starling segments apply`, each by a process of the command line."""

import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from tests.fuzz import hostile
from tests.fuzz.definitions import definition
from tests.fuzz.payloads import items
from tests.fuzz.tally import Account, Defect, Input

COMMAND_SECONDS: Final = 170.0
"""The import gives up after two minutes."""
_COLUMNS: Final = (
    "userId",
    "anonymousId",
    "event",
    "type",
    "timestamp",
    "messageId",
    "properties.revenue",
    "properties.a.b",
    "traits.plan",
    "nonsense",
    "",
    "a..b",
)
_SUMMARY: Final = re.compile(r"accepted ([\d,]+), refused ([\d,]+)")


def jsonl(dice: random.Random) -> bytes:
    """Return lines of items, some of them hostile."""
    lines = []
    for _ in range(dice.choice((0, 1, 3, 30))):
        item = {**dice.choice(items()), "userId": f"fz-file-{dice.randrange(50)}"}
        lines.append(hostile.as_bytes(dice, hostile.mutated(dice, item) if dice.random() < 0.5 else item))
    data = b"\n".join(lines)
    return hostile.broken(dice, data) if dice.random() < 0.3 else data


def rows(dice: random.Random) -> bytes:
    """Return a CSV file with a header, some of its fields hostile."""
    header = [
        dice.choice(_COLUMNS) if dice.random() < 0.1 else name for name in ("userId", "event", "timestamp", "properties.revenue")
    ]
    lines = [",".join(header)]
    for _ in range(dice.choice((0, 1, 3, 30))):
        fields = [f"fz-file-{dice.randrange(50)}", "Order Completed", "2026-01-02T00:00:00Z", "5"]
        if dice.random() < 0.4:
            fields[dice.randrange(4)] = str(dice.choice(hostile.INSTANTS)) if dice.random() < 0.3 else hostile.text(dice)
        lines.append(",".join(f'"{field}"' if dice.random() < 0.5 else field for field in fields))
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    return hostile.broken(dice, data) if dice.random() < 0.3 else data


class Files:
    """The answer of a command is its exit code with a reason; an import counts every line of its file."""

    name = "files of the command line"
    pace = 0.5

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._codes: Counter[int] = Counter()

    def make(self, dice: random.Random) -> Input:
        """Return a command and its file."""
        match dice.randrange(4):
            case 0 | 1:
                return {"command": ["import", "--format", "segment-jsonl"], "file": jsonl(dice)}
            case 2:
                return {"command": ["import", "--format", "csv"], "file": rows(dice)}
        document = definition(dice, f"fz_file_{dice.randrange(20)}")
        data = hostile.as_bytes(dice, [document] if dice.random() < 0.3 else document)
        return {"command": ["segments", "apply"], "file": hostile.broken(dice, data) if dice.random() < 0.3 else data}

    def send(self, given: Input, number: int) -> bool:
        """Run the command on the file."""
        with tempfile.NamedTemporaryFile(suffix=".fuzz") as file:
            file.write(given["file"])
            file.flush()
            command = [sys.executable, "-m", "starling_cli", *given["command"], file.name, "--data-dir", str(self._data_dir)]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=COMMAND_SECONDS)
        self._codes[done.returncode] += 1
        if done.returncode not in {0, 1, 2} or "Traceback" in done.stderr:
            raise Defect(f"{' '.join(given['command'])} ended with {done.returncode}: {done.stderr[-600:]}")
        if done.returncode and not (done.stdout + done.stderr).strip():
            raise Defect(f"{' '.join(given['command'])} ended with {done.returncode} and no reason")
        summary = _SUMMARY.search(done.stdout)
        if summary:
            counted = sum(int(count.replace(",", "")) for count in summary.groups())
            lines = [line for line in given["file"].split(b"\n") if line.strip()]
            expected = len(lines) - ("csv" in given["command"] and bool(given["file"].split(b"\n")[0].strip()))
            if counted != expected:
                raise Defect(f"{counted} of {expected} lines are accounted for: {done.stdout[-300:]}")
        return done.returncode == 0

    def account(self) -> Account:
        """Archive the segments that the files defined."""
        command = [sys.executable, "-m", "starling_cli", "segments", "list", "--data-dir", str(self._data_dir)]
        subprocess.run(command, capture_output=True, check=True, timeout=COMMAND_SECONDS)
        return Account(notes={f"exit code {code}": count for code, count in sorted(self._codes.items())})
