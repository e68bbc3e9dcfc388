"""How long partitions pause when a worker joins a running group, and when it leaves: `python -m tests.faults.scaling`.

The pause of a partition is the longest time from the receipt of an event to the decision that it caused, around the change;
beside it stands the same figure before the change, when nothing happened. A partition that stays with its worker is not restored.
"""

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from starling_common.kafka.topics import MEMBERSHIP
from starling_common.wire import Registry
from tests.faults.log import read_all
from tests.faults.run import PARTS
from tests.faults.workers import Slot
from tests.faults.world import Scale, World, world

_CALM_SECONDS = 12.0


class Window(NamedTuple):
    """A stretch of the wall clock, in milliseconds since the epoch."""

    name: str
    begin_ms: float
    end_ms: float
    before: Mapping[int, str]
    after: Mapping[int, str]
    restored: Mapping[int, int]
    """Partition -> how often it was restored."""


def measured(made: World) -> list[dict[str, Any]]:
    """One row for each change of the group."""
    calm = _window(made, "nothing happens", lambda: None)
    newcomer = made.workers.added("w2")
    joins = _window(made, "a worker joins", newcomer.wait_ready)
    leaves = _window(made, "it leaves the group", lambda: _leave(newcomer, leaves_group=True))
    made.workers.added("w2").wait_ready()
    time.sleep(_CALM_SECONDS)  # sleep: the measured window
    stops = _window(made, "it stops as for a restart, and does not come back", lambda: _leave(newcomer, leaves_group=False))
    killed = made.workers.slots["w1"]
    dies = _window(made, "another is killed and comes back", killed.kill)
    made.load.stop()
    made.settle()
    delays = _delays(made)
    return [_row(window, delays) for window in (calm, joins, leaves, stops, dies)]


def _window(made: World, name: str, change: Callable[[], None]) -> Window:
    before, restored, began = _owners(made), _restores(made), time.time() * 1000
    change()
    time.sleep(_CALM_SECONDS)  # sleep: the measured window
    return Window(name, began, time.time() * 1000, before, _owners(made), _restores(made) - restored)


def _leave(slot: Slot, *, leaves_group: bool) -> None:
    slot.wanted = False
    slot.stop(leaves_group=leaves_group)


def _owners(made: World) -> dict[int, str]:
    """Return partition -> the worker that has it, from the logs of the workers."""
    owners: dict[int, str] = {}
    for name, slot in made.workers.slots.items():
        if slot.worker is not None:
            assigned = [json.loads(line) for line in slot.output().splitlines() if '"assigned"' in line]
            owners |= dict.fromkeys(assigned[-1]["partitions"] if assigned else (), name)
    return owners


def _restores(made: World) -> Counter[int]:
    """Return partition -> the restores so far, from the logs of all processes."""
    logs = [log for slot in made.workers.slots.values() for log in (slot.directory / "logs").glob(f"{slot.name}-*.log")]
    lines = [line for log in logs for line in log.read_text(errors="replace").splitlines()]
    return Counter(json.loads(line)["partition"] for line in lines if '"task_running"' in line)


def _delays(made: World) -> dict[int, list[tuple[float, float]]]:
    """Partition -> (decided at, milliseconds since the receipt) of every change that an event caused."""
    codec = Registry(made.stack.registry_url).codec(MEMBERSHIP, "SegmentMembershipChanged")
    found: dict[int, list[tuple[float, float]]] = {}
    for number, records in read_all(made.stack.brokers, [MEMBERSHIP])[MEMBERSHIP].items():
        decoded = (codec.decode(logged.value) for logged in records)
        found[number] = [
            (record["decided_at"], record["decided_at"] - record["received_at"] / 1000)
            for record in decoded
            if record["cause"]["kind"] == "EVENT"
        ]
    return found


def _row(window: Window, delays: Mapping[int, list[tuple[float, float]]]) -> dict[str, Any]:
    longest = {
        number: max((delay for at, delay in samples if window.begin_ms <= at <= window.end_ms), default=0.0)
        for number, samples in delays.items()
    }
    moved = [number for number in longest if window.before.get(number) != window.after.get(number)]
    stayed = [number for number in longest if number not in moved]
    return {
        "change": window.name,
        "moved": moved,
        "pause_of_moved_ms": _spread([longest[number] for number in moved]),
        "pause_of_untouched_ms": _spread([longest[number] for number in stayed]),
        "restores_of_untouched": sum(window.restored.get(number, 0) for number in stayed),
    }


def _spread(figures: list[float]) -> dict[str, int] | None:
    return {"median": round(median(figures)), "most": round(max(figures))} if figures else None


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="starling-scaling-") as temporary:
        with world(Path(temporary), 1, Scale(workers=2, rate=600, users=300), PARTS) as made:
            time.sleep(8)  # sleep: load before the first window
            rows = measured(made)
        for row in rows:
            sys.stdout.write(json.dumps(row) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
