"""Pure core: a digest as an Adaptive Card, in the message that a workflow of Teams with a webhook trigger takes.

Names and ids are text runs of a rich text block: Teams interprets Markdown in text blocks, and none in text runs. A mention needs
an entity beside the card, of which there is none.
"""

import json
from typing import Any, Final

from starling_campaigns.digests.digest import MOST_NAME_CHARACTERS, Digest, SegmentChanges, lines_of, period_of, short, summary_of

_MOST_CARD_BYTES: Final = 20_000
"""Teams refuses a message of more than 28 KB. The rest is that of the envelope and of what Teams adds."""


def teams_message(digest: Digest, title: str, digest_id: str) -> str:
    """Return the body of the request. `digest_id`: the id of the block with the period."""
    rows, left = _rows(digest)
    period = period_of(digest) if not left else f"{period_of(digest)}, and {left} more segments"
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "fallbackText": summary_of(digest),
        "body": [
            _block(_run(title, weight="Bolder", size="Medium")),
            *rows,
            {**_block(_run(period, isSubtle=True, size="Small")), "id": digest_id},
        ],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return json.dumps({"type": "message", "attachments": [attachment]}, separators=(",", ":"), ensure_ascii=False)


def _rows(digest: Digest) -> tuple[list[dict[str, Any]], int]:
    """Return the blocks of the segments, and the number of segments for which there is no room."""
    rows: list[dict[str, Any]] = []
    shown, size_bytes = 0, 0
    for changes in digest.segments.values():
        found = _of_segment(changes)
        size_bytes += len(json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"))
        if shown and size_bytes > _MOST_CARD_BYTES:
            break
        rows += found
        shown += 1
    return rows, len(digest.segments) - shown


def _of_segment(changes: SegmentChanges) -> list[dict[str, Any]]:
    name = short(changes.name, MOST_NAME_CHARACTERS)
    rows = []
    for line in lines_of(changes):
        more = f" and {line.more:,} more" if line.more else ""
        rows.append(
            _block(
                _run(f"{name} ", weight="Bolder"),
                _run(f"{line.changes:,} {line.direction}: "),
                _run(", ".join(line.users), fontType="Monospace"),
                *([_run(more)] if more else []),
            )
        )
    return rows


def _block(*runs: dict[str, Any]) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": list(runs)}


def _run(text: str, **style: Any) -> dict[str, Any]:
    return {"type": "TextRun", "text": text, **style}
