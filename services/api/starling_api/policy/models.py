"""Edge: the response schemas of the policy and of a policy check, for `/openapi.json`."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import INSTANT, AsOf, DefinitionModel


class PolicyModel(DefinitionModel):
    """The policy of the workspace, with the fields of its document."""

    model_config = {"extra": "allow"}

    status: Literal["active", "archived"]


class CheckModel(BaseModel):
    """The result of one check."""

    check: str
    outcome: Literal["passed", "failed", "skipped"]
    reason: str | None
    observed: dict[str, Any] = Field(description="The values that the check was evaluated on")
    next_change_at: str | None = Field(description="The instant at which time alone changes the outcome; null for never")


class PolicyDecisionModel(BaseModel):
    """The decision about a message, with the result of every check."""

    verdict: Literal["send", "defer", "drop"]  # vocabulary: verdict: a field of the contract
    until: str | None = Field(description="End of a deferral: the earliest instant that satisfies quiet hours and caps")
    reason: str | None = Field(description="The reason of the first failed check, which decides")
    reasons: list[str] = Field(description="The reasons of all failed checks, in order")
    variant: str | None = Field(description="The user's variant of the campaign")
    next_change_at: str | None = Field(
        description="The earliest instant at which time alone may change the decision; null for never"
    )
    checks: list[CheckModel]
    at: str = Field(description=INSTANT)
    as_of: AsOf
