"""Edge: `report audience`: computed by the Spark job on the running instance, read back over the API, shown as one HTML page."""

from pathlib import Path
from typing import Annotated, Final

import typer

from starling_local.commands.common import DataDir, api_of, instance_at, running_options, say
from starling_local.errors import NotPossible
from starling_local.report.page import page
from starling_local.report.rows import audience
from starling_local.stack.jobs import run_job

report_app = typer.Typer(no_args_is_help=True, help="Reports over all that happened.")

_PARTS: Final = ("days", "retention", "overlap")


@report_app.command("audience")
def audience_report(
    out: Annotated[Path, typer.Option("--out", help="The HTML page to write.")] = Path("report.html"),
    until: Annotated[str | None, typer.Option("--until", help="ISO 8601; default: as far as the segmenter is.")] = None,
    parquet: Annotated[str | None, typer.Option("--parquet", help="A directory or URI for the rows as Parquet.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Size, entries, exits, retention and overlap of every segment, as one HTML page with charts."""
    instance = instance_at(data_dir)
    api = api_of(running_options(instance))
    try:
        instant = until or api.as_of()
        if instant is None:
            raise NotPossible("nothing has happened yet: there is nothing to report")
        words = ["--until", instant, *(("--out", parquet, "--overwrite") if parquet else ())]
        say(f"computing the report up to {instant} (log: {instance.log_file('audience-report')})")
        run_job(instance, "audience-report", "starling_spark.jobs.audience_report", words)
        heads, rows = {}, {}
        for part in _PARTS:
            heads[part], rows[part] = api.report(part)
    finally:
        api.close()
    out.write_text(page(audience(heads["days"], rows)))
    say(f"{out}: {len(rows['days'])} days of segments, open it in a browser")
