"""Edge: `report audience` runs a Spark job on the running instance, reads the report from the API and writes an HTML page.

`report campaigns` runs the Spark job that writes the report of all campaigns as Parquet.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

from starling_cli.commands.common import DataDir, api_of, instance_at, print_line, running_options
from starling_cli.report.page import page
from starling_cli.report.rows import audience
from starling_local.errors import NotPossible
from starling_local.stack.jobs import run_job

report_app = typer.Typer(no_args_is_help=True, help="Write reports over the whole history.")

_PARTS: Final = ("days", "retention", "overlap")


@report_app.command("audience")
def audience_report(
    out: Annotated[Path, typer.Option("--out", help="Path of the HTML page.")] = Path("report.html"),
    until: Annotated[
        str | None, typer.Option("--until", help="End of the report, ISO 8601. Default: the current stream time.")
    ] = None,
    parquet: Annotated[str | None, typer.Option("--parquet", help="Directory or URI for the rows as Parquet.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Write the size, entries, exits, retention and overlap of every segment as one HTML page with charts."""
    instance = instance_at(data_dir)
    api = api_of(running_options(instance))
    try:
        instant = until or api.as_of()
        if instant is None:
            raise NotPossible("the instance has processed no events yet: send some first")
        arguments = ["--until", instant, *(("--out", parquet, "--overwrite") if parquet else ())]
        print_line(f"computing the report up to {instant} (log: {instance.log_file('audience-report')})")
        run_job(instance, "audience-report", "starling_spark.jobs.audience_report", arguments)
        heads, rows = {}, {}
        for part in _PARTS:
            heads[part], rows[part] = api.report(part)
    finally:
        api.close()
    out.write_text(page(audience(heads["days"], rows)))
    print_line(f"wrote {out} with {len(rows['days'])} days of segments: open it in a browser")


@report_app.command("campaigns")
def campaign_report(
    out: Annotated[str, typer.Option("--out", help="Directory or URI for Parquet: funnel, lift. Its content is replaced.")],
    data_dir: DataDir = None,
) -> None:
    """Write the funnels and lifts of all campaigns over the whole history as Parquet."""
    instance = instance_at(data_dir)
    running_options(instance)
    print_line(f"computing the report (log: {instance.log_file('campaign-report')})")
    run_job(instance, "campaign-report", "starling_spark.jobs.campaign_report", ["--out", out, "--overwrite"])
    print_line(f"wrote {out.rstrip('/')}/funnel and {out.rstrip('/')}/lift")
