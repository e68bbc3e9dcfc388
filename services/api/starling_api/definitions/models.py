"""Edge: the response schemas of segments, of versions and of the rotation of secrets, for `/openapi.json`."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from starling_api.backfills.models import BackfillModel
from starling_api.campaigns.models import CampaignModel, CampaignPageModel
from starling_api.http.openapi.models import COMPONENT, INSTANT, DefinitionModel, PageModel
from starling_api.lists.models import ListModel, ListPageModel
from starling_api.policy.models import PolicyModel
from starling_api.sql.models import EventTypeModel, EventTypePageModel, ViewModel, ViewPageModel
from starling_api.targets.models import TargetModel, TargetPageModel
from starling_api.traits.models import TraitModel, TraitPageModel
from starling_api.webhooks.models import WebhookModel, WebhookPageModel
from starling_common.cassandra.read_models import CAMPAIGN, COMPUTED_TRAIT, EVENT_TYPE, LIST, POLICY, SEGMENT, TARGET, VIEW, WEBHOOK

Where = Annotated[dict[str, Any], Field(json_schema_extra={COMPONENT: "Condition"})]


class SegmentModel(DefinitionModel):
    """A segment."""

    name: str
    description: str
    timezone: str
    where: Where
    status: Literal["backfilling", "active", "paused", "archived"]
    size: int | None = Field(default=None, description="Number of members; only in a list of segments")
    backfill: BackfillModel | None = Field(
        default=None, description="Progress of the backfill, while there is one; only in the answer for one key"
    )


class SegmentBatchResultModel(BaseModel):
    """The segments of a batch, in the order of the request."""

    items: list[SegmentModel]


class SegmentPageModel(PageModel[SegmentModel]):
    """One page of segments."""


class SecretHolderModel(BaseModel):
    """A definition or an import with secrets."""

    kind: Literal["webhook", "target", "import"]
    key: str


class UnreadableSecretModel(SecretHolderModel):
    """A definition or an import with a secret that cannot be decrypted."""

    reason: str = Field(description="Description of the secret, the id of the missing key and the cure")


class RotatedSecretsModel(BaseModel):
    """What a rotation of the key has done."""

    key_id: str = Field(description="Id of the newest key, with which every readable secret is encrypted now")
    rewritten: list[SecretHolderModel] = Field(description="Those whose secrets were plain, or encrypted with an older key")
    unreadable: list[UnreadableSecretModel] = Field(description="Those that stay as they are")
    complete: bool = Field(description="False: call it again for the others")


class VersionModel(BaseModel):
    """One change of a definition."""

    version: int
    revision: int
    action: str
    actor: str
    recorded_at: str = Field(description=INSTANT)
    document: dict[str, Any]


class VersionPageModel(PageModel[VersionModel]):
    """One page of the changes of a definition."""


MODELS: Final[dict[str, type[DefinitionModel]]] = {
    SEGMENT: SegmentModel, COMPUTED_TRAIT: TraitModel, WEBHOOK: WebhookModel, LIST: ListModel,
    CAMPAIGN: CampaignModel, TARGET: TargetModel, POLICY: PolicyModel, EVENT_TYPE: EventTypeModel,
    VIEW: ViewModel,
}  # fmt: skip

PAGES: Final[dict[str, type[BaseModel]]] = {
    SEGMENT: SegmentPageModel, COMPUTED_TRAIT: TraitPageModel, WEBHOOK: WebhookPageModel, LIST: ListPageModel,
    CAMPAIGN: CampaignPageModel, TARGET: TargetPageModel, EVENT_TYPE: EventTypePageModel, VIEW: ViewPageModel,
}  # fmt: skip
