"""Edge: the steps of the demo."""

import base64
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from starling_cli.api_client import ApiClient
from starling_cli.catalog import load as load_catalog
from starling_cli.commands.common import api_of, pipeline_of, running_options
from starling_cli.commands.lifecycle import up
from starling_cli.settle.settle import settle
from starling_cli.stream_clock import StreamClock
from starling_common.time.instants import parse_instant
from starling_demo.consistency import Comparison, Scope, compare
from starling_demo.dataset import CUSTOMERS, PURCHASES, DatasetMissing, Purchase, load_purchases
from starling_demo.expected import expected_changes
from starling_demo.expected_messages import MAILED, Message, differences, expected_messages
from starling_demo.load import LoadFailed, send_purchases
from starling_demo.mailbox import Mailbox
from starling_demo.observed import Feed, read_feed, read_messages, read_trait
from starling_demo.receiver import Receiver
from starling_demo.report import (
    CHARTED,
    print_campaign,
    print_chart,
    print_comparison,
    print_segments,
    print_story,
    print_webhook,
)
from starling_demo.scenario import CATALOG, COMPUTED_TRAIT, DELIVERED, END, POLICY, SEGMENTS, WIN_BACK
from starling_local.errors import FAILED, OK, NotPossible, UserError
from starling_local.instance import Instance, Options
from starling_local.stack.launch import stop
from starling_local.stack.parts.jvm_registry import registry_url
from starling_local.stack.parts.services import WORKSPACE, WRITE_KEY

SETTLE_TIMEOUT_SECONDS = 600.0
MAIL_TIMEOUT_SECONDS = 400.0
"""A message that finds its target busy twice waits for 5 minutes."""
SHOWN_DIFFERENCES = 20
_MARKER = "demo"


class DemoFailed(UserError):
    """A step of the demo failed. The text states the step and the reason."""


def run(instance: Instance) -> int:
    """Run the demo on an empty instance; return 0 if all members, changes and messages equal those of pandas, else 1."""
    console = Console()
    try:
        purchases = load_purchases()
    except DatasetMissing as missing:
        raise NotPossible(str(missing)) from missing
    console.print(f"[bold]Starling demo[/bold]: {PURCHASES:,} real purchases of {CUSTOMERS:,} people, January 1997 to June 1998")
    _fresh(instance)
    up(data_dir=instance.data_dir, detach=True, clock="event", campaigns=True, scale=[])
    return perform_locally(instance, purchases, console)


@dataclass(frozen=True)
class Platform:
    """A running platform with the event clock and without definitions. `settle`: returns when every stage has gone through."""

    api: ApiClient
    ingest_url: str
    write_key: str
    brokers: str
    registry_url: str
    settle: Callable[[], None]


def perform(platform: Platform, purchases: list[Purchase], mailbox: Mailbox, console: Console) -> int:
    """Run the demo on a running platform; return the exit code. `mailbox`: empty, for the mails of the campaign.

    Raises: DemoFailed, NotSettled, ApiRefused.
    """
    begun = time.monotonic()
    scene = _Scene(platform, console)
    with closing(_define(scene)) as receiver:
        _start_campaign(scene, mailbox)
        _play(scene, purchases)
        return _check(scene, purchases, receiver, mailbox, begun)


@dataclass(frozen=True)
class _Scene:
    platform: Platform
    console: Console

    @property
    def api(self) -> ApiClient:
        return self.platform.api

    def step(self, what: str) -> None:
        self.console.print(f"[green]•[/green] {what}", highlight=False)

    def settle(self) -> None:
        self.platform.settle()


