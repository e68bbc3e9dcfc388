"""Pure core: a `SegmentMembershipChanged` record as JSON. The feed of the API and the `data` of a webhook are the same bytes."""

import json
from typing import Any

from starling_common.time.instants import format_instant
from starling_common.wire import Record


def membership_json(record: Record) -> dict[str, Any]:
    """Return the record with instants in ISO 8601 and the traits as an object, in the order of its fields."""
    return dict(record) | {
        "effective_at": format_instant(record["effective_at"]),
        "decided_at": format_instant(record["decided_at"]),
        "received_at": format_instant(record["received_at"] // 1000),
        "traits": json.loads(record["traits"]),
    }
