"""Edge: the response schemas that several subjects share. `document.py` removes the suffix `Model` from each name."""

from typing import Final, Generic, Literal, TypeVar

from pydantic import BaseModel, Field, RootModel

T = TypeVar("T")

INSTANT: Final = "Instant in ISO 8601, UTC"

COMPONENT: Final = "x-component"
"""Marks a schema for which `document.py` writes a reference to the component of that name."""


class AsOf(RootModel[str | None]):
    """Stream time that this answer reflects; null before the first event."""


class NextCursor(RootModel[str | None]):
    """Cursor of the next page; null on the last page."""


class PageModel(BaseModel, Generic[T]):
    """One page of a list."""

    items: list[T]
    next_cursor: NextCursor
    as_of: AsOf


class FieldErrorModel(BaseModel):
    """One error in a body or a parameter."""

    pointer: str = Field(description="JSON pointer into the body, or a place such as `query/limit` or `row/7` of a CSV file")
    code: str = Field(description="Stable code of the error")
    message: str = Field(description="Description of the error")
    expected: str = Field(description="Description of a valid value")


class ProblemModel(BaseModel):
    """An error (RFC 9457). `code` is stable, `message` names the cause and the cure."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    message: str
    success: Literal[False]
    errors: list[FieldErrorModel] | None = Field(default=None, description="Every error of the body or the parameters")
    used_by: list[str] | None = Field(default=None, description="Of `in_use`: keys of the definitions that use the resource")
    revision: int | None = Field(default=None, description="Of `version_conflict`: the current revision")


class DefinitionModel(BaseModel):
    """The fields that the server adds to every definition."""

    key: str
    version: int = Field(description="Grows with each change of the meaning")
    revision: int = Field(description="Grows with every change. Quoted: the ETag")
    status: str
    tags: list[str] | None = Field(default=None, description="Labels without an effect")
    owner: str | None = Field(default=None, description="Person or team, without an effect")
    created_at: str = Field(description=INSTANT)
    updated_at: str = Field(description=INSTANT)
    used_by: list[str] | None = Field(
        default=None,
        description="Definitions that use it; only for one key",
    )
    as_of: str | None = Field(
        default=None,
        description="Stream time of the status; only for one key",
    )
