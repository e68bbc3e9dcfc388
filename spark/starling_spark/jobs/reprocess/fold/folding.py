"""Pure core: one user's past records through the normalizer's stages, row by row, as live."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from starling_common.kafka.topics import BEHAVIOUR
from starling_common.outcome import Done, Refused, Skipped
from starling_common.settings import Clock
from starling_common.values import record_key
from starling_items.computed import fold_computed
from starling_items.dedupe import DEFAULT_WINDOW_MS
from starling_items.enrich import Product
from starling_items.events import Fields
from starling_items.pipeline import STAGES, Stages, fold_read, placeless, read_received
from starling_items.profile import Profile
from starling_items.work import StageDependencies, Work

ACCEPTED, DUPLICATE, REFUSED, UNCHANGED = "accepted", "duplicate", "refused", "unchanged"
OUTCOMES: Final = (ACCEPTED, DUPLICATE, REFUSED, UNCHANGED)
"""The outcomes of a row, as printed; unchanged: a computed trait with an equal value."""

Row: TypeAlias = Mapping[str, Any]
"""A row of `raw.timed`."""

_NO_KEY: Final = Refused("missing_key", "the record has no key: write it with workspace/id as its key")


@dataclass(frozen=True, slots=True)
class Making:
    """The parameters of all rows. `products`: the current catalog, by `workspace/product_id`."""

    clock: Clock
    products: Mapping[bytes, Product]
    stages: Stages = STAGES
    duplicate_window_ms: int = DEFAULT_WINDOW_MS


class Made(NamedTuple):
    """The result of one row; the events are mappings with the names of their schemas."""

    outcome: str
    behaviour: Fields | None = None
    profile: Fields | None = None
    refused: Refused | None = None


def event_time_ms(row: Row, making: Making) -> int | None:
    """Return the time to which a row advances the event clock; None: not at all."""
    item = row["item"]
    if item is None or row["refused"] is not None or not row["origin_key"] or placeless(item) is not None:
        return None
    read = read_received(item, _stage_dependencies(row, making), making.stages)
    return None if read.refused else read.work.event_time_ms


def made_of(row: Row, key: bytes | None, profile: Profile, making: Making) -> Made:
    """Return the result of the next row of one user's past, and fold it into the profile."""
    if row["refused"] is not None:
        return refused_row(Refused(row["refused"]["code"], row["refused"]["message"]))
    if not key:
        return refused_row(_NO_KEY)
    return _made_of_item(row, key, profile, making) if row["computed"] is None else _made_of_computed(row, key, profile)


def _made_of_item(row: Row, key: bytes, profile: Profile, making: Making) -> Made:
    problem = placeless(row["item"])
    if problem is not None:
        return refused_row(problem)
    stage_dependencies = _stage_dependencies(row, making)
    read = read_received(row["item"], stage_dependencies, making.stages)
    read.work.key, read.work.stream_time_ms = key, row["stream_ms"]
    match fold_read(read, profile, stage_dependencies, making.stages):
        case Work() as work:
            return _accepted(work.event, is_behaviour=work.topic == BEHAVIOUR)
        case Skipped():
            return Made(DUPLICATE)
        case Refused() as why:
            return refused_row(why)


def _made_of_computed(row: Row, key: bytes, profile: Profile) -> Made:
    """Fold a computed trait that changed the profile live; its version was checked then and is ignored."""
    change = row["computed"]
    trait = change["changed"].partition(".")[2]
    value = msgspec.json.decode(change["traits"]).get("computed", {}).get(trait)
    profile.computations.pop(trait, None)
    text = None if value is None else msgspec.json.encode(value).decode()
    computed = {
        **change,
        "received_at": row["received_at"],
        "trait_key": trait,
        "trait_version": 0,
        "value": text,
        "epoch": 0,
        "sequence": 0,
    }
    match fold_computed(computed, key, profile):
        case Done(dict() as changed):
            return _accepted({**changed, "event_id": change["event_id"]}, is_behaviour=False)
        case Refused() as why:
            return refused_row(why)
    return Made(UNCHANGED)


def _accepted(event: Fields, *, is_behaviour: bool) -> Made:
    # The profile's list is mutable and changes with later rows.
    own = {**event, "anonymous_ids": list(event["anonymous_ids"])}
    return Made(ACCEPTED, behaviour=own) if is_behaviour else Made(ACCEPTED, profile=own)


def refused_row(why: Refused) -> Made:
    """Return the result of a refused row."""
    return Made(REFUSED, refused=why)


def _stage_dependencies(row: Row, making: Making) -> StageDependencies:
    own = {one["product_id"]: Product(one["category"], one["price"], one["brand"], one["name"]) for one in row["products"] or ()}

    def find(workspace: str, product_id: str) -> Product | None:
        return own.get(product_id) or making.products.get(record_key(workspace, product_id))

    return StageDependencies(making.clock, find, making.duplicate_window_ms)
