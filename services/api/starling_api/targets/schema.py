"""Pure core: the schemas of the bodies of targets."""

from starling_api.definitions.webhook_fields import MASK
from starling_api.http.openapi.schemas import KEY, Schema, body, read_only
from starling_campaigns.definitions.targets import CHANNEL_FIELDS, COMMON_FIELDS
from starling_campaigns.schema import target_schemas


def target_bodies() -> dict[str, Schema]:
    """Return the components of the bodies of targets, by name. A changed target may leave its secrets out, or send them masked."""
    settings = sorted(set().union(*CHANNEL_FIELDS.values()))
    target: dict[str, Schema] = {
        "key": KEY,
        "channel": {"enum": [*CHANNEL_FIELDS]},
        **{name: {} for name in sorted(COMMON_FIELDS - {"key", "channel"})},
    }
    return {
        "TargetDefinition": {
            "description": "A new target: the fields depend on its channel",
            "anyOf": [*target_schemas().values()],
        },
        "TargetUpdate": body(
            f"A changed target. A secret that is missing or `{MASK}` keeps its stored value.",
            target | {name: {} for name in settings} | read_only(),
            ["channel"],
        ),
    }
