"""Edge: the response schemas of tokens and write keys, for `/openapi.json`."""

from typing import Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import INSTANT, PageModel


class CredentialModel(BaseModel):
    """A token or a write key, without its secret."""

    id: str
    name: str
    prefix: str = Field(description="First characters of the newest secret")
    last4: str = Field(description="Last four characters of the newest secret")
    created_at: str = Field(description=INSTANT)
    created_by: str = Field(description="The token that created it: its id, or the name of a token of the settings")
    expires_at: str | None = Field(description="Instant from which the newest secret is refused; null: never")
    previous_secret_expires_at: str | None = Field(description="Instant until which an earlier secret works too; null if none does")
    revoked: bool
    revoked_at: str | None


class TokenModel(CredentialModel):
    """An API token, without its secret."""

    role: Literal["viewer", "editor", "approver", "admin"]


class IssuedTokenModel(TokenModel):
    """An API token with its new secret."""

    secret: str | None = Field(
        description="The token to send, in this response only; null in a dry run and in a repetition with the same Idempotency-Key"
    )


class TokenPageModel(PageModel[TokenModel]):
    """One page of tokens."""


Scope = Literal["track", "identify", "page", "screen", "group", "alias", "batch", "import"]


class WriteKeyModel(CredentialModel):
    """A write key, without its secret."""

    scopes: list[Scope] = Field(description="The endpoints of ingest that it may use")


class IssuedWriteKeyModel(WriteKeyModel):
    """A write key with its new secret."""

    secret: str | None = Field(
        description="The key to send, in this response only; null in a dry run and in a repetition with the same Idempotency-Key"
    )


class WriteKeyPageModel(PageModel[WriteKeyModel]):
    """One page of write keys."""
