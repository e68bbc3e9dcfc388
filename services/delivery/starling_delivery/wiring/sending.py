"""Edge: the dispatcher of a channel with its lanes, circuits and traces, and the schedule of the retries."""

from starling_common.telemetry.metrics import Metrics
from starling_common.telemetry.traces import Traces, open_traces
from starling_delivery.channel import Channel
from starling_delivery.policy import Schedule
from starling_delivery.sending.circuit import CircuitRule, Circuits
from starling_delivery.sending.destinations import Destinations
from starling_delivery.sending.dispatch import Dispatcher, Traffic
from starling_delivery.sending.lanes import Lanes
from starling_delivery.sending.rates import Rates
from starling_delivery.sending.results import Steps
from starling_delivery.sending.semantics import Semantics
from starling_delivery.sending.traced import TracedSemantics
from starling_delivery.settings import EmailSettings, KitSettings


def dispatcher_of(
    settings: KitSettings,
    channel: Channel,
    known: tuple[Destinations, Rates | None],
    semantics: Semantics,
    steps: Steps,
    metrics: Metrics,
) -> Dispatcher:
    """Return the dispatcher of a channel. `known`: its destinations, and the rates of their targets."""
    targets, rates = known
    return Dispatcher(
        channel,
        targets,
        schedule(settings, channel.name),
        Traffic(
            Lanes(settings.max_in_flight, settings.memory_mb * 1_000_000, settings.lane_messages, rates),
            Circuits(CircuitRule(settings.failures_before_pause, settings.probe_seconds)),
            semantics,
        ),
        steps,
        metrics,
    )


def schedule(settings: KitSettings, channel: str | None = None) -> Schedule:
    """Return the schedule of a channel of campaigns; None: that of the settings."""
    own = settings.give_up_seconds(channel) if isinstance(settings, EmailSettings) and channel is not None else None
    return Schedule(settings.retry_delays_seconds, settings.give_up_after_seconds if own is None else own)


def traces_of(settings: KitSettings, name: str) -> Traces | None:
    """Return the traces of the process; None if they are off."""
    return open_traces(settings.traces, f"delivery-{name}", settings.instance_id)


def traced(semantics: Semantics, traces: Traces | None, channel: str) -> Semantics:
    """Return the semantics, with spans if traces are on."""
    return semantics if traces is None else TracedSemantics(semantics, traces, channel)
