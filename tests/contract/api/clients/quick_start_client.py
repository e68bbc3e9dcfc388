# mypy: ignore-errors
# ruff: noqa: T201
"""The quick start with the generated package: create a segment, list the segments, read its members, preview a condition."""

import json
import sys

from starling_client import AuthenticatedClient
from starling_client.api.segments import (
    create_segment,
    get_segment,
    list_segment_members,
    list_segments,
    preview_segment,
    update_segment,
)
from starling_client.models import ConditionRequest, SegmentDefinition, SegmentUpdate

url, token = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token, raise_on_unexpected_status=True, httpx_args={"trust_env": False})
where = {"event": "Order Completed", "op": "gte", "value": 2, "within": "90d"}
body = SegmentDefinition.from_dict({"key": "python", "name": "Repeat buyers", "where": where})
segment = create_segment.sync(client=client, body=body)
listed = list_segments.sync(client=client, limit=10)
members = list_segment_members.sync(segment.key, client=client)
preview = preview_segment.sync(client=client, body=ConditionRequest.from_dict({"where": where}))
read = get_segment.sync_detailed(segment.key, client=client)
edited = SegmentUpdate.from_dict({**read.parsed.to_dict(), "name": "Loyal buyers"})
renamed = update_segment.sync(segment.key, client=client, body=edited, if_match=read.headers["etag"])
found = {
    "created": segment.key,
    "listed": [one.key for one in listed.items],
    "members": len(members.items),
    "estimate": preview.estimate,
    "name": renamed.name,
}
print(json.dumps(found))
