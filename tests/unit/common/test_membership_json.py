"""A membership record as JSON: the feed of the API and a webhook carry the same bytes."""

import json

from starling_api.feed.changes import FeedRequest, read_page
from starling_delivery.policy import requests_for
from tests.unit.api.memory import MemoryFeed
from tests.unit.delivery.making import change, targets

EXPECTED = (
    '{"event_id":"event-of-ada-vip-ENTERED","workspace":"default","user_id":"ada","anonymous_ids":[],"segment_key":"vip",'
    '"segment_name":"VIP","segment_version":1,"status":"ENTERED","sequence":1,"effective_at":"1970-01-01T00:00:01.000Z",'
    '"decided_at":"1970-01-01T00:00:02.000Z","cause":{"kind":"EVENT","message_id":"m1","event_name":"Order Completed"},'
    '"correlation_id":"c1","traits":{"plan":"pro"},"memberships":["vip"],"received_at":"1970-01-01T00:00:01.500Z"}'
)


def test_the_data_of_a_webhook_has_these_bytes() -> None:
    [request] = requests_for(change(), targets(), "webhook", 0)
    assert request["payload"] == f'{{"type":"segment.entered","timestamp":"1970-01-01T00:00:01.000Z","data":{EXPECTED}}}'


def test_the_feed_of_the_api_has_the_same() -> None:
    feed = MemoryFeed()
    feed.partitions[0].append(("default", change()))
    [found] = read_page(feed, FeedRequest("default", frozenset(), None, 10)).items
    assert json.dumps(found, separators=(",", ":")) == EXPECTED
