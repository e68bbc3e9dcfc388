"""Edge: the response schemas of the audit log, for `/openapi.json`."""

from typing import Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import INSTANT, PageModel


class AuditModel(BaseModel):
    """One successful write of the API."""

    recorded_at: str = Field(description=INSTANT)
    workspace: str
    actor: str = Field(description="The token: its id, or the name of a token of the settings")
    actor_name: str = Field(description="The name that an admin gave the token; empty for a token of the settings")
    role: Literal["viewer", "editor", "approver", "admin"]
    method: Literal["POST", "PUT", "DELETE"]
    path: str
    resource: str = Field(description="The collection, such as `segments` or `tokens`")
    key: str = Field(description="Key or id of the changed resource")
    revision_before: int | None = Field(description="Revision of a definition before the write; null for a new one")
    revision_after: int | None = Field(description="Revision of a definition after the write")
    correlation_id: str = Field(description="Id of the request")


class AuditPageModel(PageModel[AuditModel]):
    """One page of the audit log. A page with few items, or with none, can have a next page."""
