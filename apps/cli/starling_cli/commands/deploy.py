"""Edge: `deploy acls`: the rights of each service at the broker."""

import json
import os
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import typer
from confluent_kafka.admin import AdminClient

from starling_cli.acls.formats import Strimzi, document, kafka_acls, strimzi, table
from starling_cli.commands.common import print_line, print_table
from starling_common.kafka.access.acls import AclsFailed, create, difference, remove
from starling_common.kafka.access.rights import PRINCIPAL, Principals, Service, chosen, load_services
from starling_common.kafka.security import connection_config
from starling_common.kafka.topics import load_catalogue
from starling_local.errors import NotPossible, UserError

deploy_app = typer.Typer(no_args_is_help=True, help="Prepare a broker of your own for Starling.")

BROKERS: Final = "STARLING_KAFKA__BROKERS"


class NotApplied(UserError):
    """The broker did not take the rights. The text contains the cure."""


@deploy_app.callback()
def deploy() -> None:
    """Prepare a broker of your own for Starling."""


@deploy_app.command("acls")
def acls(  # noqa: PLR0913, PLR0917 - the command line: each option is an argument
    principal: Annotated[
        str, typer.Option("--principal", help="Pattern of the users' names, such as User:CN={service},O=Example.")
    ] = PRINCIPAL,
    service: Annotated[list[str] | None, typer.Option("--service", help="Only this service. Repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As --format json.")] = False,
    form: Annotated[
        Literal["table", "json", "kafka-acls", "strimzi"],
        typer.Option("--format", help="A table, JSON, commands of kafka-acls.sh, or KafkaUser resources."),
    ] = "table",
    cluster: Annotated[str | None, typer.Option("--cluster", help="With --format strimzi: name of the Kafka resource.")] = None,
    authentication: Annotated[
        Literal["scram-sha-512", "tls", "tls-external"],
        typer.Option("--authentication", help="With --format strimzi: how the users prove their names."),
    ] = "scram-sha-512",
    apply: Annotated[bool, typer.Option("--apply", help="Create the rights that the broker lacks.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="With --apply: remove other rights of the same users.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what --apply would change.")] = False,
    brokers: Annotated[str | None, typer.Option("--brokers", help=f"host:port, comma separated. Default: ${BROKERS}.")] = None,
) -> None:
    """Compute the least rights of each service's user, and print them, or create them at the broker (--apply)."""
    try:
        principals = Principals(principal)
        services = chosen(load_services(load_catalogue()), service or [])
        if apply or dry_run:
            _apply(services, principals, _brokers(brokers), prune=prune, dry_run=dry_run)
        elif prune:
            raise NotPossible("--prune removes rights only with --apply, and lists them with --dry-run")
        else:
            _print(services, principals, "json" if as_json else form, Strimzi(cluster or "", authentication))
    except ValueError as error:
        raise NotPossible(str(error)) from error


def _print(services: Sequence[Service], principals: Principals, form: str, resources: Strimzi) -> None:
    if form == "json":
        print_line(json.dumps(document(services, principals), indent=2))
    elif form == "kafka-acls":
        for line in kafka_acls(services, principals):
            print_line(line)
    elif form == "strimzi":
        if not resources.cluster:
            raise NotPossible("--format strimzi needs --cluster NAME, the name of the Kafka resource")
        print_line(strimzi(services, principals, resources).rstrip())
    else:
        print_table(table(services, principals))


def _apply(services: Sequence[Service], principals: Principals, brokers: str, *, prune: bool, dry_run: bool) -> None:
    admin = AdminClient({**connection_config(brokers), "log_level": 0})
    try:
        found = difference(admin, services, principals)
        if not dry_run:
            create(admin, found.missing)
            if prune:
                remove(admin, found.needless)
    except AclsFailed as failed:
        raise NotApplied(str(failed)) from failed
    for sign, rules in (("+", found.missing), ("-", found.needless if prune else ())):
        for rule in rules:
            print_line(f"{sign} {rule}")
    if found.needless and not prune:
        print_line(f"{len(found.needless)} other rights of the same users stay: --prune removes them")
    will = "would be " if dry_run else ""
    print_line(f"{len(found.missing)} {will}created, {len(found.needless) if prune else 0} {will}removed")


def _brokers(given: str | None) -> str:
    found = given or os.environ.get(BROKERS)
    if not found:
        raise NotPossible(f"no broker: name it by --brokers, or set {BROKERS}")
    return found
