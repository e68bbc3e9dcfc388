"""Where and when a run took place: what a table of its results has to name."""

import os
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Provenance:
    """`date`: of the start, in UTC. `commit`: with a plus sign if files differ from it."""

    seed: int
    date: str
    commit: str
    machine: str

    @classmethod
    def of(cls, seed: int) -> "Provenance":
        """Return that of a run which begins now, here."""
        commit = _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "--porcelain", "-uno") else "")
        return cls(seed, datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), commit, machine())

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Provenance":
        """Return that of a stored run."""
        return cls(**record)

    def __str__(self) -> str:
        return f"{self.date}, seed {self.seed}, commit {self.commit}, {self.machine}"


def machine() -> str:
    """Return the number of cores and the memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GB"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or ("" if done.returncode == 0 else "unknown")
