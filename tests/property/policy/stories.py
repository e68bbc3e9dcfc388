"""Generated stories: a policy, a person and campaigns. All instants are on a grid of minutes, or a millisecond beside it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from tests.property.policy.oracle import Known, Planned, Sent, duration, percent

Doc = dict[str, Any]
MINUTE_MS = 60_000
DAY_MS = 86_400_000
# Zone, and an instant (epoch s) at which its clocks change.
CLOCK_CHANGES = [
    ("Europe/Berlin", 1_774_746_000), ("Europe/Berlin", 1_792_890_000),
    ("America/New_York", 1_772_953_200), ("America/New_York", 1_793_512_800),
    ("Australia/Lord_Howe", 1_775_314_800), ("Australia/Lord_Howe", 1_791_041_400),  # by half an hour
    ("Pacific/Apia", 1_325_239_200),  # a day is left out
    ("Asia/Kathmandu", 1_774_746_000), ("UTC", 1_774_746_000),
]  # fmt: skip
CHANNELS = ["email", "sms", "push", "webhook"]
PURPOSES = ["marketing", "news", "transactional"]
GOOD = {"email": "ada@example.com", "sms": "+4915112345678", "push": "token-1"}
BAD_EMAILS = [
    None,
    7,
    "",
    "ada",
    "ada@example",
    "a b@example.com",
    "ada@exa\nmple.com",
    "ada@example.com, b@example.com",
    "x" * 300,
]
BAD_PHONES = [None, 49, "", "015112345678", "+0151", "+49 151 12345678", "+1234567890123456"]
BAD_ZONES = ["Mars/Olympus", "", 7, None, "../etc/passwd", "localtime", "europe/berlin"]


@dataclass
class Story:
    """`grid_ms`: everything in the story is at a multiple of it, or a millisecond beside one. `messages`: by due instant."""

    policy: Doc
    known: Known
    traits: Doc
    devices: dict[str, tuple[str, ...]]
    suppressions: list[tuple[str, str, str]]
    messages: list[Planned]
    start: int
    grid_ms: int
    returns: list[tuple[int, int]]

    def instants(self) -> list[int]:
        """Every instant of the grid and its neighbours, from the start to the last expiry."""
        end = max(one.expires for one in self.messages) + 2 * self.grid_ms
        grid = range(self.start, end + 1, self.grid_ms)
        return [at + beside for at in grid for beside in (-1, 0, 1)]


def beside(draw: st.DrawFn) -> int:
    return draw(st.sampled_from([0, 0, 0, 0, -1, 1]))


def rarely(draw: st.DrawFn, one_in: int) -> bool:
    """Return true about once in so many draws."""
    return draw(st.sampled_from([False] * (one_in - 1) + [True]))


def optional(draw: st.DrawFn, document: Doc, name: str, values: st.SearchStrategy[Any]) -> None:
    """Put a value under the name, half of the time."""
    if draw(st.booleans()):
        document[name] = draw(values)


def on_grid(draw: st.DrawFn, grid_minutes: int, most: int) -> str:
    return f"{grid_minutes * draw(st.integers(1, most))}m"


def shares(salt: str, user: str) -> st.SearchStrategy[float]:
    """Return percentages: the position of the user and a hundredth above it among them, which are the boundaries."""
    position = percent(salt, user)
    return st.sampled_from([5, 10, position, round(position + 0.01, 2), 0, 33.33, 100])


@st.composite
def quiet_hours(draw: st.DrawFn, grid_minutes: int, zone: str, base: int) -> Doc:
    """Hours that begin around the local time of `base`, most of them short."""
    local = datetime.fromtimestamp(base // 1000, ZoneInfo(zone))
    start = local.hour * 60 + local.minute + grid_minutes * draw(st.integers(-40, 40))
    end = start + grid_minutes * draw(st.one_of(st.integers(1, 40), st.integers(1, 1440 // grid_minutes - 1)))
    return {name: f"{minute % 1440 // 60:02d}:{minute % 60:02d}" for name, minute in (("from", start), ("to", end))}


@st.composite
def policies(draw: st.DrawFn, grid_minutes: int, zone: str, base: int, user: str) -> Doc:
    policy: Doc = {}
    optional(draw, policy, "timezone", st.sampled_from([zone, "UTC", "Asia/Tokyo"]))
    if not rarely(draw, 3):
        policy["quiet_hours"] = draw(quiet_hours(grid_minutes, zone, base))
    caps = []
    for _ in range(draw(st.sampled_from([1, 1, 2, 0, 3]))):
        cap: Doc = {"limit": draw(st.sampled_from([1, 1, 1, 1, 2, 2, 3, 0])), "per": on_grid(draw, grid_minutes, 40)}
        optional(draw, cap, "channels", st.lists(st.sampled_from(CHANNELS), min_size=1, max_size=3))
        optional(draw, cap, "purposes", st.lists(st.sampled_from(PURPOSES), min_size=1, max_size=2))
        caps.append(cap)
    if caps:
        policy["caps"] = caps
    policy["consent"] = {channel: draw(st.sampled_from(["opt_out"] * 5 + ["opt_in"])) for channel in CHANNELS}
    optional(draw, policy, "control_group", shares("control", user).map(lambda share: {"percent": share}))
    optional(draw, policy, "priority_hold", st.sampled_from([1, 4]).map(lambda n: f"{n * grid_minutes}m"))
    return policy


@st.composite
def campaigns(draw: st.DrawFn, key: str, grid_minutes: int, user: str) -> Doc:
    campaign: Doc = {"key": key, "channel": draw(st.sampled_from(CHANNELS + ["email"] * 4))}
    optional(draw, campaign, "purpose", st.sampled_from(PURPOSES))
    optional(draw, campaign, "priority", st.sampled_from([0, 50, 100]))
    campaign["expires_after"] = on_grid(draw, grid_minutes, 60)
    optional(draw, campaign, "quiet", st.sampled_from(["defer", "defer", "drop"]))
    optional(draw, campaign, "caps", st.sampled_from(["defer", "defer", "drop"]))
    if rarely(draw, 3):
        campaign["reentry"] = draw(st.sampled_from(["always", {"after": on_grid(draw, grid_minutes, 20)}, "once"]))
    if rarely(draw, 8):
        campaign["dedupe_key"] = draw(st.sampled_from(["one", "two"]))
    if rarely(draw, 6):
        campaign["holdout"] = {"percent": draw(shares(f"{key}:holdout", user))}
    first = draw(shares(f"{key}:variant", user))
    optional(draw, campaign, "variants", st.just([{"key": "a", "weight": first}, {"key": "b", "weight": round(100 - first, 2)}]))
    return campaign


@st.composite
def stories(draw: st.DrawFn, messages: int) -> Story:
    zone, change = draw(st.sampled_from(CLOCK_CHANGES))
    # Each divides the offsets of the zones, so that quiet hours begin and end on the grid.
    grid_minutes = draw(st.sampled_from([1, 5, 15]))
    grid_ms = grid_minutes * MINUTE_MS
    base = (change * 1000 // grid_ms + draw(st.integers(-40, 10))) * grid_ms
    user = f"user-{draw(st.integers(0, 60))}"
    policy = draw(policies(grid_minutes, zone, base, user))
    known_campaigns = [draw(campaigns(f"c{number}", grid_minutes, user)) for number in range(draw(st.integers(1, 3)))]
    zone_trait = draw(st.sampled_from([zone, zone, *BAD_ZONES]))
    known = Known(
        user=user,
        zone=zone_trait if zone_trait == zone else None,
        reachable={}, suppressed={},
        consent_trait=draw(consent_traits()),
        consent_changes=[
            (channel, draw(st.sampled_from([None, "marketing", "news"])), not rarely(draw, 3), base - draw(st.integers(0, 3)))
            for channel in draw(st.sampled_from([[], [], [], ["email"], ["sms"], ["email", "email"]]))
        ],
    )  # fmt: skip
    traits: Doc = {"timezone": zone_trait, "consent": known.consent_trait}
    devices = reach(draw, known, traits)
    suppressions = suppress(draw, known)
    planned = [plan(draw, draw(st.sampled_from(known_campaigns)), base, grid_ms, number) for number in range(messages)]
    known.sent = sorted(
        (past(draw, known_campaigns, base, grid_ms, planned) for _ in range(draw(st.sampled_from([3, 2, 4, 6, 1, 0])))),
        key=lambda one: one.at,
    )
    returns = sorted(
        (base + grid_ms * draw(st.integers(0, 40)), draw(st.integers(0, 5)))
        for _ in range(draw(st.integers(0, 2)) if messages > 1 else 0)
    )
    start = base - 4 * grid_ms
    return Story(policy, known, traits, devices, suppressions, planned, start, grid_ms, returns)


@st.composite
def consent_traits(draw: st.DrawFn) -> Any:
    stated = st.sampled_from(
        [True, None, "yes", True, {"marketing": True, "news": False}, {"marketing": 1}, {"marketing": False}, False]
    )
    return draw(st.one_of(st.none(), st.just("no"), st.fixed_dictionaries({"email": stated, "sms": stated})))


def reach(draw: st.DrawFn, known: Known, traits: Doc) -> dict[str, tuple[str, ...]]:
    """Give the person good and bad addresses; most are good. Return the devices."""
    for channel, trait, bad in (("email", "email", BAD_EMAILS), ("sms", "phone", BAD_PHONES)):
        good = not rarely(draw, 12)
        traits[trait] = GOOD[channel] if good else draw(st.sampled_from(bad))
        known.reachable[channel] = int(good)
    choices: list[tuple[str, ...]] = [("token-1",), ("token-1", "token 2"), ("token-1",), ("token-1",), ("",), ()]
    tokens = draw(st.sampled_from(choices))
    known.reachable["push"] = int("token-1" in tokens)
    return {"push": tokens} if tokens or rarely(draw, 2) else {}


def suppress(draw: st.DrawFn, known: Known) -> list[tuple[str, str, str]]:
    """Suppress addresses of the person, and of others. Return (channel, address, kind) of each."""
    found = []
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        channel = draw(st.sampled_from(["email", "email", "sms", "push"]))
        kind = draw(st.sampled_from(["complaint", "complaint", "hard_bounce", "uploaded"]))
        own = not rarely(draw, 3)
        found.append((channel, f" {GOOD[channel].upper()} " if own else "other@example.com", kind))
        if own:
            known.suppressed.setdefault(channel, []).append(kind)
    return found


def plan(draw: st.DrawFn, campaign: Doc, base: int, grid_ms: int, number: int) -> Planned:
    triggered = base + grid_ms * draw(st.integers(0, 12)) + beside(draw)
    due = triggered + grid_ms * draw(st.integers(0, 6))
    most = duration(campaign["expires_after"]) // grid_ms + 7
    cancels = [
        (triggered + grid_ms * draw(st.integers(-2, most)) + beside(draw), draw(st.sampled_from(["left_segment", "cancelled"])))
        for _ in range(draw(st.sampled_from([0, 0, 0, 0, 0, 1, 2])))
    ]
    if cancels and rarely(draw, 3):
        cancels += [(cancels[0][0], "left_segment"), (cancels[0][0], "cancelled")]
    return Planned(campaign, due, triggered, f"{number}", cancels)


def past(draw: st.DrawFn, known_campaigns: list[Doc], base: int, grid_ms: int, planned: list[Planned]) -> Sent:
    at = base - grid_ms * draw(st.sampled_from([2, 1, 3, 5, 10, 20, 39, 40])) + beside(draw)
    if rarely(draw, 5):  # where a dedupe_key is forgotten at the due instant
        at = draw(st.sampled_from(planned)).due - DAY_MS + beside(draw)
    flags = draw(st.sampled_from([(False, False), (False, False), (False, False), (True, False), (False, True)]))
    return Sent(at, draw(st.sampled_from(known_campaigns)), *flags)
