"""Links of messages as requests: who opened, clicked and unsubscribed, and what no request can do."""

import random
import string

import pytest

from starling_common.http.rate_limits import Rate
from starling_messages.links import LinkKind
from tests.unit.tracker.rig import LINK, LINKS, MAIL_CLIENT, Site, path_of

REQUESTS = 10_000
URL = "https://shop.example.com/a?b=1&c=ü#d"


def test_a_click_leads_on_and_is_counted() -> None:
    site = Site()
    answer = site.request("GET", path_of(LinkKind.CLICK, LINK._replace(url=URL)))
    assert (answer.status, answer.headers["location"]) == (302, "https://shop.example.com/a?b=1&c=%C3%BC#d")
    (counted,) = site.published.outcomes
    assert (counted["outcome"], counted["detail"], counted["campaign"]) == ("CLICKED", None, "win-back")
    assert (counted["workspace"], counted["user_id"], counted["delivery_id"]) == ("acme", "ada", "d-1")


def test_a_click_leads_on_without_a_broker_and_is_counted_as_dropped() -> None:
    site = Site()
    site.published.is_down = True
    assert site.request("GET", path_of(LinkKind.CLICK, LINK._replace(url=URL))).status == 302
    assert site.metrics.registry.get_sample_value("starling_tracker_dropped_total", {"outcome": "CLICKED"}) == 1


def test_a_url_cannot_add_a_header() -> None:
    answer = Site().request("GET", path_of(LinkKind.CLICK, LINK._replace(url="https://a.example/\r\nset-cookie: a=b")))
    assert answer.headers["location"] == "https://a.example/%0D%0Aset-cookie:%20a=b"
    assert "set-cookie" not in answer.headers


def test_each_open_is_an_event_of_its_own() -> None:
    site = Site()
    for _ in range(2):
        answer = site.request("GET", path_of(LinkKind.OPEN))
        assert (answer.status, answer.headers["content-type"], answer.body[:6]) == (200, "image/gif", b"GIF89a")
    assert [one["outcome"] for one in site.published.outcomes] == ["OPENED", "OPENED"]
    assert len({one["event_id"] for one in site.published.outcomes}) == 2


@pytest.mark.parametrize("kind", [LinkKind.OPEN, LinkKind.CLICK, LinkKind.UNSUBSCRIBE])
def test_head_counts_nothing_and_has_no_body(kind: LinkKind) -> None:
    site = Site()
    answer = site.request("HEAD", path_of(kind))
    assert (answer.status < 400, answer.body, site.published.outcomes) == (True, b"", [])


@pytest.mark.parametrize(
    ("headers", "machine"),
    [
        ({"user_agent": MAIL_CLIENT}, False),
        ({"user_agent": "Mozilla/5.0 (via ggpht.com GoogleImageProxy)"}, False),
        ({"user_agent": "Mozilla/5.0"}, True),
        ({"user_agent": ""}, True),
        ({"user_agent": "Slackbot-LinkExpanding 1.0"}, True),
        ({"user_agent": "Barracuda Sentinel (EE)"}, True),
        ({"user_agent": MAIL_CLIENT, "sec_purpose": "prefetch;prerender"}, True),
        ({"user_agent": MAIL_CLIENT, "x_purpose": "preview"}, True),
    ],
)
def test_programs_are_marked(headers: dict[str, str], machine: bool) -> None:
    site = Site()
    site.request("GET", path_of(LinkKind.OPEN), headers=headers)
    assert site.published.outcomes[0]["detail"] == ("machine" if machine else None)


