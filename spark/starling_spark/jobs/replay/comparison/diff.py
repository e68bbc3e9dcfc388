"""Edge: a replay compared with the published memberships of its instant, and with the profiles on events."""

from starling_common.kafka.topics import MEMBERSHIP, MEMBERSHIP_STATE
from starling_spark.history import feed
from starling_spark.history.memberships import members, membership_changes, stays
from starling_spark.history.past import timed
from starling_spark.jobs.replay.comparison.memberships import Difference, differences
from starling_spark.jobs.replay.comparison.profiles import ProfileDifferences, live_profiles, profile_differences
from starling_spark.jobs.replay.job import read_manifest
from starling_spark.jobs.replay.manifest import Manifest
from starling_spark.jobs.replay.place import ReplayContext
from starling_spark.jobs.replay.reading import live_past


def diff(context: ReplayContext, name: str) -> tuple[Manifest, list[Difference]]:
    """Return the differences of each segment. Raises: ReplayNotFound; the error of a failed task."""
    manifest = read_manifest(context, name)
    topics = [context.topic(topic) for topic in (MEMBERSHIP, MEMBERSHIP_STATE)]
    replayed = context.spark.read.parquet(context.table(name, "members"))
    source = feed.FeedSource(context.spark, context.settings.kafka.brokers, context.wire, context.lake)
    with feed.feed_read(source, topics) as found:
        live = members(stays(membership_changes(found.changes, manifest.until_ms)))
        return manifest, differences(live, replayed, manifest.segments)


def diff_profiles(context: ReplayContext, manifest: Manifest) -> ProfileDifferences:
    """Return the differences to the profiles on the last events. Sorts all past records. Raises: the error of a failed task."""
    replayed = context.spark.read.parquet(context.table(manifest.name, "people"))
    live = live_profiles(timed(live_past(context), context.settings.clock), manifest.until_ms)
    return profile_differences(live, replayed)
