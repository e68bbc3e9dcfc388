"""Writes the measured rates of `starling plan-capacity` from benchmarks/results: `make capacity`."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
RESULTS: Final = ROOT / "benchmarks/results"
LOAD: Final = ROOT / "benchmarks/whole/load.py"
RATES: Final = ROOT / "apps/cli/starling_cli/capacity/rates.json"

SELECTED: Final[Mapping[str, tuple[str, str]]] = {
    "platform": ("platform.json", "/20-segments-1-switches"),
    "history/stored": ("history.json", "/stored/cpu_micros"),
    "history/not-stored": ("history.json", "/not-stored/cpu_micros"),
    "curve/crowded": ("stream.json", "/crowded_curve/cpu_micros_an_event"),
    "curve/every-kind": ("stream.json", "/curve/cpu_micros_an_event"),
    "state_bytes": ("segments_mix.json", "/segments/*/state_bytes_median"),
    "worker/users": ("stream.json", "/state/*/users"),
    "worker/resident_mb": ("stream.json", "/state/*/memory/resident_mb_with_all_users"),
    "worker/soak_resident_mb": ("stream.json", "/state/*/soak/resident_mb_max"),
    "worker/events_per_second": ("segmenter.json", "/segmenter/events_per_second"),
    "worker/events_per_cpu_second": ("segmenter.json", "/segmenter/events_per_cpu_second"),
    "ingest/item_bytes": ("ingest.json", "/setting/item_bytes"),
    "ingest/request_micros": ("ingest.json", "/runs/*/1024/acknowledged/cpu_us_per_request"),
    "api/resident_mb": ("list_upload.json", "/api_resident_mb_afterwards"),
    "traits/read": ("spark_profiles.json", "/read_and_decode/fields_needed/cpu_us_an_event"),
    "traits/definitions": ("spark_profiles.json", "/definitions/*/cpu_us_an_event"),
    "traits/cores": ("spark_profiles.json", "/cores"),
    "spark/memory_mb": ("backfill.json", "/bulk/*/most_memory_mb"),
}
"""Name of a rate or of a group -> result file and JSON pointer. `*` is every member; a group is divided into its numbers."""

_LEFT_OUT: Final = "platform/threads/"
"""The processor time by thread explains that by part, and enters no plan."""
_BATCH: Final = re.compile(r"^BATCH: Final = (\d+)$", re.MULTILINE)


def rates() -> dict[str, dict[str, Any]]:
    """Return name -> `value` and `source`. Raises: ValueError that names a pointer without a number."""
    found: dict[str, dict[str, Any]] = {}
    for name, (file, pointer) in SELECTED.items():
        selected = list(_selected(json.loads((RESULTS / file).read_text()), pointer[1:].split("/"), "", ""))
        if not selected:
            raise ValueError(f"benchmarks/results/{file} has no number at {pointer}: correct it in tools/capacity_rates.py")
        found |= {f"{name}{suffix}": {"value": value, "source": f"{file}{path}"} for suffix, path, value in selected}
    found = {name: rate for name, rate in found.items() if not name.startswith(_LEFT_OUT)}
    found["platform/items_per_request"] = _constant(LOAD, _BATCH, "BATCH")
    return found


def _constant(file: Path, pattern: re.Pattern[str], name: str) -> dict[str, Any]:
    """Return the number that a pattern finds in a file that is no result. Raises: ValueError."""
    place = file.relative_to(ROOT)
    found = pattern.search(file.read_text())
    if found is None:
        raise ValueError(f"{place} has no {name}: correct its pattern in tools/capacity_rates.py")
    return {"value": int(found[1]), "source": f"{place} {name}"}


def _selected(node: Any, pointer: list[str], suffix: str, path: str) -> Iterator[tuple[str, str, float]]:
    """Yield (suffix of the name, JSON pointer, number). The suffix has what `*` and a group stand for."""
    if not pointer:
        match node:
            case dict():
                for key, member in node.items():
                    yield from _selected(member, [], f"{suffix}/{key}", f"{path}/{key}")
            case int() | float():
                yield suffix, path, node
        return
    first, *rest = pointer
    members = list(enumerate(node)) if isinstance(node, list) else list(node.items()) if isinstance(node, dict) else []
    for key, member in members:
        if first == "*":
            yield from _selected(member, rest, f"{suffix}/{key}", f"{path}/{key}")
        elif first == str(key):
            yield from _selected(member, rest, suffix, f"{path}/{key}")


def text() -> str:
    """Return the content of the file, one rate a line."""
    lines = [f"  {json.dumps(name)}: {json.dumps(rate)}" for name, rate in rates().items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> int:
    """Write the file."""
    RATES.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