def test_the_page_asks_first_so_that_a_prefetch_changes_nothing() -> None:
    site = Site()
    page = site.request("GET", path_of(LinkKind.UNSUBSCRIBE), headers={"accept_language": "de,ja;q=0.8,en;q=0.5"})
    assert (page.status, site.published.consents) == (200, [])
    text = page.body.decode()
    assert '<html lang="ja">' in text
    assert '<form method="post">' in text
    assert "<script" not in text
    assert "script" not in page.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("body", "source"), [(b"List-Unsubscribe=One-Click", "one_click"), (b"", "page"), (b"anything=else", "page")]
)
def test_a_post_unsubscribes_from_channel_and_purpose(body: bytes, source: str) -> None:
    site = Site()
    answer = site.request("POST", path_of(LinkKind.UNSUBSCRIBE), body)
    assert answer.status == 200
    assert "You are unsubscribed" in answer.body.decode()
    (consent,) = site.published.consents
    assert {name: consent[name] for name in ("workspace", "user_id", "channel", "purpose", "granted", "source")} == {
        "workspace": "acme",
        "user_id": "ada",
        "channel": "email",
        "purpose": "marketing",
        "granted": False,
        "source": source,
    }
    assert [one["outcome"] for one in site.published.outcomes] == ["UNSUBSCRIBED"]


def test_a_repeated_post_reports_one_event() -> None:
    site = Site()
    for _ in range(2):
        site.request("POST", path_of(LinkKind.UNSUBSCRIBE))
    assert len({one["event_id"] for one in site.published.outcomes}) == 1


def test_the_page_never_confirms_what_the_broker_has_not() -> None:
    site = Site()
    site.published.is_down = True
    answer = site.request("POST", path_of(LinkKind.UNSUBSCRIBE))
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert "still subscribed" in answer.body.decode()


def test_a_purpose_cannot_add_markup() -> None:
    page = Site().request("GET", path_of(LinkKind.UNSUBSCRIBE, LINK._replace(purpose="<script>x</script>")))
    assert "<script>" not in page.body.decode()
    assert "&lt;script&gt;" in page.body.decode()


def test_a_token_of_one_kind_is_none_of_another() -> None:
    site = Site()
    token = LINKS.token(LinkKind.OPEN, LINK)
    assert [site.request("GET", f"/{kind}/{token}").status for kind in LinkKind] == [200, 404, 404]


@pytest.mark.parametrize("path", ["/", "/o", "/o/", "/x/abc", "/c/https://evil.example/", "/u/%00", "/admin", "/o/" + "A" * 20_000])
def test_anything_else_is_404(path: str) -> None:
    site = Site()
    assert (site.request("GET", path).status, site.published.outcomes) == (404, [])


def test_other_methods_are_refused() -> None:
    site = Site()
    assert site.request("POST", path_of(LinkKind.OPEN)).headers["allow"] == "GET, HEAD"
    assert site.request("DELETE", path_of(LinkKind.UNSUBSCRIBE)).headers["allow"] == "GET, HEAD, POST"


def test_a_large_body_is_refused() -> None:
    site = Site()
    assert (site.request("POST", path_of(LinkKind.UNSUBSCRIBE), b"x" * 5_000).status, site.published.consents) == (413, [])


def test_one_address_is_limited_and_another_is_not() -> None:
    site = Site(rate=Rate(0.5, 2))
    answers = [site.request("GET", path_of(LinkKind.OPEN)) for _ in range(3)]
    assert [one.status for one in answers] == [200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) >= 1


def test_random_requests_are_never_the_servers_fault() -> None:
    """Whatever the bytes of a token, the method and the headers: an answer below 500, and nothing published."""
    chance, site = random.Random(7), Site(rate=Rate(1e6, 1e6))
    valid = path_of(LinkKind.UNSUBSCRIBE)
    for _ in range(REQUESTS):
        letters = chance.choices(string.printable + "äあ\x00\ud800", k=chance.randrange(200))
        changed = list(valid)
        changed[chance.randrange(3, len(changed))] = chance.choice(letters or ["A"])
        path = chance.choice(["/" + "".join(letters), f"/{chance.choice('ocu')}/" + "".join(letters), "".join(changed)])
        if path == valid:
            continue
        headers = {name: "".join(chance.choices(letters or "a", k=5)) for name in ("accept_language", "user_agent")}
        answer = site.request(
            chance.choice(["GET", "HEAD", "POST", "PUT"]), path, "".join(letters).encode("utf-8", "replace"), headers
        )
        assert answer.status < 500, path
    assert (site.published.outcomes, site.published.consents) == ([], [])
