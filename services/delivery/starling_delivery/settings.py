"""Settings of a delivery process, read from `STARLING_…` environment variables."""

import re
from collections.abc import Collection
from typing import Annotated, Final, Literal, Self

from pydantic import AnyHttpUrl, BaseModel, ConfigDict, Field, model_validator

from starling_campaigns.channels import FEED_CHANNELS, SENT_CHANNELS
from starling_common.kafka import topics
from starling_common.kafka.access.check import Needs, needs_of
from starling_common.security.sealing import LINK_KEYS_SETTING, keys_of
from starling_common.settings import GroupFailureSeconds, LinkKeys, SecretKeys, ServiceSettings, TraceSettings

WEBHOOK: Final = "webhook"
"""The channel of the targets of `/v1/webhooks`."""

WEBHOOK_GROUP: Final = topics.stage(WEBHOOK).group

EMAIL: Final = "email"
CHANNEL_VARIABLE: Final = "STARLING_CHANNEL"
"""The variable of `channel`, which decides about the model of the settings."""
EMAIL_GROUP: Final = topics.stage(EMAIL).group

FEEDS: Final = "feeds"
FEEDS_GROUP: Final = topics.stage(FEEDS).group


class KitSettings(ServiceSettings):
    """The settings that all channels share."""

    secrets: SecretKeys = SecretKeys()
    traces: TraceSettings = TraceSettings()
    retry_topic: Annotated[str, Field(description="topic of the retries")] = topics.DELIVERY_RETRY
    outcome_topic: Annotated[str, Field(description="topic of the message outcomes")] = topics.DELIVERY
    dead_letter_topic: Annotated[str, Field(description="topic of the dead letters")] = "delivery.dlq"
    group_failure_seconds: GroupFailureSeconds = 120.0
    timeout_seconds: Annotated[float, Field(gt=0, le=60, description="timeout of one attempt")] = 15.0
    lookup_timeout_seconds: Annotated[float, Field(gt=0, le=60, description="timeout of the name resolution of one attempt")] = 5.0
    max_in_flight: Annotated[
        int, Field(ge=1, le=2000, description="maximum of concurrent attempts; a half for one workspace, a quarter for one target")
    ] = 256
    lane_messages: Annotated[int, Field(ge=1, le=100_000, description="maximum of waiting messages of one target")] = 1000
    memory_mb: Annotated[
        int, Field(ge=1, le=10_000, description="memory of messages in MB; a half for one workspace, a quarter for one target")
    ] = 64
    retry_delays_seconds: Annotated[
        tuple[float, ...],
        Field(
            min_length=1,
            description="delay after the first, second … attempt; the last one repeats; each needs a topic (delivery.retry.5m)",
        ),
    ] = (
        5.0,
        300.0,
        1800.0,
        7200.0,
        18_000.0,
        36_000.0,
    )
    give_up_after_seconds: Annotated[
        float, Field(gt=0, le=7 * 86_400, description="time since the first attempt after which a message is a dead letter")
    ] = 86_400.0
    failures_before_pause: Annotated[
        int, Field(ge=1, description="consecutive failed attempts after which the circuit of a target opens")
    ] = 5
    probe_seconds: Annotated[
        float, Field(gt=0, le=600, description="time until the first probe of an open circuit; it doubles up to 20 times that")
    ] = 30.0
    failpoint: Annotated[
        str | None, Field(description="for tests: raise for records with a text, at decode, send or outcome: raise_in_decode:TEXT")
    ] = None
    allow_private_addresses: Annotated[
        bool, Field(description="for local stacks only: deliver to private networks, and over http")
    ] = False

    @property
    def tier_topics(self) -> dict[float, str]:
        """Return delay -> topic of the tiers of retries, the shortest delay first."""
        return {seconds: f"{self.retry_topic}.{_duration(seconds)}" for seconds in sorted(set(self.retry_delays_seconds))}

    @property
    def retry_pattern(self) -> str:
        """Return a pattern of the topics of the retries: the topic for records from outside, and the tiers of any delay.

        After a change of the delays, retries remain in tiers that no delay has any more.
        """
        return rf"^{re.escape(self.retry_topic)}(\.[0-9.]+[smh])?$"

    def _renamed_retries(self, inputs: Collection[str]) -> dict[str, str]:
        return {topic: f"{self.retry_topic}{topic.removeprefix(topics.DELIVERY_RETRY)}" for topic in inputs}


