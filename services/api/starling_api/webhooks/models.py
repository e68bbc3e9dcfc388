"""Edge: the response schemas of webhooks, for `/openapi.json`."""

from typing import Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import DefinitionModel, PageModel


class WebhookBatchModel(BaseModel):
    """How a webhook sends several changes in one request."""

    max_items: int = Field(description="Maximum of changes in one request")
    max_wait_ms: int = Field(description="Maximum time in milliseconds that a change waits for others")


class WebhookModel(DefinitionModel):
    """A webhook."""

    url: str
    secret: str | None = Field(
        default=None, description="Signing secret; only in the answers that create the webhook and that rotate its secret"
    )
    segments: list[str] | None = Field(description="Keys of the segments to send; null sends every segment")
    events: list[Literal["entered", "exited"]]
    format: Literal["standard", "segment-track", "segment-identify"]
    batch: WebhookBatchModel | None = Field(description="Null: each change is a request of its own")
    rate: int | None = Field(description="Most requests a second; null: no limit")
    headers: dict[str, str] = Field(description="Headers of each request; every value is shown as `***`")
    previous_secret_expires_at: str | None = Field(
        description="Instant until which messages are also signed with the previous secret; null if the secret was never rotated"
    )
    disabled: bool | None = Field(default=None, description="True after the receiver has answered 410")
    disabled_because: str | None = Field(default=None, description="Reason why the webhook is disabled")
    status: Literal["active", "disabled", "archived"]


class WebhookPageModel(PageModel[WebhookModel]):
    """One page of webhooks."""


class WebhookTestModel(BaseModel):
    """The result of a test call."""

    message_id: str = Field(description="The `webhook-id` of the request")
    delivered: bool = Field(description="Whether the endpoint has answered 2xx")
    status: int | None = Field(description="Status code of the answer; null without one")
    took_ms: int = Field(description="Time of the attempt in milliseconds")
    answer: str | None = Field(description="The first 1,000 bytes of the answer's body; null without an answer")
    reason: (
        Literal["status", "address_refused", "name_not_resolved", "not_connected", "tls_failed", "timeout", "no_http_answer"] | None
    ) = Field(description="Why the example change was not delivered")
    message: str | None = Field(description="The reason in words, and what follows from it")
