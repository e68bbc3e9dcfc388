"""`starling settle` waits for a broadcast from its instant until its last member is written."""

from typing import Any

import pytest

from starling_cli.settle.broadcasts import is_unfinished
from tests.unit.messages.stories import campaign

AT = {"broadcast": "vip", "at": "2026-12-01T09:00:00Z"}
LOCAL = {"broadcast": "vip", "local": "2026-12-01T23:00"}
"""In the earliest zone at the same instant."""


def shown(trigger: dict[str, Any], state: str, as_of: str | None, status: str = "active") -> dict[str, Any]:
    """Return a campaign as the API shows it."""
    response = {"version": 1, "revision": 7, "status": status, "created_at": "", "updated_at": "", "as_of": as_of}
    return {**campaign(trigger=trigger), **response, "broadcast": {"state": state, "written": 0}}


@pytest.mark.parametrize("trigger", [AT, LOCAL])
@pytest.mark.parametrize(
    ("state", "as_of", "unfinished"),
    [
        ("waiting", None, False),
        ("waiting", "2026-12-01T09:00:00.000Z", False),
        ("waiting", "2026-12-01T09:00:00.001Z", True),
        ("writing", "2026-12-01T09:00:00.001Z", True),
        ("done", "2026-12-01T09:00:00.001Z", False),
    ],
)
def test_a_broadcast_is_unfinished_after_its_instant(
    trigger: dict[str, Any], state: str, as_of: str | None, unfinished: bool
) -> None:
    assert is_unfinished(shown(trigger, state, as_of)) is unfinished
    for status in ("draft", "paused", "archived"):
        assert not is_unfinished(shown(trigger, state, as_of, status))


def test_other_campaigns_are_none() -> None:
    assert not is_unfinished({**campaign(), "status": "active", "as_of": "2026-12-01T09:00:00.001Z"})
