"""Digests: what they count, and the messages that show it."""

import json
from typing import Any

import pytest

from starling_campaigns.digests.digest import ENTERED, EXITED, MOST_USERS, Digest, example_digest, short, summary_of
from starling_campaigns.digests.slack import slack_message
from starling_campaigns.digests.teams import teams_message

HOSTILE = "<!channel> *bold* `x` <https://evil.example|click> & _a_ [link](https://evil.example)\n\u2028\x00@here"


def changed(segment: str, status: str, user: str, name: str | None = None) -> dict[str, str]:
    return {"segment_key": segment, "segment_name": name or segment.title(), "status": status, "user_id": user}


def digest_of(*changes: tuple[str, str, str]) -> Digest:
    digest = Digest()
    for number, (segment, status, user) in enumerate(changes):
        digest.add(changed(segment, status, user), 1_772_357_400_000 + 1000 * number)
    return digest


def everything(body: str) -> list[Any]:
    """Every text of a message."""
    found: list[Any] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for one in value.values():
                walk(one)
        elif isinstance(value, list):
            for one in value:
                walk(one)
        elif isinstance(value, str):
            found.append(value)

    walk(json.loads(body))
    return found


def test_a_digest_counts_each_direction_and_names_the_first_users() -> None:
    digest = digest_of(*(("vips", "ENTERED", f"u{number % 7}") for number in range(9)), ("vips", "EXITED", "u0"))
    [vips] = digest.segments.values()
    assert vips.directions[ENTERED].count == 9
    assert vips.directions[ENTERED].users == [f"u{number}" for number in range(MOST_USERS)]
    assert (vips.directions[EXITED].count, vips.directions[EXITED].users) == (1, ["u0"])
    assert (digest.total(ENTERED), digest.total(EXITED)) == (9, 1)
    assert digest.until_ms - digest.since_ms == 9_000
    assert summary_of(digest) == "9 entered and 1 exited 1 segment"
    assert not digest.is_empty
    assert Digest().is_empty


def test_the_size_of_a_digest_does_not_depend_on_the_number_of_changes() -> None:
    digest = digest_of(*(("vips", "ENTERED", f"u{number}") for number in range(10_000)))
    assert len(digest.segments["vips"].directions[ENTERED].users) == MOST_USERS
    assert len(slack_message(digest, "VIPs", "d-1")) < 2_000


def test_a_text_is_one_short_line() -> None:
    assert short("a\nb\x00c\u2028d", 10) == "a b c d"
    assert short("x" * 100, 40) == "x" * 39 + "…"
    assert short("x" * 40, 40) == "x" * 40


def test_slack_gets_blocks_and_a_text() -> None:
    message = json.loads(slack_message(digest_of(("vips", "ENTERED", "ada"), ("new", "EXITED", "grace")), "Sales", "d-1"))
    assert message["text"] == "Sales: 1 entered and 1 exited 2 segments"
    header, section, context = message["blocks"]
    assert header["text"] == {"type": "plain_text", "text": "Sales", "emoji": False}
    assert section["text"]["text"] == "`Vips` *1 entered*: `ada`\n`New` *1 exited*: `grace`"
    assert context["block_id"] == "d-1"
    assert context["elements"][0]["text"] == "2026-03-01 09:30:00 to 2026-03-01 09:30:01 UTC"


def test_teams_gets_an_adaptive_card() -> None:
    message = json.loads(teams_message(digest_of(("vips", "ENTERED", "ada")), "Sales", "d-1"))
    [attachment] = message["attachments"]
    assert (message["type"], attachment["contentType"]) == ("message", "application/vnd.microsoft.card.adaptive")
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    title, row, period = card["body"]
    assert title["inlines"][0]["text"] == "Sales"
    assert [run["text"] for run in row["inlines"]] == ["Vips ", "1 entered: ", "ada"]
    assert period["id"] == "d-1"


def test_nothing_of_a_name_or_an_id_is_markup_of_slack() -> None:
    digest = Digest()
    digest.add(changed("vips", "ENTERED", HOSTILE, HOSTILE), 1_772_357_400_000)
    message = json.loads(slack_message(digest, "a & <b>", "d-1"))
    text = message["blocks"][1]["text"]["text"]
    assert "<" not in text
    assert ">" not in text
    assert "\n" not in text
    assert "&lt;!channel&gt;" in text
    # The only backticks are those of the two code spans.
    assert text.count("`") == 4
    assert message["text"].startswith("a &amp; &lt;b&gt;: ")


def test_every_text_of_a_card_that_comes_from_outside_is_a_text_run() -> None:
    digest = Digest()
    digest.add(changed("vips", "ENTERED", HOSTILE, HOSTILE), 1_772_357_400_000)
    card = json.loads(teams_message(digest, HOSTILE.replace("\n", ""), "d-1"))["attachments"][0]["content"]
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert {run["type"] for block in card["body"] for run in block["inlines"]} == {"TextRun"}
    assert "evil" not in card["fallbackText"]


@pytest.mark.parametrize("text", ["x" * 500, "&" * 500, "漢" * 500])
def test_the_largest_digest_fits_the_limits_of_both(text: str) -> None:
    digest = Digest()
    for segment in range(100):
        for status in ("ENTERED", "EXITED"):
            for user in range(20):
                digest.add(changed(f"s{segment}", status, f"{user}{text}", text), 1_772_357_400_000)
    slack = json.loads(slack_message(digest, text[:150], "d-1"))
    assert len(slack["blocks"]) <= 50
    assert all(len(block["text"]["text"]) <= 3_000 for block in slack["blocks"] if block["type"] == "section")
    teams = teams_message(digest, text[:150], "d-1")
    assert len(teams.encode()) <= 25_000
    assert any("more segments" in one for one in everything(teams))


def test_an_example_has_both_directions() -> None:
    assert summary_of(example_digest("vips", 0)) == "1 entered and 1 exited 1 segment"
