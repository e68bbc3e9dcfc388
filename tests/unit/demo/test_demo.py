"""The demo's own comparison can be wrong too: what it expects is checked by hand, and a planted fault must be found."""

from datetime import UTC, datetime

import httpx
import pytest
from rich.console import Console
from standardwebhooks.webhooks import Webhook

from starling_common.time.instants import parse_instant, wall_clock_ms
from starling_demo.consistency import ENTRY_BY_SPARK, compare
from starling_demo.dataset import CUSTOMERS, PURCHASES, Purchase, load_purchases
from starling_demo.expected import Changes, expected_changes
from starling_demo.observed import Feed
from starling_demo.receiver import Receiver
from starling_demo.report import monthly_sizes
from starling_demo.run import conclude
from tests.unit.demo.correct_platform import Platform

DAY = 86_400_000
START = parse_instant("1997-01-01")
SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"


BARGAIN, ALBUM, IMPORT, BOX = 9.0, 12.0, 20.0, 40.0


def bought(day: int, revenue: float = 10.0, quantity: int = 1, user: str = "ada", line: int = 0) -> Purchase:
    return Purchase(line or day + 1, user, START + day * DAY, quantity, revenue)


def days(changes: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return [(status, (at - START) // DAY) for status, at in changes]


def test_the_history_is_the_real_one_in_order_of_date() -> None:
    purchases = load_purchases()
    assert len(purchases) == PURCHASES
    assert len({purchase.user_id for purchase in purchases}) == CUSTOMERS
    assert [p.at_ms for p in purchases] == sorted(p.at_ms for p in purchases)
    [first] = [purchase for purchase in purchases if purchase.line == 1]
    assert first == Purchase(1, "customer-00001", START + 33_461_000, 1, 11.77)


def test_no_window_of_whole_days_ends_at_the_instant_of_an_order() -> None:
    assert len({purchase.at_ms % DAY for purchase in load_purchases()}) == PURCHASES


@pytest.mark.parametrize(
    ("segment", "purchases", "changes"),
    [
        pytest.param("new-buyers", [bought(0), bought(5)], [("ENTERED", 0), ("EXITED", 30)], id="once new, never again"),
        pytest.param("repeat-buyers", [bought(0), bought(90)], [], id="a window's far end is outside"),
        pytest.param("repeat-buyers", [bought(0), bought(89)], [("ENTERED", 89), ("EXITED", 90)], id="in for a day"),
        pytest.param("repeat-buyers", [bought(3, line=1), bought(3, line=2)], [("ENTERED", 3), ("EXITED", 93)], id="twice a day"),
        pytest.param("big-spenders", [bought(0, 199.99), bought(1, 0.01)], [("ENTERED", 1), ("EXITED", 180)], id="to the cent"),
        pytest.param(
            "lapsing", [bought(0), bought(200)], [("ENTERED", 180), ("EXITED", 200), ("ENTERED", 380)], id="away and back"
        ),
        pytest.param(
            "box-set-fans", [bought(0, 40), bought(9, 9.0), bought(10, 40)], [("ENTERED", 10), ("EXITED", 365)], id="boxes"
        ),
        pytest.param(
            "traded-up-then-quiet",
            [bought(0, BARGAIN), bought(90, BOX)],
            [("ENTERED", 150), ("EXITED", 180)],
            id="quiet for a month",
        ),
        pytest.param("traded-up-then-quiet", [bought(0, BARGAIN), bought(91, BOX)], [], id="traded up too late"),
        pytest.param("traded-up-then-quiet", [bought(0, BOX), bought(1, BARGAIN)], [], id="traded down"),
        pytest.param("traded-up-then-quiet", [bought(0, BARGAIN), bought(9, BOX), bought(68, ALBUM)], [], id="was never quiet"),
        pytest.param(
            "traded-up-then-quiet",
            [bought(0, BARGAIN), bought(9, BOX), bought(69, ALBUM)],
            [("ENTERED", 69), ("EXITED", 99)],
            id="an order after the quiet time changes nothing",
        ),
        pytest.param(
            "traded-up-then-quiet",
            [bought(0, BARGAIN), bought(9, BOX), bought(20, BOX)],
            [("ENTERED", 80), ("EXITED", 110)],
            id="any box set counts",
        ),
        pytest.param(
            "import-lovers",
            [bought(0, IMPORT), bought(1, ALBUM), bought(2, IMPORT), bought(3, BOX)],
            [("ENTERED", 2), ("EXITED", 3)],
            id="half of the money, and no longer",
        ),
        pytest.param(
            "import-lovers",
            [bought(0, BARGAIN), bought(0, IMPORT, line=2), bought(0, 11.0, line=3)],
            [("ENTERED", 0), ("EXITED", 365)],
            id="exactly half",
        ),
        pytest.param("import-lovers", [bought(0, IMPORT), bought(1, IMPORT)], [], id="three orders at least"),
        pytest.param("import-lovers", [bought(0, 0.0), bought(1, 0.0), bought(2, 0.0)], [], id="half of nothing is nothing"),
        pytest.param("twice-this-month", [bought(0), bought(1)], [], id="in New York it is still December on day 0"),
    ],
)
def test_the_expected_members_match_a_manual_evaluation(
    segment: str, purchases: list[Purchase], changes: list[tuple[str, int]]
) -> None:
    assert days(expected_changes(purchases)[segment].get("ada", [])) == changes


@pytest.mark.parametrize(
    ("purchases", "changes"),
    [
        pytest.param(
            [10, 20], [("ENTERED", "1997-01-21"), ("EXITED", "1997-02-01T05:00Z")], id="to the end of the month over there"
        ),
        pytest.param([10, 31], [("ENTERED", "1997-02-01"), ("EXITED", "1997-02-01T05:00Z")], id="the last evening of the month"),
        pytest.param(
            [100, 101], [("ENTERED", "1997-04-12"), ("EXITED", "1997-05-01T04:00Z")], id="in summer the day begins earlier"
        ),
        pytest.param([10, 10], [], id="two orders of one day"),
    ],
)
def test_a_calendar_month_is_new_yorks(purchases: list[int], changes: list[tuple[str, str]]) -> None:
    found = expected_changes([bought(day, line=line) for line, day in enumerate(purchases, 1)])["twice-this-month"]
    assert found.get("ada", []) == [(status, parse_instant(at)) for status, at in changes]


OF_TWO = [bought(0, 300.0), bought(9, 300.0, line=2), bought(3, 12.0, user="bob", line=3)]


def test_a_faultless_platform_is_equal_and_each_segment_is_compared() -> None:
    platform = Platform(OF_TWO)
    assert platform.differences() == []
    scopes = compare(OF_TWO, platform.feed, platform.members, platform.trait).scopes
    assert [scope.name for scope in scopes] == [
        "computed trait lifetime_revenue", *expected_changes(OF_TWO), "vip", "vip-lapsing",
    ]  # fmt: skip
    assert {scope.name: scope.exclusion for scope in scopes if scope.exclusion} == {"vip": ENTRY_BY_SPARK}


def test_each_planted_fault_is_found() -> None:
    platform = Platform(OF_TWO)
    feed, members = platform.feed, platform.members
    feed.changes["big-spenders"]["ada"][0] = ("ENTERED", START + 1)
    del feed.changes["new-buyers"]["bob"]
    members["lapsing"].discard("bob")
    members["vip"].add("bob")
    feed.changes["vip"]["ada"] *= 3
    found = "\n".join(platform.differences())
    assert "big-spenders: ada: expected ENTERED 1997-01-01T00:00:00.000Z" in found
    assert "new-buyers: bob: expected ENTERED 1997-01-04T00:00:00.000Z" in found
    assert "lapsing: members by the API: bob is missing" in found
    assert "vip: members by the API: bob is not expected" in found
    assert "vip: ada changed 3 times, expected once" in found


@pytest.mark.parametrize(
    ("planted", "difference"),
    [
        pytest.param({"ada": 599.99, "bob": 12.0}, "ada: expected 600.0, found 599.99", id="another value"),
        pytest.param({"ada": 600.0}, "bob: expected 12.0, found None", id="no value"),
        pytest.param({"ada": 600.0, "bob": 12.0, "eve": 1.0}, "eve: expected None, found 1.0", id="a value too many"),
    ],
)
def test_a_value_of_the_computed_trait_that_differs_fails_the_demo(planted: dict[str, float], difference: str) -> None:
    platform = Platform(OF_TWO)
    equal = compare(OF_TWO, platform.feed, platform.members, platform.trait)
    unequal = compare(OF_TWO, platform.feed, platform.members, planted)
    assert unequal.differences == [f"computed trait lifetime_revenue: {difference}"]
    console = Console(record=True, width=140)
    assert (conclude(console, equal, platform.feed), conclude(console, unequal, platform.feed)) == (0, 1)
    assert difference in console.export_text()


def test_an_entry_into_vip_before_the_purchase_that_allows_it_is_a_difference() -> None:
    platform = Platform(OF_TWO)
    platform.feed.changes["vip"]["ada"] = [("ENTERED", START + 9 * DAY - 1)]
    assert platform.differences() == [
        "vip: ada entered 1997-01-09T23:59:59.999Z, expected 1997-01-10T00:00:00.000Z at the earliest"
    ]


LAPSES_ONCE = [bought(0, 300.0), bought(9, 300.0, line=2), bought(300, 1.0, line=3)]


@pytest.mark.parametrize(
    ("entered", "late", "is_equal"),
    [
        pytest.param(9, [("ENTERED", 189), ("EXITED", 300), ("ENTERED", 480)], True, id="entered before lapsing"),
        pytest.param(200, [("ENTERED", 200), ("EXITED", 300), ("ENTERED", 480)], True, id="entered while lapsing"),
        pytest.param(200, [("ENTERED", 189), ("EXITED", 300), ("ENTERED", 480)], False, id="too early"),
        pytest.param(200, [("ENTERED", 201), ("EXITED", 300), ("ENTERED", 480)], False, id="too late"),
        pytest.param(300, [("ENTERED", 300), ("EXITED", 300), ("ENTERED", 480)], True, id="before the change of its instant"),
        pytest.param(300, [("ENTERED", 480)], True, id="after the change of its instant"),
        pytest.param(400, [("ENTERED", 480)], True, id="entered after lapsing"),
        pytest.param(400, [("ENTERED", 189), ("EXITED", 300), ("ENTERED", 480)], False, id="changes before the entry"),
        pytest.param(400, [], False, id="nothing"),
    ],
)
def test_the_changes_of_vip_and_lapsing_follow_from_the_entry_into_vip(
    entered: int, late: list[tuple[str, int]], is_equal: bool
) -> None:
    platform = Platform(LAPSES_ONCE)
    platform.feed.changes["vip"]["ada"] = [("ENTERED", START + entered * DAY)]
    platform.feed.changes["vip-lapsing"] = Changes({"ada": [(status, START + day * DAY) for status, day in late]} if late else {})
    found = [line for line in platform.differences() if line.startswith("vip-lapsing: ada: expected")]
    assert (found == []) is is_equal, found


def test_a_gap_or_a_repeat_in_the_sequence_is_a_fault() -> None:
    feed = Feed()
    record = {
        "segment_key": "vip",
        "user_id": "ada",
        "status": "ENTERED",
        "sequence": 1,
        "effective_at": 5,
        "cause": {"kind": "EVENT"},
    }
    feed.take(record)
    assert feed.errors == []
    feed.take(record)
    assert feed.errors == ["ada in vip: ENTERED with sequence 1"]


def test_months_in_which_nothing_changed_keep_their_size() -> None:
    changes = {"ada": [("ENTERED", START), ("EXITED", START + 100 * DAY)], "bob": [("ENTERED", START + 2 * DAY)]}
    assert monthly_sizes(changes) == {"1997-01": 2, "1997-02": 2, "1997-03": 2, "1997-04": 1}


def test_the_receiver_takes_genuine_calls_once_and_refuses_others() -> None:
    receiver = Receiver(SECRET, failures=1)
    try:
        body = '{"type":"segment.entered","data":{}}'
        stamp = wall_clock_ms() // 1000
        headers = {"webhook-id": "m1", "webhook-timestamp": str(stamp)}

        genuine = headers | {"webhook-signature": Webhook(SECRET).sign("m1", datetime.fromtimestamp(stamp, UTC), body)}
        answers = [httpx.post(receiver.url, content=body, headers=genuine, trust_env=False).status_code for _ in range(3)]
        assert answers == [503, 204, 204]
        assert [call["id"] for call in receiver.calls] == ["m1"]
        forged = genuine | {"webhook-signature": "v1,AAAA"}
        assert httpx.post(receiver.url, content=body, headers=forged, trust_env=False).status_code == 401
        assert receiver.forged == 1
    finally:
        receiver.close()
