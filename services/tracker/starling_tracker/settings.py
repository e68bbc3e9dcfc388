"""The settings of the tracker; read once at start, then frozen."""

from typing import Annotated, Self

from pydantic import AnyHttpUrl, Field, model_validator

from starling_common.http.server import PublicHttp
from starling_common.security.sealing import LINK_KEYS_SETTING, keys_of
from starling_common.settings import LinkKeys, SecretKeys, ServiceSettings


class Settings(ServiceSettings):
    """Settings of one process."""

    http: PublicHttp
    links: LinkKeys = LinkKeys()
    secrets: SecretKeys = SecretKeys()
    public_url: Annotated[
        AnyHttpUrl | None,
        Field(
            description="public address of this process, which Twilio signs; unset: that of the header Host, which a proxy may set"
        ),
    ] = None
    profile_partitions: Annotated[
        int | None,
        Field(ge=1, le=10_000, description="number of partitions of profile-keyed topics; overrides topics.yaml"),
    ] = None
    ack_timeout_ms: Annotated[
        int,
        Field(ge=500, le=120_000, description="time that unsubscribing, or a callback, waits for the broker before it gets 503"),
    ] = 8_000
    body_timeout_seconds: Annotated[
        float, Field(gt=0, le=600, description="maximum time for a body; a slower one is answered with 408")
    ] = 10
    callback_max_bytes: Annotated[
        int,
        Field(
            ge=65_536,
            le=900_000,
            description="maximum size of a provider's callback; a larger one gets 413. SendGrid sends up to 768 KB",
        ),
    ] = 262_144
    queue_records: Annotated[
        int,
        Field(
            ge=1_000,
            le=1_000_000,
            description="maximum of unacknowledged opens and clicks; more are answered, and not counted, until the broker is back",
        ),
    ] = 100_000
    address_requests_per_second: Annotated[
        float,
        Field(
            gt=0,
            description="requests of one client address (IPv6: one /64 network); burst: two seconds; beyond it 429. "
            "Behind a proxy all requests have the proxy's address",
        ),
    ] = 1_000
    drain_timeout_seconds: Annotated[float, Field(gt=0, le=300, description="time that a stop waits for open requests")] = 20

    @property
    def link_keys(self) -> dict[str, bytes]:
        """Return the keys of the links, the newest first."""
        return keys_of(self.links, LINK_KEYS_SETTING)

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if not self.link_keys:
            raise ValueError(
                f"the tracker needs {LINK_KEYS_SETTING} or {LINK_KEYS_SETTING}_FILE, the same keys as the channels that write the "
                "links; `starling secrets new-key` prints a key"
            )
        return self