class Settings(KitSettings):
    """One process serves one channel of feeds."""

    channel: Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$", description="channel that this process delivers to")] = WEBHOOK
    takes_all_targets: Annotated[
        bool, Field(description="let a channel other than webhook deliver to every target, in place of the webhook process")
    ] = False
    membership_topic: Annotated[str, Field(description="topic of the membership changes")] = topics.MEMBERSHIP
    definitions_topic: Annotated[str, Field(description="topic of the targets")] = topics.WEBHOOK_DEFINITIONS
    group: Annotated[
        str, Field(min_length=1, description="consumer group; the name of the group of the retries begins with it")
    ] = WEBHOOK_GROUP

    @property
    def retry_group(self) -> str:
        """Return the consumer group of the retries. Each channel has its own, because it skips the retries of the others."""
        return f"{self.group}-retry" if self.channel == WEBHOOK else f"{self.group}-{self.channel}-retry"

    @property
    def needs(self) -> Needs:
        """Return the rights at the broker."""
        retries = topics.stage(f"{WEBHOOK}-retry")
        names = {
            topics.MEMBERSHIP: self.membership_topic,
            topics.WEBHOOK_DEFINITIONS: self.definitions_topic,
            f"view-{topics.WEBHOOK_DEFINITIONS}": f"view-{self.definitions_topic}",
            topics.DELIVERY: self.outcome_topic,
            "delivery.dlq": self.dead_letter_topic,
            WEBHOOK_GROUP: self.group,
            retries.group: self.retry_group,
        }
        return needs_of("delivery", names | self._renamed_retries(retries.inputs))

    def refusal(self, channels: Collection[str]) -> str | None:
        """Return the reason why this process must not start, with the cure; None if it may. `channels`: the registered channels."""
        if self.channel not in channels:
            known = ", ".join(sorted(channels))
            return f"STARLING_CHANNEL={self.channel}: no such channel in starling_delivery/channels/__init__.py; there are: {known}"
        if self.channel == WEBHOOK:
            return None
        if not self.takes_all_targets:
            return (
                f"STARLING_CHANNEL={self.channel}: its targets would be the webhooks, so this process would report outcomes of "
                f"messages of the channel {WEBHOOK}. To deliver all of them through {self.channel}, stop the webhook process "
                "and set STARLING_TAKES_ALL_TARGETS=true"
            )
        if self.group != WEBHOOK_GROUP:
            return (
                f"STARLING_GROUP={self.group}: a channel that takes all targets reads in the group of the webhook process, so that "
                f"each change has one outcome. Unset STARLING_GROUP, or set it to {WEBHOOK_GROUP}"
            )
        return None


class Email(BaseModel):
    """How mails are sent. The server and its credentials are those of the target."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tracker_url: Annotated[
        AnyHttpUrl | None,
        Field(
            description="public address of the tracker: mails get its link to unsubscribe (RFC 8058), links that count clicks, and "
            "a pixel; needs STARLING_LINKS__KEYS"
        ),
    ] = None
    unsubscribe_url: Annotated[
        AnyHttpUrl | None,
        Field(
            description="begin of the link to a page of your own, instead of tracker_url; workspace, delivery and purpose are "
            "appended; both unset: only transactional mails are sent, others wait until they expire"
        ),
    ] = None
    allow_private_addresses: Annotated[bool, Field(description="send through relays in private networks, and on any port")] = False
    connections_per_target: Annotated[int, Field(ge=1, le=1000, description="maximum of concurrent connections to one target")] = 32
    hostname: Annotated[str | None, Field(description="name of this host in EHLO; unset: that of the system")] = None
    ca_file: Annotated[
        str | None, Field(description="certificates of the authorities that sign those of the servers; unset: those of the system")
    ] = None


class ChannelLimits(BaseModel):
    """The limits of one channel of campaigns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    give_up_after_seconds: Annotated[
        float, Field(gt=0, le=7 * 86_400, description="time since the first attempt after which a message is a dead letter")
    ] = 3_600.0


class Sms(ChannelLimits):
    """How SMS are sent. The provider and its credentials are those of the target."""


class CampaignWebhook(ChannelLimits):
    """How the bodies of campaigns are sent to endpoints."""

    give_up_after_seconds: Annotated[
        float, Field(gt=0, le=7 * 86_400, description="time since the first attempt after which a message is a dead letter")
    ] = 86_400.0


