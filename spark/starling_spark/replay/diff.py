"""Edge: a replay beside what the segmenter has told of that same instant."""

from starling_common.topics import MEMBERSHIP, MEMBERSHIP_STATE
from starling_spark import feed
from starling_spark.memberships import members, stays, turns
from starling_spark.replay.about import About
from starling_spark.replay.comparing import Difference, differences
from starling_spark.replay.job import about
from starling_spark.replay.place import Place


def diff(place: Place, name: str) -> tuple[About, list[Difference]]:
    """Each segment, with how far the two sides differ. Raises: NoSuchReplay; whatever a task failed with."""
    told = about(place, name)
    topics = [place.topic(topic) for topic in (MEMBERSHIP, MEMBERSHIP_STATE)]
    replayed = place.spark.read.parquet(place.table(name, "members"))
    source = feed.Place(place.spark, place.settings.kafka.brokers, place.wire, place.lake)
    with feed.feed_read(source, topics) as found:
        live = members(stays(turns(found.changes, told.until_ms)))
        return told, differences(live, replayed, told.segments)
