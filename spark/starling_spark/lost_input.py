"""Edge: continues a job whose checkpoint does not fit: `python -m starling_spark.lost_input STAGE resume|accept-loss`."""

import argparse
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException
from pydantic_settings import BaseSettings
from pyspark.sql import SparkSession

from starling_common.kafka.clients import consumer_config, offsets
from starling_common.kafka.topics import load_catalogue
from starling_common.settings import FROM_ENVIRONMENT, Http, Kafka
from starling_spark.directories import Directory, directory_at
from starling_spark.kafka.checkpoints import Checkpoint, checkpoints
from starling_spark.kafka.groups import GroupOffsets
from starling_spark.session.running import slowest
from starling_spark.session.settings import CheckpointDir, SparkSettings
from starling_spark.session.spark import open_session

STAGES: Final = ("profiles", "lake", "views")
_SECONDS: Final = 30.0

Place = tuple[str, int]
Span = tuple[int, int]


class CannotMove(Exception):
    """Nothing was changed; the message contains the cure."""


class LostInputSettings(BaseSettings):
    """The settings of the commands: those of the job."""

    model_config = FROM_ENVIRONMENT

    kafka: Kafka
    http: Http
    checkpoint_dir: CheckpointDir


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    words = argparse.ArgumentParser(prog="lost_input", description="Continue a Spark job that refuses its offsets.")
    words.add_argument("stage", choices=STAGES)
    words.add_argument("command", choices=("resume", "accept-loss"))
    given = words.parse_args(arguments)
    settings = LostInputSettings()
    try:
        moved = continued(settings, given.stage, accepts_loss=given.command == "accept-loss")
    except (CannotMove, KafkaException) as cause:
        sys.stderr.write(f"{cause}\n")
        return 1
    for line in moved:
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"{len(moved)} offset{'' if len(moved) == 1 else 's'} changed: start the job\n")
    return 0


def continued(settings: LostInputSettings, stage: str, *, accepts_loss: bool) -> list[str]:
    """Let the job continue, and commit its offsets to its group. Return a line for each offset that changed.

    Raises: CannotMove, KafkaException.
    """
    if _responds(settings.http):
        raise CannotMove(f"{stage} runs: stop it, and run the command again")
    with _opened(settings.checkpoint_dir) as root:
        return _moved(settings, root, stage, accepts_loss=accepts_loss)


@contextmanager
def _opened(location: str) -> Iterator[Directory]:
    """Yield the directory of all checkpoints. Another file system than that of this machine needs a session of Spark."""
    opened: list[SparkSession] = []

    def session() -> SparkSession:
        if not opened:
            settings = SparkSettings().model_copy(update={"spark_master": "local[1]"})
            opened.append(open_session("lost-input", settings))
        return opened[0]

    try:
        yield directory_at(location, session)
    finally:
        for one in opened:
            one.stop()


def _moved(settings: LostInputSettings, root: Directory, stage: str, *, accepts_loss: bool) -> list[str]:
    found = checkpoints(root, stage)
    if not found:
        raise CannotMove(
            f"{stage} has no checkpoint below {settings.checkpoint_dir}: start it, and it reads the records that exist"
        )
    spans = _spans(settings.kafka.brokers, {place for one in found for place in one.offsets()})
    moved: dict[str, None] = {}
    for one in found:
        moved |= _moves(one, spans, stage, accepts_loss=accepts_loss)
    if accepts_loss:
        for one in found:
            one.move(lambda place, offset: chosen(offset, spans.get(place, (0, offset))))
    _commit(settings, stage, [one.offsets() for one in found if one.directory.exists()])
    return list(moved)


def chosen(offset: int, span: Span) -> int:
    """Return the offset at which a job continues without lost records: the start of the topic if the offset lies outside it."""
    start, end = span
    return offset if start <= offset <= end else start


def _moves(checkpoint: Checkpoint, spans: Mapping[Place, Span], stage: str, *, accepts_loss: bool) -> dict[str, None]:
    found = {place: (offset, chosen(offset, spans[place])) for place, offset in checkpoint.offsets().items()}
    lines = {f"{topic} {number}: {old} -> {new}": None for (topic, number), (old, new) in sorted(found.items()) if old != new}
    if not accepts_loss and lines:
        raise CannotMove(
            f"{checkpoint.directory.name} cannot resume: records expired, or a topic was created again ({'; '.join(lines)}): "
            f"use `starling stage accept-loss {stage}`"
        )
    return lines


def _spans(brokers: str, places: set[Place]) -> dict[Place, Span]:
    if not places:
        return {}
    with closing(Consumer(consumer_config(brokers, "starling-lost-input", **{"isolation.level": "read_uncommitted"}))) as consumer:
        starts, ends = (offsets(consumer, sorted(places), side, _SECONDS) for side in (OFFSET_BEGINNING, OFFSET_END))
    return {place: (starts[place], ends[place]) for place in places}


def _commit(settings: LostInputSettings, stage: str, ends: Sequence[Mapping[Place, int]]) -> None:
    """Commit the offsets of the slowest query; the metadata of the former ones stays."""
    group = os.environ.get(f"STARLING_{stage.upper()}_GROUP") or next(
        one.group for one in load_catalogue().stages if one.name == stage
    )
    reached = slowest(ends, len(ends)) if ends else {}
    with closing(GroupOffsets(settings.kafka.brokers, group)) as own:
        notes = own.load(sorted({topic for topic, _ in reached}))
        own.commit(reached, notes)


def _responds(http: Http) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((http.host, http.port)) == 0


if __name__ == "__main__":
    sys.exit(main())