class Push(ChannelLimits):
    """How notifications are sent. The keys are those of the target; the push service of a browser is in its subscription."""

    fcm_url: Annotated[AnyHttpUrl, Field(description="address of Firebase Cloud Messaging")] = AnyHttpUrl(
        "https://fcm.googleapis.com/"
    )
    fcm_token_url: Annotated[AnyHttpUrl, Field(description="address at which Google exchanges the key of a service account")] = (
        AnyHttpUrl("https://oauth2.googleapis.com/token")
    )
    apns_url: Annotated[AnyHttpUrl, Field(description="address of APNs for targets of the environment production")] = AnyHttpUrl(
        "https://api.push.apple.com/"
    )
    apns_sandbox_url: Annotated[AnyHttpUrl, Field(description="address of APNs for targets of the environment sandbox")] = (
        AnyHttpUrl("https://api.sandbox.push.apple.com/")
    )
    ca_file: Annotated[
        str | None, Field(description="certificates of the authorities that sign those of the services; unset: those of browsers")
    ] = None


class EmailSettings(KitSettings):
    """The process of the channels of campaigns, of which email is the first. It takes the requests of the messenger."""

    channel: Annotated[Literal["email"], Field(description="the process of the channels of campaigns")] = EMAIL
    channels: Annotated[
        tuple[str, ...],
        Field(min_length=1, description="channels that this process sends, each with its own lanes; the requests of others wait"),
    ] = tuple(sorted(SENT_CHANNELS))
    email: Email = Email()
    sms: Sms = Sms()
    webhook: CampaignWebhook = CampaignWebhook()
    push: Push = Push()
    links: LinkKeys = LinkKeys()
    request_topic: Annotated[
        str, Field(description="begin of the names of the topics of the requests; the channel is appended: delivery.requests.email")
    ] = topics.REQUESTS
    bulk_topic: Annotated[
        str, Field(description="begin of the names of the topics of the requests of broadcasts: delivery.bulk.email")
    ] = topics.BULK
    definitions_topic: Annotated[str, Field(description="topic of the campaigns and targets")] = topics.DELIVERY_DEFINITIONS
    consent_topic: Annotated[str, Field(description="topic of the changes of consent")] = topics.CONSENT
    suppressions_topic: Annotated[str, Field(description="topic of the suppressed addresses")] = topics.SUPPRESSIONS
    group: Annotated[
        str, Field(min_length=1, description="consumer group; the name of the group of the retries begins with it")
    ] = EMAIL_GROUP
    retry_delays_seconds: Annotated[
        tuple[float, ...],
        Field(
            min_length=1,
            description="delay after the first, second … attempt; the last one repeats; each needs a topic (delivery.retry.5m)",
        ),
    ] = (5.0, 300.0, 1800.0)
    give_up_after_seconds: Annotated[
        float, Field(gt=0, le=7 * 86_400, description="time since the first attempt after which a mail is a dead letter")
    ] = 14_400.0
    transactional_id: Annotated[
        str, Field(min_length=1, description="begin of the transactional id of this process; its instance id is appended")
    ] = "starling-email"

    @property
    def request_topics(self) -> dict[str, str]:
        """Return channel -> topic of its requests, of the channels that this process sends."""
        return {channel: f"{self.request_topic}.{channel}" for channel in self.channels}

    @property
    def bulk_topics(self) -> dict[str, str]:
        """Return channel -> topic of its requests of broadcasts."""
        return {channel: f"{self.bulk_topic}.{channel}" for channel in self.channels}

    def give_up_seconds(self, channel: str) -> float:
        """Return the time limit of the messages of a channel."""
        limits: object = getattr(self, channel)
        return limits.give_up_after_seconds if isinstance(limits, ChannelLimits) else self.give_up_after_seconds

    @property
    def link_keys(self) -> dict[str, bytes]:
        """Return the keys of the links, the newest first. Raises: ValueError that names the setting and the cure."""
        return keys_of(self.links, LINK_KEYS_SETTING)

    @model_validator(mode="after")
    def _check_channels(self) -> Self:
        unknown = sorted(set(self.channels) - SENT_CHANNELS)
        if unknown or len(set(self.channels)) < len(self.channels):
            known = ", ".join(sorted(SENT_CHANNELS))
            raise ValueError(
                f"STARLING_CHANNELS: {', '.join(unknown) or 'a channel occurs twice'}: list each of {known} at most once"
            )
        return self

    @model_validator(mode="after")
    def _check_links(self) -> Self:
        if self.email.tracker_url is not None and self.email.unsubscribe_url is not None:
            raise ValueError("STARLING_EMAIL__TRACKER_URL and STARLING_EMAIL__UNSUBSCRIBE_URL exclude each other: set one of them")
        if self.email.tracker_url is not None and not self.link_keys:
            raise ValueError(f"STARLING_EMAIL__TRACKER_URL needs {LINK_KEYS_SETTING}, the same keys as the tracker")
        return self

    @property
    def retry_group(self) -> str:
        """Return the consumer group of the retries. Each channel has its own, because it skips the retries of the others."""
        return f"{self.group}-retry"

    @property
    def needs(self) -> Needs:
        """Return the rights at the broker."""
        retries = topics.stage(f"{EMAIL}-retry")
        names = {
            **{topics.request_topic(channel): f"{self.request_topic}.{channel}" for channel in SENT_CHANNELS},
            **{topics.bulk_topic(channel): f"{self.bulk_topic}.{channel}" for channel in SENT_CHANNELS},
            topics.DELIVERY: self.outcome_topic,
            "delivery.dlq": self.dead_letter_topic,
            EMAIL_GROUP: self.group,
            retries.group: self.retry_group,
        }
        read = {
            topics.DELIVERY_DEFINITIONS: self.definitions_topic,
            topics.CONSENT: self.consent_topic,
            topics.SUPPRESSIONS: self.suppressions_topic,
        }
        views = {f"view-{topic}": f"view-{name}" for topic, name in read.items()}
        return needs_of("email", names | read | views | self._renamed_retries(retries.inputs))


