"""The HTML part of a mail: which links are followed, and that everything else stays as it was written."""

import re
from dataclasses import replace
from html import unescape

from starling_delivery.channel import Message
from starling_delivery.channels.email.tracking import Tracking
from starling_messages.links import LinkKind, Links

LINKS = Links({"first": b"1" * 32})
TRACKING = Tracking("https://t.example.com", LINKS)
MESSAGE = Message("acme", "ada", "d-1", "d-1", "smtp", "ada@example.com", "", 1, {}, "marketing", "win-back")
TRACKED = re.compile(r"https://t\.example\.com/([ocu])/([A-Za-z0-9_-]+)")


def urls(html: str) -> list[str]:
    """The URLs that the links of the HTML lead to."""
    found = [LINKS.read(LinkKind.CLICK, token) for kind, token in TRACKED.findall(html) if kind == "c"]
    return [link.url for link in found if link is not None]


def test_links_to_the_web_are_followed_and_others_are_not() -> None:
    html = (
        '<p><a class="x" href="https://a.example/?b=1&amp;c=2">A</a> <A HREF=\'http://b.example\'>B</A>'
        '<a href="mailto:x@example.com">m</a><a name="top">t</a><a href="#top">u</a><a data-href="https://n.example">n</a>'
        '<img src="https://i.example/a.png"></p>'
    )
    tracked = TRACKING.html(MESSAGE, html)
    assert urls(tracked) == ["https://a.example/?b=1&c=2", "http://b.example"]
    for kept in (
        "mailto:x@example.com",
        '<a name="top">',
        'href="#top"',
        'data-href="https://n.example"',
        "https://i.example/a.png",
    ):
        assert kept in tracked
    assert "https://a.example" not in tracked


def test_a_link_that_is_too_long_for_a_token_leads_on_untracked() -> None:
    short, long = f"https://a.example/?q={'x' * 2_000}", f"https://a.example/?q={'x' * 8_000}"
    tracked = TRACKING.html(MESSAGE, f'<a href="{short}">A</a><a href="{long}">B</a>')
    assert urls(tracked) == [short]
    assert f'href="{long}"' in tracked


def test_the_text_around_links_stays_the_same() -> None:
    html = '<html>\n<body>\n<!-- <a href="https://c.example"> -->é<a\n href = "https://a.example">A</a>\n</body>\n</html>'
    tracked = TRACKING.html(MESSAGE, html)
    restored = re.sub(r"<img [^>]*>", "", tracked)
    (token,) = [token for kind, token in TRACKED.findall(tracked) if kind == "c"]
    assert restored.replace(f"https://t.example.com/c/{token}", "https://a.example") == html


def test_the_pixel_is_the_last_of_the_body() -> None:
    assert re.search(
        r'<img src="https://t\.example\.com/o/[^"]+" width="1" height="1"[^>]*></body>', TRACKING.html(MESSAGE, "<body>x</body>")
    )
    assert TRACKING.html(MESSAGE, "x").startswith("x<img ")


def test_a_mail_for_its_author_acts_for_no_person() -> None:
    test = replace(MESSAGE, is_test=True)
    html = '<a href="https://a.example">A</a>'
    assert TRACKING.html(test, html) == html
    assert LINKS.read(LinkKind.UNSUBSCRIBE, TRACKING.unsubscribe_link(test).rpartition("/")[2]) is None


def test_the_same_message_has_the_same_bytes() -> None:
    html = '<a href="https://a.example">A</a>'
    assert TRACKING.html(MESSAGE, html) == TRACKING.html(MESSAGE, html)


def test_the_link_to_unsubscribe_names_channel_purpose_and_campaign() -> None:
    link = TRACKING.unsubscribe_link(MESSAGE)
    assert unescape(link) == link
    found = LINKS.read(LinkKind.UNSUBSCRIBE, link.rpartition("/")[2])
    assert found is not None
    assert (found.workspace, found.user_id, found.channel, found.purpose, found.campaign) == (
        "acme",
        "ada",
        "email",
        "marketing",
        "win-back",
    )


def test_the_link_to_unsubscribe_in_the_content_counts_no_click() -> None:
    link = TRACKING.unsubscribe_link(MESSAGE)
    tracked = TRACKING.html(MESSAGE, f'<a href="{link}">Unsubscribe</a><a href="https://t.example.com/">T</a>')
    assert f'<a href="{link}">' in tracked
    assert urls(tracked) == ["https://t.example.com/"]
