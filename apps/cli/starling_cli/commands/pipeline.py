"""Edge: `topics` and `dlq`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from starling_cli.commands.common import DataDir, instance_at, print_line, print_table, running_options
from starling_cli.dead_letters import DeadLetters, Letter, stages
from starling_cli.settle.broker import Offsetter
from starling_cli.settle.progress import stages_of
from starling_cli.settle.settle import topic_lag
from starling_cli.status import service_of
from starling_common.kafka.topics import load_catalogue
from starling_common.time.instants import format_instant
from starling_local.errors import NotPossible
from starling_local.instance import Instance, Options
from starling_local.stack.launch import running_report
from starling_local.stack.parts.jvm_registry import registry_url

dlq_app = typer.Typer(no_args_is_help=True, help="List, show and replay dead letters (refused records).")

Stage = Annotated[str | None, typer.Option("--stage", help="Only the dead letters of this stage.")]


def topics(data_dir: DataDir = None) -> None:
    """List every topic with its records, its size on disk, and the lag of each consumer group."""
    instance = instance_at(data_dir)
    options = running_options(instance)
    rows = topic_rows(instance, options)
    table = Table("topic", "partitions", "records", "size", "lag of its consumers", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for column in table.columns[1:4]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    print_table(table)


def topic_rows(instance: Instance, options: Options) -> list[tuple[str, str, str, str, str]]:
    """Return one row for each existing topic of the catalogue. Records are retained offsets, including transaction markers."""
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
    """List every dead letter with its origin and the reason of its refusal."""
    table = Table("id", "refused at", "from", "code", "message", "", box=None, pad_edge=False)
    count = 0
    for letter in _letters(data_dir).letters(_checked(stage)):
        record, count = letter.record, count + 1
        mark = "replayed" if letter.replayed else ""
        table.add_row(letter.id, format_instant(record["refused_at"]), _origin(record), record["code"], record["message"], mark)
    if count:
        print_table(table)
    print_line(f"{count} dead letter{'' if count == 1 else 's'}")


@dlq_app.command("show")
def show_letter(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="Id from `starling dlq list`.")], data_dir: DataDir = None
) -> None:
    """Print one dead letter as JSON; bytes that are not UTF-8 are printed in hexadecimal."""
    (letter,) = _letters(data_dir).find([letter_id])
    print_line(json.dumps(letter_document(letter), indent=2, ensure_ascii=False))


@dlq_app.command("replay")
def replay_letters(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids from `starling dlq list`.")] = None,
    data_dir: DataDir = None,
    everything: Annotated[bool, typer.Option("--all", help="Replay every dead letter that was not replayed yet.")] = False,
    stage: Stage = None,
) -> None:
    """Publish refused records to their origin again, byte for byte."""
    if bool(ids) == (everything or stage is not None):
        raise NotPossible("`starling dlq replay` needs the IDs from `starling dlq list`, or --all, or --stage STAGE")
    with _letters(data_dir) as letters:
        chosen = letters.find(ids) if ids else [found for found in letters.letters(_checked(stage)) if not found.replayed]
        for letter in chosen:
            letters.replay(letter)
            print_line(f"{letter.id} replayed to {letter.record['origin_topic']}")
    print_line(f"replayed {len(chosen)}")


def letter_document(letter: Letter) -> dict[str, Any]:
    """Return a dead letter as a JSON document."""
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
    ingest, tracker = (f"http://{ports.address(name)}" for name in ("ingest", "tracker"))
    return DeadLetters(ports.address("kafka"), registry_url(ports), ingest, tracker)


def _checked(stage: str | None) -> str | None:
    if stage is not None and stage not in stages():
        raise NotPossible(f"no stage {stage} has dead letters; the stages are {', '.join(stages())}")
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
    """Return the size of a topic's files on this disk; the client library lacks the broker's call for it."""
    directories = [path for path in logs.glob(f"{topic}-*") if path.name.removeprefix(f"{topic}-").isdigit()]
    return sum(segment.stat().st_blocks * 512 for path in directories for segment in path.iterdir())


def _size_text(size_bytes: int) -> str:
    return f"{size_bytes / 1024:,.0f} KiB" if size_bytes < 10 * 1024**2 else f"{size_bytes / 1024**2:,.0f} MiB"
