"""Edge: the `starling` command. Exit codes: 0 success · 1 failure · 2 invalid call or unsuitable machine · 130 interrupted."""

import sys
from importlib.metadata import entry_points
from typing import Final

import typer

from starling_cli.commands.capacity import plan_capacity
from starling_cli.commands.common import print_error
from starling_cli.commands.definitions import definitions_app
from starling_cli.commands.flow import clock_app, settle
from starling_cli.commands.lifecycle import down, env, status, up
from starling_cli.commands.load import catalog_app, import_file
from starling_cli.commands.outcomes import outcomes
from starling_cli.commands.pipeline import dlq_app, topics
from starling_cli.commands.replay import replay_app
from starling_cli.commands.report import report_app
from starling_cli.commands.reprocess import reprocess_app
from starling_cli.commands.segments import segments_app
from starling_cli.commands.stage import stage_app
from starling_cli.commands.state import state_app
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.wire import RegistryUnavailable, SchemaMissing
from starling_local.errors import FAILED, INTERRUPTED, UserError

EXTENSIONS: Final = "starling.commands"
"""Group of the entry points by which other packages add a command. Each names a function with the options of typer."""


def build_app() -> typer.Typer:
    """Return the application with all commands, including those of other packages."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Run Starling on this machine and work with the running instance.",
    )
    for command in (up, status, down, env, settle, topics, outcomes):
        app.command()(command)
    for extension in sorted(entry_points(group=EXTENSIONS)):
        app.command(extension.name)(extension.load())
    app.command("import")(import_file)
    app.command("plan-capacity")(plan_capacity)
    app.add_typer(clock_app, name="clock")
    app.add_typer(dlq_app, name="dlq")
    app.add_typer(segments_app, name="segments")
    app.add_typer(definitions_app, name="definitions")
    app.add_typer(catalog_app, name="catalog")
    app.add_typer(state_app, name="state")
    app.add_typer(stage_app, name="stage")
    app.add_typer(report_app, name="report")
    app.add_typer(replay_app, name="replay")
    app.add_typer(reprocess_app, name="reprocess")
    return app


def main() -> None:
    """Run a command; print an error as one line to standard error."""
    try:
        build_app()()
    except UserError as error:
        print_error(str(error))
        sys.exit(error.exit_code)
    except (BrokerUnavailable, RegistryUnavailable, SchemaMissing) as error:
        print_error(f"{error}; see `starling status`")
        sys.exit(FAILED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
