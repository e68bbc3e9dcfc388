"""Pure core: a digest as the message of an incoming webhook of Slack: blocks, and a text for notifications.

Slack interprets `<`, `>` and `&` in every text, which makes mentions and links of them. Names and ids are in code spans, in which
no other character has a meaning but the backtick.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from starling_campaigns.digests.digest import MOST_NAME_CHARACTERS, Digest, SegmentChanges, lines_of, period_of, short, summary_of

_MOST_SECTION_CHARACTERS: Final = 2_900
"""Slack refuses a section of more than 3,000 characters."""
_MOST_SECTIONS: Final = 45
"""Slack refuses a message of more than 50 blocks."""


def slack_message(digest: Digest, title: str, digest_id: str) -> str:
    """Return the body of the request. `digest_id`: the id of the block with the period."""
    sections, left = _sections(digest)
    period = period_of(digest) if not left else f"{period_of(digest)}, and {left} more segments"
    blocks = [
        {"type": "header", "text": {"type": "plain_text", "text": title, "emoji": False}},
        *({"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}} for text in sections),
        {"type": "context", "block_id": digest_id, "elements": [{"type": "plain_text", "text": period, "emoji": False}]},
    ]
    message: dict[str, Any] = {
        "text": f"{_escaped(title)}: {summary_of(digest)}",
        "blocks": blocks,
        "unfurl_links": False,
        "unfurl_media": False,
    }
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False)


def _sections(digest: Digest) -> tuple[list[str], int]:
    """Return the texts of the sections, and the number of segments for which there is no room."""
    sections, shown = [""], 0
    for changes in digest.segments.values():
        text = "\n".join(_lines(changes))
        if sections[-1] and len(sections[-1]) + 1 + len(text) > _MOST_SECTION_CHARACTERS:
            if len(sections) == _MOST_SECTIONS:
                break
            sections.append("")
        sections[-1] += f"\n{text}" if sections[-1] else text
        shown += 1
    return sections, len(digest.segments) - shown


def _lines(changes: SegmentChanges) -> Iterator[str]:
    name = _code(short(changes.name, MOST_NAME_CHARACTERS))
    for line in lines_of(changes):
        more = f" and {line.more:,} more" if line.more else ""
        yield f"{name} *{line.changes:,} {line.direction}*: {', '.join(map(_code, line.users))}{more}"


def _code(text: str) -> str:
    """Return a text in a code span. One of blanks alone, in which Slack sees no span, becomes a dash."""
    return f"`{_escaped(text.replace('`', chr(0x2019)).strip() or '-')}`"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
