"""Edge: `topics` and `dlq`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from starling_common.instants import format_instant
from starling_common.topics import load_catalogue
from starling_local.commands.common import DataDir, instance_at, running_options, say, show_table
from starling_local.dead_letters import DeadLetters, Letter, stages
from starling_local.errors import NotPossible
from starling_local.instance import Instance, Options
from starling_local.settle.broker import Offsetter
from starling_local.settle.progress import stages_of
from starling_local.settle.settle import topic_lag
from starling_local.stack.jvm_registry import registry_url
from starling_local.stack.launch import running_report
from starling_local.status import service_of

dlq_app = typer.Typer(no_args_is_help=True, help="Records that were refused: what, why, and the way back in.")

Stage = Annotated[str | None, typer.Option("--stage", help="Only the dead letters of this stage.")]


def topics(data_dir: DataDir = None) -> None:
    """What is in the pipeline: every topic, its records and size on disk, and how far each group is."""
    instance = instance_at(data_dir)
    options = running_options(instance)
    rows = topic_rows(instance, options)
    table = Table("topic", "partitions", "records", "size", "lag of its readers", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for column in table.columns[1:4]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    show_table(table)


def topic_rows(instance: Instance, options: Options) -> list[tuple[str, str, str, str, str]]:
    """One row a topic of the catalogue that exists. Records are those still kept, transaction markers included."""
    catalogue = load_catalogue()
    services = [service_of(part.name) for part in running_report(instance).parts]
    readers = stages_of(catalogue.stages, services)
    rows = []
    with Offsetter(options.ports.address("kafka")) as offsets:
        partitions = offsets.partitions(catalogue.topics)
        starts, ends = offsets.starts(partitions), offsets.ends(partitions)
        for name in catalogue.topics:
            own = [part for part in partitions if part[0] == name]
            lags = [f"{stage.name} {topic_lag(offsets, stage, name):,}" for stage in readers if name in stage.inputs]
            records = sum(ends[part] - starts[part] for part in own)
            size = _size_text(_size_bytes(instance.data_dir / "kafka" / "data", name))
            if own:
                rows.append((name, str(len(own)), f"{records:,}", size, ", ".join(lags)))
    return rows


@dlq_app.command("list")
def list_letters(data_dir: DataDir = None, stage: Stage = None) -> None:
    """Every dead letter: where it lies, where it came from, and why it was refused."""
    table = Table("id", "refused at", "from", "code", "message", "", box=None, pad_edge=False)
    count = 0
    for letter in _letters(data_dir).letters(_checked(stage)):
        record, count = letter.record, count + 1
        mark = "replayed" if letter.replayed else ""
        table.add_row(letter.id, format_instant(record["refused_at"]), _origin(record), record["code"], record["message"], mark)
    if count:
        show_table(table)
    say(f"{count} dead letter{'' if count == 1 else 's'}")


@dlq_app.command("show")
def show_letter(letter_id: Annotated[str, typer.Argument(metavar="ID")], data_dir: DataDir = None) -> None:
    """All of one dead letter, as JSON; bytes that are no text are shown in hexadecimal."""
    (letter,) = _letters(data_dir).find([letter_id])
    say(json.dumps(letter_document(letter), indent=2, ensure_ascii=False))


@dlq_app.command("replay")
def replay_letters(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...")] = None,
    data_dir: DataDir = None,
    everything: Annotated[bool, typer.Option("--all", help="Every one that was not replayed yet.")] = False,
    stage: Stage = None,
) -> None:
    """Put refused records back where they came from, byte for byte."""
    if bool(ids) == (everything or stage is not None):
        raise NotPossible("say which: the IDs that `starling dlq list` shows, or --all, or --stage STAGE")
    letters = _letters(data_dir)
    chosen = letters.find(ids) if ids else [found for found in letters.letters(_checked(stage)) if not found.replayed]
    for letter in chosen:
        letters.replay(letter)
        say(f"{letter.id} is back in {letter.record['origin_topic']}")
    say(f"replayed {len(chosen)}")


def letter_document(letter: Letter) -> dict[str, Any]:
    """A dead letter as JSON can hold it."""
    record = letter.record
    return {
        "id": letter.id,
        "replayed": letter.replayed,
        **{name: value for name, value in record.items() if name not in ("key", "value", "headers")},
        "refused_at": format_instant(record["refused_at"]),
        "key": _text(record["key"]),
        "headers": {name: _text(value) for name, value in record["headers"].items()},
        "value": _text(record["value"]),
    }


def _letters(data_dir: Path | None) -> DeadLetters:
    ports = running_options(instance_at(data_dir)).ports
    return DeadLetters(ports.address("kafka"), registry_url(ports), f"http://{ports.address('ingest')}")


def _checked(stage: str | None) -> str | None:
    if stage is not None and stage not in stages():
        raise NotPossible(f"no stage {stage} has dead letters; there are {', '.join(stages())}")
    return stage


def _origin(record: Mapping[str, Any]) -> str:
    where = f":{record['origin_partition']}:{record['origin_offset']}" if record["origin_offset"] >= 0 else ""
    return f"{record['origin_topic']}{where}"


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"hex:{value.hex()}"


def _size_bytes(logs: Path, topic: str) -> int:
    """On this disk; the broker's own answer would need a call that the client library lacks."""
    directories = [path for path in logs.glob(f"{topic}-*") if path.name.removeprefix(f"{topic}-").isdigit()]
    return sum(segment.stat().st_blocks * 512 for path in directories for segment in path.iterdir())


def _size_text(size_bytes: int) -> str:
    return f"{size_bytes / 1024:,.0f} KiB" if size_bytes < 10 * 1024**2 else f"{size_bytes / 1024**2:,.0f} MiB"
