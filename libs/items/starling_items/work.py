"""Pure core: the state of a record in the pipeline, and the dependencies of its stages."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from starling_common.settings import Clock
from starling_items.dedupe import DEFAULT_WINDOW_MS
from starling_items.enrich import Product
from starling_items.item import Item, Json
from starling_items.profile import Profile


@dataclass(frozen=True, slots=True)
class StageDependencies:
    """The dependencies of all stages. The arguments of `find_product` are a workspace and a product id."""

    clock: Clock
    find_product: Callable[[str, str], Product | None]
    duplicate_window_ms: int = DEFAULT_WINDOW_MS
    """Stream time within which a repeated message id of a profile is a duplicate."""


class Work(msgspec.Struct):
    """One `IngestReceived` record in the pipeline. The stage named beside a field sets it.

    The caller sets `key` (the record's), `profile` and `stream_time_ms` after the stages that read the item alone.
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
