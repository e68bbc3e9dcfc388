"""Pure core: the schemas of the bodies of campaigns, of their previews and tests."""

from starling_api.http.openapi.schemas import COMPONENTS, KEY, Schema, body, read_only
from starling_campaigns.definitions.campaign import REQUIRED_FIELDS
from starling_campaigns.schema import campaign_fields


def campaign_bodies() -> dict[str, Schema]:
    """Return the components of the bodies that create and change a campaign, by name."""
    campaign, required = campaign_fields(), [name for name in REQUIRED_FIELDS if name != "key"]
    parts = {f"Campaign{name.title()}": campaign[name] for name in ("trigger", "cancel", "goal", "variants")}
    campaign |= {name: {"$ref": f"{COMPONENTS}Campaign{name.title()}"} for name in ("trigger", "cancel", "goal", "variants")}
    return {
        **parts,
        "CampaignDefinition": body("A new campaign", campaign, list(REQUIRED_FIELDS)),
        "CampaignUpdate": body("A changed campaign", campaign | read_only(), required),
    }


def preview_bodies() -> dict[str, Schema]:
    """Return the components of the bodies of a preview and of a test message, by name."""
    addresses: Schema = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 10, "uniqueItems": True}
    return {
        "CampaignPreviewRequest": body("The user of a preview", _preview_fields(), ["user"]),
        "CampaignTestRequest": body(
            "The user of a test message, and where it goes", {**_preview_fields(), "to": addresses}, ["user", "to"]
        ),
    }


def _preview_fields() -> dict[str, Schema]:
    return {
        "user": {"type": "string", "minLength": 1, "maxLength": 512},
        "variant": {**KEY, "description": "Default: the user's own variant"},
        "locale": {"type": "string", "maxLength": 35, "description": "Default: the trait `locale`"},
        "event": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "properties": {"type": "object"}},
            "additionalProperties": False,
        },
    }
