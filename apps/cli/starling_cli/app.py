"""Edge: the `starling` command. Exit codes: 0 success · 1 failure · 2 invalid call or unsuitable machine · 130 interrupted."""

import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Annotated, Final

import typer

from starling_cli.commands.capacity import plan_capacity
from starling_cli.commands.common import REMOTE, REMOTE_TOKEN, REMOTE_URL, Remote, print_error
from starling_cli.commands.deploy import deploy_app
from starling_cli.commands.export import export_app
from starling_cli.commands.flow import clock_app, settle
from starling_cli.commands.lifecycle import down, env, status, up
from starling_cli.commands.load import catalog_app
from starling_cli.commands.new import new_app
from starling_cli.commands.pipeline import dlq_app, topics
from starling_cli.commands.remote.context import context_app
from starling_cli.commands.remote.credentials import tokens_app, write_keys_app
from starling_cli.commands.remote.definitions import definitions_app
from starling_cli.commands.remote.event_types import event_types_app
from starling_cli.commands.remote.imports import imports_app
from starling_cli.commands.remote.outcomes import outcomes
from starling_cli.commands.remote.people import audit, feed, users_app
from starling_cli.commands.remote.resources import campaigns_app, lists_app, targets_app, views_app, webhooks_app
from starling_cli.commands.remote.secrets import secrets_app
from starling_cli.commands.remote.segments import segments_app
from starling_cli.commands.remote.traits import traits_app
from starling_cli.commands.replay import replay_app
from starling_cli.commands.report import report_app
from starling_cli.commands.reprocess import reprocess_app
from starling_cli.commands.stage import stage_app
from starling_cli.commands.state import state_app
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.wire import RegistryUnavailable, SchemaMissing
from starling_local.errors import FAILED, INTERRUPTED, NotPossible, UserError

EXTENSIONS: Final = "starling.commands"
"""Group of the entry points by which other packages add a command. Each names a function with the options of typer."""

REMOTE_COMMANDS: Final = frozenset({
    "audit", "campaigns", "definitions", "event-types", "feed", "import", "lists", "outcomes", "secrets", "segments", "targets",
    "tokens", "traits", "users", "views", "webhooks", "write-keys",
})  # fmt: skip
"""The commands that talk to the API alone, and so to any installation."""

_REMOTE_OPTIONS: Final = frozenset({"--url", "--token", "--context"})


def build_app() -> typer.Typer:
    """Return the application with all commands, including those of other packages."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    for command in (up, status, down, env, settle, topics, outcomes, feed, audit):
        app.command()(command)
    for extension in sorted(entry_points(group=EXTENSIONS)):
        app.command(extension.name)(extension.load())
    app.command("plan-capacity")(plan_capacity)
    app.add_typer(clock_app, name="clock")
    app.add_typer(dlq_app, name="dlq")
    app.callback()(_options)
    app.add_typer(context_app, name="context")
    app.add_typer(imports_app, name="import")
    app.add_typer(segments_app, name="segments")
    app.add_typer(traits_app, name="traits")
    app.add_typer(event_types_app, name="event-types")
    app.add_typer(lists_app, name="lists")
    app.add_typer(campaigns_app, name="campaigns")
    app.add_typer(webhooks_app, name="webhooks")
    app.add_typer(targets_app, name="targets")
    app.add_typer(views_app, name="views")
    app.add_typer(users_app, name="users")
    app.add_typer(tokens_app, name="tokens")
    app.add_typer(write_keys_app, name="write-keys")
    app.add_typer(definitions_app, name="definitions")
    app.add_typer(secrets_app, name="secrets")
    app.add_typer(catalog_app, name="catalog")
    app.add_typer(state_app, name="state")
    app.add_typer(stage_app, name="stage")
    app.add_typer(new_app, name="new")
    app.add_typer(report_app, name="report")
    app.add_typer(deploy_app, name="deploy")
    app.add_typer(replay_app, name="replay")
    app.add_typer(reprocess_app, name="reprocess")
    app.add_typer(export_app, name="export")
    return app


def _options(
    context: typer.Context,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help=f"An installation's API. Default: ${REMOTE_URL}.")] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="TOKEN", help=f"Token of that API. Default: ${REMOTE_TOKEN}, which `ps` does not show."),
    ] = None,
    named: Annotated[
        str | None, typer.Option("--context", metavar="NAME", help="Installation from `starling context list`.")
    ] = None,
) -> None:
    """Run Starling on this machine, and work with the running instance or with an installation.

    The options may also follow a command.
    """
    remote = Remote(url, token, named)
    if remote != Remote() and context.invoked_subcommand not in REMOTE_COMMANDS:
        commands = ", ".join(sorted(REMOTE_COMMANDS))
        raise NotPossible(
            f"`starling {context.invoked_subcommand}` works with a local instance: --url, --token and --context are for {commands}"
        )
    REMOTE.set(remote)


def options_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the options of the installation before the command, wherever they were."""
    first: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--" or (word == "context" and not rest):
            return [*first, *rest, word, *words]  # `context add` has a --url of its own
        if word in _REMOTE_OPTIONS:
            first += [word, *[value for value in [next(words, None)] if value is not None]]
        elif word.partition("=")[0] in _REMOTE_OPTIONS:
            first.append(word)
        else:
            rest.append(word)
    return [*first, *rest]


def main() -> None:
    """Run a command; print an error as one line to standard error."""
    try:
        build_app()(args=options_first(sys.argv[1:]))
    except UserError as error:
        print_error(str(error))
        sys.exit(error.exit_code)
    except (BrokerUnavailable, RegistryUnavailable, SchemaMissing) as error:
        print_error(f"{error}; see `starling status`")
        sys.exit(FAILED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
