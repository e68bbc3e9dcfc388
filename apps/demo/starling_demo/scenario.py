"""Pure core: the catalog, the computed trait, the segments and the campaign of the demo."""

from typing import Any, Final

from starling_demo.dataset import Purchase

EVENT: Final = "Order Completed"
END: Final = "1998-07-15T00:00:00Z"
"""The clock advances to this instant after the last purchase (30 June 1998), so that timers fire as well."""

NEW_YORK: Final = "America/New_York"
"""An order in the first hours of a day in UTC is one of the evening before in New York: the zone decides its day and month."""

CATALOG: Final[list[dict[str, Any]]] = [
    {"product_id": "cd-bargain", "name": "Bargain bin CD", "category": "Bargains", "brand": "Various", "price": 7.99},
    {"product_id": "cd-album", "name": "Album CD", "category": "Albums", "brand": "Major label", "price": 13.99},
    {"product_id": "cd-import", "name": "Imported CD", "category": "Imports", "brand": "Overseas", "price": 19.99},
    {"product_id": "cd-box", "name": "Box set", "category": "Box sets", "brand": "Major label", "price": 39.99},
]

VIP_FROM_DOLLARS: Final = 500
"""Lifetime revenue of a member of `vip`."""

COMPUTED_TRAIT: Final[dict[str, Any]] = {
    "key": "lifetime_revenue",
    "name": "Lifetime revenue",
    "event": EVENT,
    "measure": {"sum": "revenue"},
}

SEGMENTS: Final[list[dict[str, Any]]] = [
    {"key": "new-buyers", "name": "New buyers", "where": {"first_time": {"event": EVENT}, "within": "30d"}},
    {
        "key": "repeat-buyers",
        "name": "Repeat buyers",
        "description": "Two orders or more within 90 days",
        "where": {"event": EVENT, "measure": "count", "op": "gte", "value": 2, "within": "90d"},
    },
    {
        "key": "big-spenders",
        "name": "Big spenders",
        "description": "200 dollars or more within 180 days",
        "where": {"event": EVENT, "measure": {"sum": "revenue"}, "op": "gte", "value": 200, "within": "180d"},
    },
    {
        "key": "lapsing",
        "name": "Lapsing",
        "description": "Bought before, but not in 180 days",
        "where": {"all": [{"event": EVENT}, {"not": {"event": EVENT, "within": "180d"}}]},
    },
    {
        "key": "box-set-fans",
        "name": "Box set fans",
        "description": "Two orders from the category Box sets (which only the catalog knows) within a year",
        "where": {
            "event": EVENT,
            "where": {"property": "category", "op": "eq", "value": "Box sets"},
            "op": "gte",
            "value": 2,
            "within": "365d",
        },
    },
    {
        "key": "vip",
        "name": "VIP",
        "description": "500 dollars or more in a lifetime, a trait that Spark computes",
        "where": {"trait": f"computed.{COMPUTED_TRAIT['key']}", "op": "gte", "value": VIP_FROM_DOLLARS},
    },
    {
        "key": "vip-lapsing",
        "name": "Lapsing VIPs",
        "where": {"all": [{"segment": "vip"}, {"segment": "lapsing"}]},
    },
    {
        "key": "traded-up-then-quiet",
        "name": "Traded up, then quiet",
        "description": "A bargain, a box set within 90 days of it, then no order for 60 days; for 30 days from then on",
        "where": {
            "sequence": [
                {"event": EVENT, "where": {"property": "product_id", "op": "eq", "value": "cd-bargain"}},
                {"event": EVENT, "where": {"property": "product_id", "op": "eq", "value": "cd-box"}, "within": "90d"},
                {"not": {"event": EVENT}, "for": "60d"},
            ],
            "within": "30d",
        },
    },
    {
        "key": "import-lovers",
        "name": "Import lovers",
        "description": "Imported CDs are half of what was spent within a year or more, in three orders at least",
        "where": {
            "all": [
                {"event": EVENT, "op": "gte", "value": 3, "within": "365d"},
                {
                    "measure": {
                        "ratio": {
                            "of": {
                                "event": EVENT,
                                "where": {"property": "category", "op": "eq", "value": "Imports"},
                                "measure": {"sum": "revenue"},
                            },
                            "to": {"event": EVENT, "measure": {"sum": "revenue"}},
                        }
                    },
                    "op": "gte",
                    "value": 0.5,
                    "within": "365d",
                },
            ]
        },
    },
    {
        "key": "twice-this-month",
        "name": "Twice this month",
        "description": "Orders on two days or more of the calendar month, as New York counts days",
        "timezone": NEW_YORK,
        "where": {"event": EVENT, "measure": {"days": True}, "op": "gte", "value": 2, "calendar": "this_month"},
    },
]

DELIVERED: Final = ("vip", "vip-lapsing")
"""Segments whose membership changes are delivered to the webhook."""

COMPUTED_BY_SPARK: Final = frozenset({"vip", "vip-lapsing"})
"""Segments on a computed trait: the instants of their changes differ from run to run."""

CAP_DAYS: Final = 90
POLICY: Final[dict[str, Any]] = {"timezone": NEW_YORK, "caps": [{"channels": ["email"], "limit": 1, "per": f"{CAP_DAYS}d"}]}

DELAY_DAYS: Final = 3
HOLDOUT_PERCENT: Final = 10
GOAL_DAYS: Final = 30
WIN_BACK: Final[dict[str, Any]] = {
    "key": "win-back",
    "name": "Win back",
    "description": "Three days after a person is no repeat buyer any more, without an order since",
    "trigger": {"exit": "repeat-buyers"},
    "delay": f"{DELAY_DAYS}d",
    "cancel": {"left": True, "event": {"event": EVENT}},
    "caps": "drop",
    "holdout": {"percent": HOLDOUT_PERCENT},
    "goal": {"event": EVENT, "within": f"{GOAL_DAYS}d", "value": "revenue"},
    "channel": "email",
    "target": "mailbox",
    "variants": [
        {
            "key": "ten-percent",
            "weight": 100,
            "content": {
                "subject": "Ten percent off your next CD",
                "text": "Hello {{ user_id }}, your next CD costs ten percent less.\n\nNo more of these: {{ unsubscribe_url }}\n",
            },
        }
    ],
}


def address(user_id: str) -> str:
    """Return the email address of a customer; the history has none."""
    return f"{user_id}@example.com"


def traits(user_id: str) -> dict[str, Any]:
    """Return the traits of a customer, who has given consent to emails."""
    return {"email": address(user_id), "consent": {"email": True}}


def product_id(purchase: Purchase) -> str:
    """Return a product of the catalog by the price of one piece; the history has no product ids."""
    price = purchase.revenue / purchase.quantity if purchase.quantity else 0.0
    bands = ((10, "cd-bargain"), (16, "cd-album"), (25, "cd-import"))
    return next((product for limit, product in bands if price < limit), "cd-box")


def properties(purchase: Purchase) -> dict[str, Any]:
    """Return the properties of the order event."""
    return {
        "order_id": f"order-{purchase.line}",
        "product_id": product_id(purchase),
        "quantity": purchase.quantity,
        "revenue": purchase.revenue,
        "currency": "USD",
    }
