"""Pure core: the schemas of the bodies of computed traits."""

from starling_api.http.openapi.schemas import COMPONENTS, Schema, read_only
from starling_api.sql.schema import sql_trait_schema
from starling_segments.parse.schema import label_schemas, trait_schema


def trait_bodies() -> dict[str, Schema]:
    """Return the components of the bodies of computed traits, by name."""
    event, ratio = trait_schema()["anyOf"]
    found: dict[str, Schema] = {}
    for name, schema in (("EventTrait", event), ("RatioTrait", ratio), ("SqlTrait", sql_trait_schema())):
        own = [field for field in schema["required"] if field != "key"]
        found[f"{name}Definition"] = {**schema, "properties": schema["properties"] | label_schemas()}
        found[f"{name}Update"] = {**schema, "properties": schema["properties"] | label_schemas() | read_only(), "required": own}
    for ending, description in (("Definition", "A new computed trait"), ("Update", "A changed computed trait")):
        alternatives = [{"$ref": f"{COMPONENTS}{name}{ending}"} for name in ("EventTrait", "RatioTrait", "SqlTrait")]
        found[f"Trait{ending}"] = {"description": description, "anyOf": alternatives}
    return found
