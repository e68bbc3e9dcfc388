"""Edge: the response schemas of targets, for `/openapi.json`."""

from typing import Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import DefinitionModel, PageModel


class TargetModel(DefinitionModel):
    """A target, with the fields of its channel. Every secret is shown as `***`."""

    model_config = {"extra": "allow"}

    name: str
    channel: str
    disabled: bool | None = Field(default=None, description="True for a target to which nothing is sent")
    disabled_because: str | None = Field(default=None, description="Reason why the target is disabled")
    status: Literal["active", "disabled", "archived"]


class TargetTestModel(BaseModel):
    """The result of a test call."""

    message_id: str = Field(description="The id of the test, which an example digest contains")
    delivered: bool = Field(description="Whether the endpoint has answered 2xx, or the topic exists")
    status: int | None = Field(description="Status code of the answer; null without one, and of Kafka")
    took_ms: int = Field(description="Time of the attempt in milliseconds")
    answer: str | None = Field(description="The first 1,000 bytes of the answer's body, or the topic; null without an answer")
    reason: (
        Literal[
            "status",
            "address_refused",
            "name_not_resolved",
            "not_connected",
            "tls_failed",
            "timeout",
            "no_http_answer",
            "topic_missing",
            "not_allowed",
        ]
        | None
    ) = Field(description="Why the example was not delivered, or the topic cannot be written")
    message: str | None = Field(description="The reason in words, and what follows from it")


class TargetPageModel(PageModel[TargetModel]):
    """One page of targets."""
