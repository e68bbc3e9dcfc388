"""Pure core: what travels through the pipeline."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from starling_common.settings import Clock
from starling_items.enrich import Product
from starling_items.item import Item, Json
from starling_items.profile import Profile


@dataclass(frozen=True, slots=True)
class Rules:
    """What is the same for every record. `find_product` takes a workspace and a product id."""

    clock: Clock
    find_product: Callable[[str, str], Product | None]


class Work(msgspec.Struct):
    """One `IngestReceived` record on its way; a field is filled in by the stage that is named beside it.

    `key` (the record's), `profile` and `stream_time_ms` are handed in between the pipeline's two halves.
    """

    received: dict[str, Any]
    item: Item = msgspec.field(default_factory=Item)  # parse_item
    profile_id: str = ""  # validate
    event_time_ms: int = 0  # date
    key: bytes = b""
    profile: Profile = msgspec.field(default_factory=Profile)
    stream_time_ms: int = 0
    message: int = 0  # deduplicate
    changed: list[str] = []  # fold_profile
    properties: Json = {}  # enrich
    products: list[Json] = []  # enrich
    topic: str = ""  # write
    event: dict[str, Any] = {}  # write
