"""Edge: a delivery process from the parts of its channels, with the health server that reports their problems."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from starling_common.kafka.group_requests import GroupAddress, GroupRequests
from starling_common.telemetry.health import Degraded, HealthServer, Turns
from starling_common.telemetry.metrics import Metrics
from starling_delivery.channel import Channel
from starling_delivery.messages.definitions import Definitions
from starling_delivery.messages.ledger import Ledger
from starling_delivery.sending.dispatch import Dispatcher
from starling_delivery.sending.routing import Routed
from starling_delivery.settings import KitSettings
from starling_delivery.targets import Targets
from starling_delivery.wiring.process import Delivery, Group, View

_MOST_BLOCKED_SECONDS: Final = 60.0
"""Every call that waits has a thread of its own, so the event loop always turns within a second."""


class Parts(NamedTuple):
    """What differs between feeds and messages."""

    channels: Sequence[Channel]
    views: Mapping[str, View]
    targets: Targets | Definitions
    dispatcher: Dispatcher | Routed
    groups: tuple[Group, Group]
    ledger: Ledger | None = None


def assembled(settings: KitSettings, metrics: Metrics, parts: Parts) -> Delivery:
    """Return the process, with its health server started."""
    turns, requests = Turns("the event loop", _MOST_BLOCKED_SECONDS), _requests(settings, parts.groups, metrics)
    health = _health(settings, metrics, _Observed(parts.views, parts.targets, parts.groups, requests, turns, parts.ledger))
    health.start()
    return Delivery(parts.channels, parts.views, parts.dispatcher, parts.groups, requests, health, turns, parts.ledger)


def _requests(settings: KitSettings, groups: tuple[Group, Group], metrics: Metrics) -> tuple[GroupRequests, GroupRequests]:
    """Return the measurement of refused requests of both consumer groups."""
    refused = metrics.gauge("starling_group_refused_seconds")
    first, second = (
        GroupRequests(
            GroupAddress(settings.kafka.brokers, one.name, one.topic), settings.group_failure_seconds, refused.labels(one.name).set
        )
        for one in groups
    )
    return first, second


class _Observed(NamedTuple):
    """The parts whose problems the health server reports."""

    views: Mapping[str, View]
    targets: Targets | Definitions
    groups: tuple[Group, Group]
    requests: tuple[GroupRequests, GroupRequests]
    turns: Turns
    ledger: Ledger | None


def _health(settings: KitSettings, metrics: Metrics, observed: _Observed) -> HealthServer:
    """Return the health server, not started."""
    views, targets, (new, retries), requests, turns, ledger = observed
    agents = {"membership" if ledger is None else "requests": new.agent, "retries": retries.agent}
    return HealthServer(
        (settings.http.host, settings.http.port),
        metrics.registry,
        alive=lambda: {
            **{name: view.problem() for name, view in views.items()},
            "event loop": turns.problem(),
            # Partitions may be paused, so a consumer that receives nothing is no problem.
            **{name: group.consumer.turns.problem() for name, group in zip(agents, (new, retries), strict=True)},
            "group": requests[0].problem,
            "group of retries": requests[1].problem,
            **({} if ledger is None else {"transactions": ledger.turns.problem()}),
        },
        ready=lambda: (
            {name: view.problem() for name, view in views.items()}
            | {"secrets": _unreadable(targets)}
            | {"input": new.agent.problem, "input of retries": retries.agent.problem}
            | {name: None if agent.assigned else "no partitions assigned yet" for name, agent in agents.items()}
        ),
    )


def _unreadable(targets: Targets | Definitions) -> str | None:
    found = targets.problems()
    return Degraded(f"the messages of {len(found)} targets wait: {found[0]}") if found else None
