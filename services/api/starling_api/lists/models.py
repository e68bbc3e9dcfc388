"""Edge: the response schemas of uploaded lists, for `/openapi.json`."""

from typing import Literal

from pydantic import BaseModel, Field

from starling_api.http.openapi.models import DefinitionModel, PageModel


class ListModel(DefinitionModel):
    """An uploaded list, without its members."""

    name: str
    description: str
    status: Literal["active", "archived"]


class ListPageModel(PageModel[ListModel]):
    """One page of uploaded lists."""


class ListMemberModel(BaseModel):
    """One user on a list."""

    user_id: str


class ListMemberPageModel(PageModel[ListMemberModel]):
    """One page of the members of a list."""


class UploadModel(BaseModel):
    """The result of an upload."""

    key: str
    users: int = Field(description="Number of ids in the upload; an id that occurs twice counts twice")
