"""Pure core: the stages that turn one ingest record into one event, in order.

READ needs only the record. FOLD also needs the profile and is the only part that changes it. A stage returns the work with its
results, or the reason why processing ends. Invalid data never raises.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from starling_common.kafka.topics import INGEST_KINDS
from starling_common.outcome import Refused, Skipped
from starling_common.records.dead_letters import bad_received_at
from starling_common.settings import Clock
from starling_common.time.instants import LATEST_MS
from starling_common.values import record_key
from starling_items.dating import event_time
from starling_items.dedupe import is_duplicate, message_hash, remember
from starling_items.enrich import join_products
from starling_items.events import behaviour_event, profile_changed
from starling_items.item import Group, Identify, Track, View, check_id_length, check_item, packed_text, read_item
from starling_items.profile import Profile, add_anonymous_id, merge_traits
from starling_items.work import StageDependencies, Work

Step: TypeAlias = Work | Skipped | Refused
Stage: TypeAlias = Callable[[Work, StageDependencies], Step]


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages in two halves. The caller sets the profile between them."""

    read: tuple[Stage, ...]
    fold: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """An ingest record after the first half; `refused` is None if the second half can run."""

    work: Work
    refused: Refused | None

    @property
    def correlation_id(self) -> str:
        """Return the correlation id of the record."""
        return self.work.received["correlation_id"]  # type: ignore[no-any-return]


def placeless(record: Mapping[str, Any]) -> Refused | None:
    """Return the refusal of a record whose `received_at` is no valid time, else None.

    `received_at` is the order of arrival and the timestamp of every output record.
    """
    if 0 <= record["received_at"] // 1000 <= LATEST_MS:
        return None
    return bad_received_at(record["received_at"])


def run(stages: tuple[Stage, ...], work: Work, dependencies: StageDependencies) -> Step:
    """Run the stages; return the work after the last one, or the result of the stage that ended processing."""
    step: Step = work
    for stage in stages:
        step = stage(work, dependencies)
        if step is not work:
            break
    return step


def parse_item(work: Work, _dependencies: StageDependencies) -> Step:
    """Parse the item (JSON or Protocol Buffers) as a typed call. The ids of the user are in the record itself."""
    received = work.received
    if received["kind"] not in INGEST_KINDS:
        return Refused("unknown_kind", f"kind: {received['kind'][:40]!r} is none of {', '.join(INGEST_KINDS)}")
    text = received["item"] if received["item_protobuf"] is None else packed_text(received["item_protobuf"])
    item = text if isinstance(text, Refused) else read_item(received["kind"], text)
    if isinstance(item, Refused):
        return item
    work.item = item
    return work


def validate(work: Work, _dependencies: StageDependencies) -> Step:
    """Check the required ids and the rules of the call's kind."""
    received = work.received
    work.profile_id = received["user_id"] or received["anonymous_id"] or ""
    if not work.profile_id:
        return Refused("missing_id", "userId, anonymousId: both are missing: send at least one")
    for place, identifier in (("userId", received["user_id"]), ("anonymousId", received["anonymous_id"])):
        if identifier and (too_long := check_id_length(place, identifier)):
            return too_long
    if not received["message_id"]:
        return Refused("missing_message_id", "messageId: is missing: send an id that is unique per call and unchanged in retries")
    return check_item(work.item, work.profile_id) or work


def date(work: Work, dependencies: StageDependencies) -> Step:
    """Compute the event time."""
    item, received = work.item, work.received
    moment = event_time(
        item.own_timestamp(),
        item.sent_at or received["sent_at"],
        received["received_at"] // 1000,
        as_sent=received["imported"] or dependencies.clock is Clock.EVENT,
    )
    if isinstance(moment, Refused):
        return moment
    work.event_time_ms = moment
    return work


def identify_profile(work: Work, _dependencies: StageDependencies) -> Step:
    """Refuse a record whose key is not that of its user, because the key selects the profile."""
    expected = record_key(work.received["workspace"], work.profile_id)
    if work.key != expected:
        return Refused("wrong_key", f"key: is {work.key[:200]!r}, not {expected[:200]!r}: write the record with its own user's key")
    return work


def deduplicate(work: Work, dependencies: StageDependencies) -> Step:
    """Skip a record whose message id the profile received within the duplicates window."""
    work.message = message_hash(work.received["message_id"])
    if is_duplicate(work.profile.seen, work.message, work.stream_time_ms, dependencies.duplicate_window_ms):
        return Skipped("duplicate")
    return work


def fold_profile(work: Work, dependencies: StageDependencies) -> Step:
    """Apply the call to the profile. No other stage changes the profile, and a refused call does not change it."""
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
    remember(profile.seen, work.message, work.stream_time_ms, dependencies.duplicate_window_ms)
    return work


def enrich(work: Work, dependencies: StageDependencies) -> Step:
    """Add the name of a page as a property, and join the product catalog."""
    item = work.item
    if isinstance(item, Track | View):
        workspace = work.received["workspace"]
        find = partial(dependencies.find_product, workspace)
        work.properties, work.products = join_products(item.own_properties(), find)
    return work


def write(work: Work, _dependencies: StageDependencies) -> Step:
    """Build the output record and select its topic."""
    make = behaviour_event if isinstance(work.item, Track | View) else profile_changed
    work.topic, work.event = make(work)
    return work


READ: Final[tuple[Stage, ...]] = (parse_item, validate, date)
FOLD: Final[tuple[Stage, ...]] = (identify_profile, deduplicate, fold_profile, enrich, write)
STAGES: Final = Stages(READ, FOLD)


def read_received(received: dict[str, Any], dependencies: StageDependencies, stages: Stages = STAGES) -> Read:
    """Run the first half. A refused record has no event time and does not advance stream time."""
    work = Work(received)
    step = run(stages.read, work, dependencies)
    return Read(work, step if isinstance(step, Refused) else None)


def fold_read(read: Read, profile: Profile, dependencies: StageDependencies, stages: Stages = STAGES) -> Step:
    """Run the second half, which changes the profile if it returns the work. The caller has set `key` and `stream_time_ms`."""
    read.work.profile = profile
    return read.refused or run(stages.fold, read.work, dependencies)
