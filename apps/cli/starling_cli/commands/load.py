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

from starling_cli.catalog import load, products
from starling_cli.commands.common import REMOTE, DataDir, Remote, instance_at, print_line, running_options
from starling_cli.history import header_errors, item_of_json, item_of_row
from starling_cli.importer import Importer, ImportResult, Parse, batches, load_progress, save_progress
from starling_local.errors import FAILED, NotPossible
from starling_local.stack.parts.jvm_registry import registry_url
from starling_local.stack.parts.services import WORKSPACE

catalog_app = typer.Typer(no_args_is_help=True, help="Load products into the catalog.")

File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, metavar="FILE", help="Path of the file.")]


def import_file(
    file: File,
    form: Annotated[
        Literal["segment-jsonl", "csv"],
        typer.Option("--format", help="segment-jsonl: one tracking item a line. csv: columns with a header."),
    ],
    data_dir: DataDir = None,
    again: Annotated[bool, typer.Option("--again", help="Import from the start, also if the file was imported before.")] = False,
) -> None:
    """Import a history file through the ingest API. The same command resumes an interrupted import.

    CSV columns are the fields of an item, with dots for nested fields: userId, event, timestamp, properties.revenue.
    """
    if REMOTE.get() not in {None, Remote()}:
        raise NotPossible("a history file is imported into a local instance: for an installation use `starling import run URI`")
    instance = instance_at(data_dir)
    options = running_options(instance)
    record = instance.data_dir / "imports" / f"{hashlib.sha256(str(file.absolute()).encode()).hexdigest()[:16]}.progress"
    if again:
        record.unlink(missing_ok=True)
    result = ImportResult(load_progress(record, file))
    if result.progress.offset_bytes:
        print_line(f"resuming at byte {result.progress.offset_bytes:,}: {result.progress.accepted:,} lines were accepted before")
    with httpx.Client(timeout=60.0) as client:
        _send_all(file, form, Importer(f"http://{options.ports.address('ingest')}", client), result, record)
    for error in result.errors:
        print_line(f"  refused: {error}")
    print_line(f"accepted {result.progress.accepted:,}, refused {result.progress.refused:,}")
    if result.progress.refused:
        raise typer.Exit(FAILED)


@catalog_app.command("load")
def load_catalog(file: File, data_dir: DataDir = None) -> None:
    """Load products from a .csv or .jsonl file with product_id, category, price, brand and name."""
    ports = running_options(instance_at(data_dir)).ports
    count = load(ports.address("kafka"), registry_url(ports), WORKSPACE, products(file))
    print_line(f"loaded {count:,} products")


def _send_all(file: Path, form: str, importer: Importer, result: ImportResult, record: Path) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with file.open("rb") as source, Progress(*columns, console=Console(stderr=True)) as bar:
        parse = _parser(form, source.readline())
        # The first line of a CSV file is its header.
        start = source.tell() if form == "csv" else 0  # vocabulary: tell: method of a Python file
        start = result.progress.offset_bytes or start
        source.seek(start)
        task = bar.add_task(file.name, total=file.stat().st_size, completed=start)
        for batch in batches(source, parse):
            importer.send(batch, result)
            save_progress(record, file, result.progress)
            bar.update(task, completed=batch.end_bytes)


def _parser(form: str, first_line: bytes) -> Parse:
    if form == "segment-jsonl":
        return item_of_json
    header = next(csv.reader([first_line.decode("utf-8-sig", errors="replace")]), [])
    if errors := header_errors(header):
        raise NotPossible(f"invalid header: {'; '.join(errors)}")
    return partial(item_of_row, header)
