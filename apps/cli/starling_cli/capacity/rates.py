"""Adapter: the measured rates, which `make capacity` copies from benchmarks/results into `rates.json`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parent / "rates.json"


@dataclass(frozen=True, slots=True)
class Rates:
    """Measured numbers by name, each with the result file and JSON pointer that it comes from."""

    entries: Mapping[str, Mapping[str, Any]]

    def __getitem__(self, name: str) -> float:
        """Return a number. Raises: KeyError."""
        return float(self.entries[name]["value"])

    def source(self, name: str) -> str:
        """Return the file and the JSON pointer of a number. Raises: KeyError."""
        return str(self.entries[name]["source"])

    def group(self, prefix: str) -> Mapping[str, float]:
        """Return the numbers of a group by the rest of their names."""
        start = f"{prefix}/"
        return {name.removeprefix(start): self[name] for name in self.entries if name.startswith(start)}

    def points(self, prefix: str) -> Sequence[tuple[float, float]]:
        """Return a group whose names are numbers as (x, y), ascending by x."""
        return sorted((float(x), y) for x, y in self.group(prefix).items())


def load_rates() -> Rates:
    """Return the rates of this release."""
    return Rates(json.loads(_FILE.read_text()))
