"""Pure core: one ingest record in, one event out: the whole way, top to bottom.

READ needs nothing but the record; FOLD needs the profile too, and is the only part that changes it. A stage gives
the work back with what it found out, or says why the way ends here. Bad data never raises.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from starling_common.instants import LATEST_MS
from starling_common.outcome import Refused, Skipped
from starling_common.settings import Clock
from starling_common.topics import INGEST_KINDS
from starling_common.values import record_key
from starling_items.dating import event_time
from starling_items.dedupe import is_duplicate, message_hash, remember
from starling_items.enrich import join_products
from starling_items.events import behaviour_event, profile_changed
from starling_items.item import Group, Identify, Track, View, check_id_length, check_item, packed_text, read_item
from starling_items.profile import Profile, add_anonymous_id, merge_traits
from starling_items.work import Rules, Work

Step: TypeAlias = Work | Skipped | Refused
Stage: TypeAlias = Callable[[Work, Rules], Step]


@dataclass(frozen=True, slots=True)
class Stages:
    """The way in two halves, the profile being handed in between them."""

    read: tuple[Stage, ...]
    fold: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """An ingest record after the first half: `refused` is None while it may go on."""

    work: Work
    refused: Refused | None


def placeless(record: Mapping[str, Any]) -> Refused | None:
    """Why a record has no place in the order of arrival, which also dates whatever is written of it; None when it has."""
    if 0 <= record["received_at"] // 1000 <= LATEST_MS:
        return None
    return Refused("bad_received_at", f"received_at: {record['received_at']} is no time in microseconds since 1970")


def run(stages: tuple[Stage, ...], work: Work, rules: Rules) -> Step:
    """The work after the last stage, or the answer of the stage that ended it."""
    step: Step = work
    for stage in stages:
        step = stage(work, rules)
        if step is not work:
            break
    return step


def parse_item(work: Work, _rules: Rules) -> Step:
    """The item's JSON text, or what means the same, becomes a typed call; whose it is stands beside it in the record."""
    received = work.received
    if received["kind"] not in INGEST_KINDS:
        return Refused("unknown_kind", f"kind: {received['kind'][:40]!r} is none of {', '.join(INGEST_KINDS)}")
    text = received["item"] if received["item_protobuf"] is None else packed_text(received["item_protobuf"])
    item = text if isinstance(text, Refused) else read_item(received["kind"], text)
    if isinstance(item, Refused):
        return item
    work.item = item
    return work


def validate(work: Work, _rules: Rules) -> Step:
    """A well-typed call may still lack something, or say what a sender may not say."""
    received = work.received
    work.profile_id = received["user_id"] or received["anonymous_id"] or ""
    if not work.profile_id:
        return Refused("missing_id", "userId, anonymousId: both are missing: send at least one")
    for place, identifier in (("userId", received["user_id"]), ("anonymousId", received["anonymous_id"])):
        if identifier and (too_long := check_id_length(place, identifier)):
            return too_long
    if not received["message_id"]:
        return Refused("missing_message_id", "messageId: is missing: send an id that is new for each call and kept in its repeats")
    return check_item(work.item, work.profile_id) or work


def date(work: Work, rules: Rules) -> Step:
    """When it happened."""
    item, received = work.item, work.received
    moment = event_time(
        item.said_at(),
        item.sent_at or received["sent_at"],
        received["received_at"] // 1000,
        as_sent=received["imported"] or rules.clock is Clock.EVENT,
    )
    if isinstance(moment, Refused):
        return moment
    work.event_time_ms = moment
    return work


def identify_profile(work: Work, _rules: Rules) -> Step:
    """The profile is that of the record's key; a key that says otherwise would write to a stranger's."""
    expected = record_key(work.received["workspace"], work.profile_id)
    if work.key != expected:
        return Refused("wrong_key", f"key: is {work.key[:200]!r}, not {expected[:200]!r}: write the record with its own user's key")
    return work


def deduplicate(work: Work, _rules: Rules) -> Step:
    """A message id seen in the last 24 hours changes nothing."""
    work.message = message_hash(work.received["message_id"])
    if is_duplicate(work.profile.seen, work.message, work.stream_time_ms):
        return Skipped("duplicate")
    return work


def fold_profile(work: Work, _rules: Rules) -> Step:
    """What the call says about the person; the only stage that changes the profile, and only if it does not refuse."""
    profile, item, received = work.profile, work.item, work.received
    if isinstance(item, Identify):
        merged = merge_traits(profile.traits_json, item.sent_traits())
        if isinstance(merged, Refused):
            return merged
        profile.traits_json, work.changed = merged.traits_json, merged.names
    elif isinstance(item, Group):
        profile.group_id = str(item.group_id)
    if received["anonymous_id"]:
        add_anonymous_id(profile.anonymous_ids, received["anonymous_id"])
    remember(profile.seen, work.message, work.stream_time_ms)
    return work


def enrich(work: Work, rules: Rules) -> Step:
    """What a page is called becomes a property; what the catalog knows of products is joined in."""
    item = work.item
    if isinstance(item, Track | View):
        workspace = work.received["workspace"]
        find = partial(rules.find_product, workspace)
        work.properties, work.products = join_products(item.own_properties(), find)
    return work


def write(work: Work, _rules: Rules) -> Step:
    """The event as its topic carries it."""
    make = behaviour_event if isinstance(work.item, Track | View) else profile_changed
    work.topic, work.event = make(work)
    return work


READ: Final[tuple[Stage, ...]] = (parse_item, validate, date)
FOLD: Final[tuple[Stage, ...]] = (identify_profile, deduplicate, fold_profile, enrich, write)
STAGES: Final = Stages(READ, FOLD)


def read_received(received: dict[str, Any], rules: Rules, stages: Stages = STAGES) -> Read:
    """The first half. Of a record that it refuses the event's time is unknown, and moves nothing."""
    work = Work(received)
    step = run(stages.read, work, rules)
    return Read(work, step if isinstance(step, Refused) else None)


def fold_read(read: Read, profile: Profile, rules: Rules, stages: Stages = STAGES) -> Step:
    """The second half, with the work's `key` and `stream_time_ms` handed in. Changes the profile if it gives the work back."""
    read.work.profile = profile
    return read.refused or run(stages.fold, read.work, rules)