def perform_locally(instance: Instance, purchases: list[Purchase], console: Console) -> int:
    """Run the demo on a running instance with the event clock and without definitions; return the exit code.

    Raises: as `perform`.
    """
    options = running_options(instance)

    def settled() -> None:
        with pipeline_of(instance) as pipeline:
            settle(pipeline, SETTLE_TIMEOUT_SECONDS)

    with closing(api_of(options)) as api, closing(Mailbox()) as mailbox:
        platform = Platform(
            api=api,
            ingest_url=f"http://{options.ports.address('ingest')}",
            write_key=WRITE_KEY,
            brokers=options.ports.address("kafka"),
            registry_url=registry_url(options.ports),
            settle=settled,
        )
        code = perform(platform, purchases, mailbox, console)
    if code == OK:
        _where_to_look(console, options, instance)
    return code


def _fresh(instance: Instance) -> None:
    """Empty the data directory of an earlier demo. Raises NotPossible for an instance that the demo did not create."""
    if instance.exists():
        if not (instance.data_dir / _MARKER).exists():
            raise NotPossible(
                f"{instance.data_dir} contains an instance that the demo did not create: choose another directory with --data-dir, "
                "or run `starling down` and remove this one"
            )
        stop(instance)
        shutil.rmtree(instance.data_dir)
    instance.data_dir.mkdir(parents=True, exist_ok=True)
    (instance.data_dir / _MARKER).write_text("created by `starling demo`, which may remove this directory\n")


def _define(scene: _Scene) -> Receiver:
    """Create the catalog, the computed trait, the segments and the webhook."""
    count = load_catalog(scene.platform.brokers, scene.platform.registry_url, WORKSPACE, iter(CATALOG))
    scene.step(f"loaded {count} products into the catalog")
    scene.api.create("/v1/computed-traits", COMPUTED_TRAIT)
    scene.step(f"defined computed trait {COMPUTED_TRAIT['key']}, computed by Spark for every user")
    for segment in SEGMENTS:
        scene.api.create("/v1/segments", segment)
    scene.settle()
    scene.step(f"defined {len(SEGMENTS)} segments")
    webhook, receiver = _webhook(scene.api)
    scene.step(f"registered webhook {webhook['key']} at {receiver.url} for {', '.join(DELIVERED)}")
    return receiver


def _start_campaign(scene: _Scene, mailbox: Mailbox) -> None:
    """Set the policy, and activate the campaign with the mailbox as its target."""
    target = {"key": WIN_BACK["target"], "channel": "email", "host": "127.0.0.1", "port": mailbox.port, "tls": "none"}
    scene.api.replace("/v1/policy", POLICY)
    scene.api.create("/v1/targets", {**target, "from": "Music shop <shop@example.com>"})
    scene.api.create("/v1/campaigns", WIN_BACK)
    scene.api.create(f"/v1/campaigns/{WIN_BACK['key']}/activate", {})
    scene.step(f"activated campaign {WIN_BACK['key']}, which mails to a local SMTP server")


def _webhook(api: ApiClient) -> tuple[Mapping[str, Any], Receiver]:
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    receiver = Receiver(secret)
    document = {"key": "demo", "url": receiver.url, "secret": secret, "segments": list(DELIVERED)}
    return api.create("/v1/webhooks", document), receiver


def _play(scene: _Scene, purchases: list[Purchase]) -> None:
    """Send all purchases in order of date, then advance the clock to `END`."""
    begun = time.monotonic()
    bar = Progress(
        TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=scene.console
    )
    with bar:
        task = bar.add_task("purchases", total=len(purchases))
        try:
            send_purchases(
                scene.platform.ingest_url,
                scene.platform.write_key,
                purchases,
                lambda count: bar.update(task, completed=count),
            )
        except LoadFailed as failed:
            raise DemoFailed(str(failed)) from failed
    scene.step(f"sent every purchase through the Segment client in {time.monotonic() - begun:.1f} s; all acknowledged")
    scene.settle()
    scene.step(f"every stage has gone through, {time.monotonic() - begun:.1f} s after the first purchase was sent")
    StreamClock(scene.platform.brokers, scene.platform.registry_url).advance(parse_instant(END))
    scene.settle()
    scene.step(f"moved the clock on to {END}")


