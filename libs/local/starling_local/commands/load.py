"""Edge: `import` and `catalog load`."""

import csv
import hashlib
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import httpx
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from starling_local.catalog import load, products
from starling_local.commands.common import DataDir, instance_at, running_options, say
from starling_local.errors import FAILED, NotPossible
from starling_local.history import header_faults, item_of_json, item_of_row
from starling_local.importer import Importer, Parse, Reached, batches, load_progress, save_progress
from starling_local.stack.jvm_registry import registry_url
from starling_local.stack.services import WORKSPACE

catalog_app = typer.Typer(no_args_is_help=True, help="Master data.")

File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True)]


def import_file(
    file: File,
    form: Annotated[Literal["segment-jsonl", "csv"], typer.Option("--format", help="segment-jsonl: one tracking item a line.")],
    data_dir: DataDir = None,
    again: Annotated[bool, typer.Option("--again", help="From the start, even if it was imported before.")] = False,
) -> None:
    """A history file through the ingest API; the same command goes on where an earlier one stopped.

    CSV columns are the fields of an item with dots for what is inside: userId, event, timestamp, properties.revenue.
    """
    instance = instance_at(data_dir)
    options = running_options(instance)
    record = instance.data_dir / "imports" / f"{hashlib.sha256(str(file.absolute()).encode()).hexdigest()[:16]}.progress"
    if again:
        record.unlink(missing_ok=True)
    reached = Reached(load_progress(record, file))
    if reached.progress.offset_bytes:
        say(f"going on at byte {reached.progress.offset_bytes:,}: {reached.progress.accepted:,} lines are in already")
    with httpx.Client(timeout=60.0) as client:
        _send_all(file, form, Importer(f"http://{options.ports.address('ingest')}", client), reached, record)
    for fault in reached.faults:
        say(f"  refused: {fault}")
    say(f"accepted {reached.progress.accepted:,}, refused {reached.progress.refused:,}")
    if reached.progress.refused:
        raise typer.Exit(FAILED)


@catalog_app.command("load")
def load_catalog(file: File, data_dir: DataDir = None) -> None:
    """Products from a .csv or .jsonl file with product_id, category, price, brand, name."""
    ports = running_options(instance_at(data_dir)).ports
    count = load(ports.address("kafka"), registry_url(ports), WORKSPACE, products(file))
    say(f"loaded {count:,} products")


def _send_all(file: Path, form: str, importer: Importer, reached: Reached, record: Path) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with file.open("rb") as source, Progress(*columns, console=Console(stderr=True)) as bar:
        parse = _parser(form, source.readline())
        # A CSV's first line is its header; otherwise the file starts with an item.
        source.seek(reached.progress.offset_bytes or (source.tell() if form == "csv" else 0))
        task = bar.add_task(file.name, total=file.stat().st_size, completed=source.tell())
        for batch in batches(source, parse):
            importer.send(batch, reached)
            save_progress(record, file, reached.progress)
            bar.update(task, completed=batch.end_bytes)


def _parser(form: str, first_line: bytes) -> Parse:
    if form == "segment-jsonl":
        return item_of_json
    header = next(csv.reader([first_line.decode("utf-8-sig", errors="replace")]), [])
    if faults := header_faults(header):
        raise NotPossible(f"the header: {'; '.join(faults)}")
    return partial(item_of_row, header)
