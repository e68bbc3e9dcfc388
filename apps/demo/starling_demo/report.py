"""Edge: the output of the demo: a table of segments, a chart, the story of one user, the webhook messages."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from starling_demo.consistency import Scope
from starling_demo.dataset import Purchase
from starling_demo.expected import Changes
from starling_demo.expected_messages import Message
from starling_demo.observed import Feed
from starling_demo.receiver import Receiver
from starling_demo.scenario import COMPUTED_BY_SPARK, END, SEGMENTS, WIN_BACK, product_id

CHARTED = "big-spenders"
BAR_WIDTH = 50


def print_segments(console: Console, sizes: Mapping[str, int], feed: Feed) -> None:
    """Print the size, entries and exits of every segment."""
    table = Table(title=f"Segments on {END[:10]}", title_justify="left")
    for heading in ("segment", "what it means"):
        table.add_column(heading)
    for heading in ("members", "entries", "exits"):
        table.add_column(heading, justify="right")
    for segment in SEGMENTS:
        statuses = [status for changes in feed.changes.get(segment["key"], {}).values() for status, _ in changes]
        entries, exits = statuses.count("ENTERED"), statuses.count("EXITED")
        means = segment.get("description", segment["name"])
        table.add_row(segment["key"], means, f"{sizes[segment['key']]:,}", f"{entries:,}", f"{exits:,}")
    console.print(table)


def print_chart(console: Console, changes: Changes) -> None:
    """Print the size of one segment at the end of each month."""
    console.print(f"\n[bold]{CHARTED}[/bold]: members at the end of each month")
    sizes = monthly_sizes(changes)
    widest = max(sizes.values(), default=1) or 1
    for month, size in sizes.items():
        console.print(f"  {month} {'█' * round(size * BAR_WIDTH / widest)} {size:,}", highlight=False)


def monthly_sizes(changes: Changes) -> dict[str, int]:
    """Return month (`1997-01`) -> members at its end; a month without a change has the size of the month before."""
    steps = sorted((at, 1 if status == "ENTERED" else -1) for of_user in changes.values() for status, at in of_user)
    sizes: dict[str, int] = {}
    size = 0
    for at, step in steps:
        month = _day(at)[:7]
        for skipped in _months_between(next(reversed(sizes), month), month):
            sizes[skipped] = size
        size += step
        sizes[month] = size
    return sizes


def print_story(console: Console, purchases: Sequence[Purchase], feed: Feed) -> None:
    """Print the purchases and membership changes of one user, in order of time."""
    user = _most_eventful(feed)
    bought = [(p.at_ms, 0, f"buys {product_id(p)} x {p.quantity} for ${p.revenue:.2f}") for p in purchases if p.user_id == user]
    changed = [
        (at, 1, f"  {'enters' if status == 'ENTERED' else 'leaves'} [bold]{key}[/bold]")
        for key, changes in feed.changes.items()
        for status, at in changes.get(user, [])
    ]
    console.print(f"\n[bold]The story of {user}[/bold]")
    for at, _, what in sorted(bought + changed):
        console.print(f"  {_day(at)}  {what}", highlight=False)


def print_webhook(console: Console, receiver: Receiver) -> None:
    """Print the number of webhook messages and the last one."""
    entered = sum(call["type"] == "segment.entered" for call in receiver.calls)
    console.print(
        f"\n[bold]Webhook[/bold]: {len(receiver.calls):,} signed messages ({entered:,} entered, "
        f"{len(receiver.calls) - entered:,} exited), {receiver.forged} with a wrong signature"
    )
    if receiver.calls:
        last = receiver.calls[-1]
        console.print(f"  the last: {last['type']} {last['data']['user_id']} {last['data']['segment_key']}", highlight=False)


def print_campaign(console: Console, messages: Mapping[str, Sequence[Message]], report: Mapping[str, Any]) -> None:
    """Print what became of the messages of the campaign, and the lift. `report`: the answer of the API."""
    fates = Counter(message.fate for of_user in messages.values() for message in of_user)
    counts = ", ".join(f"{count:,} {fate}" for fate, count in fates.most_common())
    console.print(f"\n[bold]Campaign {WIN_BACK['key']}[/bold]: {counts}", highlight=False)
    lift = next(one for one in report["lift"] if one["variant"] is None)
    if lift["difference"] is not None:
        low, points, high = (100 * lift[name] for name in ("low", "difference", "high"))
        console.print(
            f"  orders within 30 days, mailed less held out: {points:+.1f} percentage points, between {low:+.1f} and {high:+.1f} "
            "(the people of 1998 got no mail: the true value is 0)",
            highlight=False,
            soft_wrap=True,
        )


def print_comparison(console: Console, scopes: Sequence[Scope]) -> None:
    """Print what was compared, and each reason why an instant was not compared exactly."""
    console.print("\n[bold]Compared with pandas[/bold]")
    width = max(len(scope.name) for scope in scopes)
    for scope in scopes:
        console.print(f"  {scope.name:<{width}}  {scope.compared}", highlight=False, soft_wrap=True)
        if scope.exclusion:
            console.print(f"  {'':<{width}}  ({scope.exclusion})", highlight=False, soft_wrap=True)


def _most_eventful(feed: Feed) -> str:
    """Return the user with the most segments, then the most changes, among users with at most 14 changes.

    Segments on a computed trait do not count, so each run selects the same user.
    """
    counts_of_user: dict[str, tuple[int, int]] = {}
    for changes in (feed.changes[segment["key"]] for segment in SEGMENTS if segment["key"] not in COMPUTED_BY_SPARK):
        for user, of_user in changes.items():
            segments, count = counts_of_user.get(user, (0, 0))
            counts_of_user[user] = (segments + 1, count + len(of_user))
    short = {user: counts for user, counts in counts_of_user.items() if counts[1] <= 14}
    return min(short, key=lambda user: (-short[user][0], -short[user][1], user))


def _months_between(first: str, last: str) -> list[str]:
    year, month = int(first[:4]), int(first[5:])
    found = []
    while f"{year}-{month:02d}" < last:
        found.append(f"{year}-{month:02d}")
        year, month = (year + 1, 1) if month == 12 else (year, month + 1)
    return found[1:]


def _day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")