class FeedSettings(ServiceSettings):
    """The process of the feeds with targets of their own: Slack, Teams and Kafka."""

    channel: Annotated[Literal["feeds"], Field(description="the process of the feeds")] = FEEDS
    channels: Annotated[
        tuple[str, ...],
        Field(min_length=1, description="channels of the targets that this process serves; every process of a group has the same"),
    ] = tuple(sorted(FEED_CHANNELS))
    secrets: SecretKeys = SecretKeys()
    membership_topic: Annotated[str, Field(description="topic of the membership changes")] = topics.MEMBERSHIP
    definitions_topic: Annotated[str, Field(description="topic of the targets")] = topics.DELIVERY_DEFINITIONS
    progress_topic: Annotated[str, Field(description="topic of the positions of the targets")] = topics.FEED_PROGRESS
    dead_letter_topic: Annotated[str, Field(description="topic of the dead letters")] = "delivery.dlq"
    group: Annotated[str, Field(min_length=1, description="consumer group that shares the targets out among the processes")] = (
        FEEDS_GROUP
    )
    group_failure_seconds: GroupFailureSeconds = 120.0
    transactional_id: Annotated[
        str, Field(min_length=1, description="begin of the transactional ids; the id of a target is appended")
    ] = "starling-feeds"
    max_targets: Annotated[
        int, Field(ge=1, le=1_000, description="maximum of targets of this process; each needs about 3 MB and ten threads")
    ] = 200
    timeout_seconds: Annotated[float, Field(gt=0, le=15, description="timeout of one attempt")] = 15.0
    lookup_timeout_seconds: Annotated[float, Field(gt=0, le=60, description="timeout of the name resolution of one attempt")] = 5.0
    failpoint: Annotated[
        str | None, Field(description="for tests: kill the process at a point, such as after_sending:2 at its second passage")
    ] = None
    allow_private_addresses: Annotated[
        bool, Field(description="for local stacks only: deliver to private networks, and over http")
    ] = False

    @model_validator(mode="after")
    def _check_channels(self) -> Self:
        unknown = sorted(set(self.channels) - FEED_CHANNELS)
        if unknown or len(set(self.channels)) < len(self.channels):
            known = ", ".join(sorted(FEED_CHANNELS))
            raise ValueError(
                f"STARLING_CHANNELS: {', '.join(unknown) or 'a channel occurs twice'}: list each of {known} at most once"
            )
        return self

    @property
    def needs(self) -> Needs:
        """Return the rights at the broker."""
        names = {
            topics.MEMBERSHIP: self.membership_topic,
            topics.DELIVERY_DEFINITIONS: self.definitions_topic,
            topics.FEED_PROGRESS: self.progress_topic,
            f"view-{topics.DELIVERY_DEFINITIONS}": f"view-{self.definitions_topic}",
            f"view-{topics.FEED_PROGRESS}": f"view-{self.progress_topic}",
            "delivery.dlq": self.dead_letter_topic,
            FEEDS_GROUP: self.group,
        }
        return needs_of(FEEDS, names)


def _duration(seconds: float) -> str:
    for length, unit in ((3600, "h"), (60, "m")):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s"