def _check(scene: _Scene, purchases: list[Purchase], receiver: Receiver, mailbox: Mailbox, begun: float) -> int:
    """Print the results, compare them with pandas and return the exit code."""
    console, api = scene.console, scene.api
    brokers, registry = scene.platform.brokers, scene.platform.registry_url
    feed = read_feed(brokers, registry)
    trait = read_trait(brokers, registry, COMPUTED_TRAIT["key"])
    messages = read_messages(brokers, registry, WIN_BACK["key"])
    _await_mails(mailbox, messages)
    members = {segment["key"]: {str(item["user_id"]) for item in api.members(segment["key"])} for segment in SEGMENTS}
    print_segments(console, {key: len(users) for key, users in members.items()}, feed)
    print_chart(console, feed.changes[CHARTED])
    print_story(console, purchases, feed)
    print_webhook(console, receiver)
    print_campaign(console, messages, api.campaign_report(WIN_BACK["key"]))
    compared = compare(purchases, feed, members, trait)
    expected = expected_messages(purchases, expected_changes(purchases)[WIN_BACK["trigger"]["exit"]])
    mailed = [(user, message) for user, of_user in expected.items() for message in of_user]
    scope = message_scope(len(mailed), len(mailbox.mails))
    wrong = [*_undelivered(feed, receiver), *differences(expected, messages), *mailbox.differences(mailed)]
    code = conclude(console, replace(compared, scopes=[*compared.scopes, scope], differences=[*compared.differences, *wrong]), feed)
    if code == OK:
        console.print(f"The demo took {time.monotonic() - begun:.0f} s.", highlight=False)
    return code


def message_scope(messages: int, mails: int) -> Scope:
    """Return what was compared of the campaign."""
    return Scope(f"campaign {WIN_BACK['key']}", f"{messages:,} messages with their instants, {mails:,} mails")


def conclude(console: Console, comparison: Comparison, feed: Feed) -> int:
    """Print the comparison; return the exit code, which is 1 if there is a difference."""
    print_comparison(console, comparison.scopes)
    if comparison.differences:
        console.print(f"\n[red bold]NOT EQUAL[/red bold] to pandas: {len(comparison.differences):,} differences")
        for line in comparison.differences[:SHOWN_DIFFERENCES]:
            console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
        return FAILED
    console.print(
        f"\n[green bold]Equal to pandas, user by user[/green bold]: 1 computed trait and {feed.records:,} changes of "
        f"{len(SEGMENTS)} segments, and every message of 1 campaign",
        soft_wrap=True,
    )
    return OK


def _await_mails(mailbox: Mailbox, messages: Mapping[str, Sequence[Message]]) -> None:
    """Wait for mails that the channel has postponed: on a busy machine some wait for their turn in a retry topic."""
    due = sum(message.fate == MAILED for of_user in messages.values() for message in of_user)
    deadline = time.monotonic() + MAIL_TIMEOUT_SECONDS
    while len(mailbox.mails) < due and time.monotonic() < deadline:
        time.sleep(0.2)


def _undelivered(feed: Feed, receiver: Receiver) -> list[str]:
    """Return one line for each missing and each unexpected message of the webhook."""
    due = {(key, user, n + 1) for key in DELIVERED for user, changes in feed.changes[key].items() for n in range(len(changes))}
    came = {(call["data"]["segment_key"], call["data"]["user_id"], call["data"]["sequence"]) for call in receiver.calls}
    lines = [f"webhook: {user} in {key}, sequence {sequence} was not delivered" for key, user, sequence in sorted(due - came)]
    return lines + [f"webhook: {user} in {key}, sequence {sequence} was not expected" for key, user, sequence in sorted(came - due)]


def _where_to_look(console: Console, options: Options, instance: Instance) -> None:
    api, folder = f"http://{options.ports.address('api')}", instance.data_dir
    console.print(
        f"\nThe instance is still running. Open {api}/docs, or run:\n"
        f"  starling segments list --data-dir {folder}\n"
        f"  starling status --data-dir {folder}\n"
        f"  starling down --data-dir {folder}",
        highlight=False,
        soft_wrap=True,
    )
