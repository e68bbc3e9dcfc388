"""Edge: a replay beside what the segmenter has told of that same instant, and what events said of profiles."""

from starling_common.topics import MEMBERSHIP, MEMBERSHIP_STATE
from starling_spark.history import feed
from starling_spark.history.memberships import members, membership_changes, stays
from starling_spark.history.past import timed
from starling_spark.jobs.replay.comparing import Difference, differences
from starling_spark.jobs.replay.job import about
from starling_spark.jobs.replay.manifest import About
from starling_spark.jobs.replay.place import Place
from starling_spark.jobs.replay.profiles import ProfileDifferences, live_profiles, profile_differences
from starling_spark.jobs.replay.reading import live_past


def diff(place: Place, name: str) -> tuple[About, list[Difference]]:
    """Each segment, with how far the two sides differ. Raises: NoSuchReplay; whatever a task failed with."""
    told = about(place, name)
    topics = [place.topic(topic) for topic in (MEMBERSHIP, MEMBERSHIP_STATE)]
    replayed = place.spark.read.parquet(place.table(name, "members"))
    source = feed.FeedSource(place.spark, place.settings.kafka.brokers, place.wire, place.lake)
    with feed.feed_read(source, topics) as found:
        live = members(stays(membership_changes(found.changes, told.until_ms)))
        return told, differences(live, replayed, told.segments)


def diff_profiles(place: Place, told: About) -> ProfileDifferences:
    """Each person's profile, beside that on the last events. Puts all of the past in order. Raises: whatever a task failed with."""
    replayed = place.spark.read.parquet(place.table(told.name, "people"))
    live = live_profiles(timed(live_past(place), place.settings.clock), told.until_ms)
    return profile_differences(live, replayed)
