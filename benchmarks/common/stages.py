"""Pure core: the stages of each job in Spark's event log: their durations, and how much of them ran in parallel."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Stage(NamedTuple):
    """`side_by_side`: seconds of all tasks by seconds of the stage; `longest_task_seconds` bounds what more executors can bring."""

    name: str
    tasks: int
    executors: int
    seconds: float
    task_seconds: float
    longest_task_seconds: float
    side_by_side: float


class Job(NamedTuple):
    """All of one group. `seconds` from the first job's start to the last one's end; what no stage took is the driver's."""

    group: str
    seconds: float
    driver_seconds: float
    stages: Sequence[Stage]


def jobs(directory: Path) -> list[Job]:
    """By group, in the order in which they came."""
    log = _read(directory)
    groups: dict[str, list[int]] = defaultdict(list)
    for event in log["SparkListenerJobStart"]:
        groups[event["Properties"]["spark.jobGroup.id"]].append(event["Job ID"])
    return [_job(group, ids, log) for group, ids in groups.items()]


def _job(group: str, ids: list[int], log: dict[str, list[dict[str, Any]]]) -> Job:
    started = {event["Job ID"]: event for event in log["SparkListenerJobStart"] if event["Job ID"] in ids}
    ended = {event["Job ID"]: event["Completion Time"] for event in log["SparkListenerJobEnd"] if event["Job ID"] in ids}
    numbers = {number for event in started.values() for number in event["Stage IDs"]}
    seconds = (max(ended.values()) - min(event["Submission Time"] for event in started.values())) / 1000
    found = list(_stages(numbers, log))
    return Job(group, seconds, round(max(0.0, seconds - sum(stage.seconds for stage in found)), 2), found)


def _stages(numbers: set[int], log: dict[str, list[dict[str, Any]]]) -> Iterator[Stage]:
    for event in log["SparkListenerStageCompleted"]:
        info = event["Stage Info"]
        if info["Stage ID"] not in numbers:
            continue
        tasks = [one["Task Info"] for one in log["SparkListenerTaskEnd"] if one["Stage ID"] == info["Stage ID"]]
        lasted = [(one["Finish Time"] - one["Launch Time"]) / 1000 for one in tasks]
        seconds = (info["Completion Time"] - info["Submission Time"]) / 1000
        yield Stage(
            name=info["Stage Name"].partition(" at ")[0],
            tasks=len(tasks),
            executors=len({one["Executor ID"] for one in tasks}),
            seconds=round(seconds, 2),
            task_seconds=round(sum(lasted), 2),
            longest_task_seconds=round(max(lasted, default=0.0), 2),
            side_by_side=round(sum(lasted) / seconds, 2) if seconds else 0.0,
        )


def _read(directory: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    # One application a directory; its log is cut into files where it is long.
    for path in sorted(path for path in directory.rglob("*") if path.is_file() and not path.name.startswith((".", "appstatus"))):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            found[event["Event"]].append(event)
    return found
