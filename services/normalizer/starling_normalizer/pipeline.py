"""Pure core: one ingest record in, one event out: the whole way, top to bottom.

READ needs nothing but the record; FOLD needs the profile too, and is the only part that changes it. A stage gives
the work back with what it found out, or says why the way ends here. Bad data never raises.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from starling_common.outcome import Refused, Skipped
from starling_common.settings import Clock
from starling_common.topics import INGEST_KINDS
from starling_common.values import record_key
from starling_normalizer.dating import event_time
from starling_normalizer.dedupe import is_duplicate, message_hash, remember
from starling_normalizer.enrich import join_products
from starling_normalizer.events import behaviour_event, profile_changed
from starling_normalizer.item import Group, Identify, Track, View, check_item, packed_text, read_item
from starling_normalizer.profile import add_anonymous_id, merge_traits
from starling_normalizer.work import Rules, Work

Step: TypeAlias = Work | Skipped | Refused
Stage: TypeAlias = Callable[[Work, Rules], Step]


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
