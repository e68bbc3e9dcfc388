"""README.md shows lines of a real run; the demo prints each of them that does not depend on time."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from starling_demo.consistency import compare
from starling_demo.dataset import load_purchases
from starling_demo.expected_messages import MAILED, expected_messages
from starling_demo.report import print_segments, print_story
from starling_demo.run import conclude, message_scope
from tests.unit.demo.correct_platform import Platform

README = Path(__file__).parents[3] / "README.md"
FROM_ONE_RUN = ("Starling demo:", "• ", "vip-lapsing", "(", "Webhook:", "Equal to pandas", "The demo took")
"""Starts of the lines that depend on ports, times, or the instants at which values arrive from Spark."""


def words(line: str) -> str:
    """A line without its alignment."""
    return re.sub(r"[\s━]+", " ", line).strip()


@pytest.mark.long
def test_the_readme_shows_what_the_demo_prints() -> None:
    _, _, rest = README.read_text(encoding="utf-8").partition("```\nStarling demo:")
    shown = [words(line) for line in rest.partition("```")[0].splitlines()[1:]]
    stable = [line for line in shown if line and line != "…" and not line.startswith(FROM_ONE_RUN)]
    platform = Platform(load_purchases())
    comparison = compare(platform.purchases, platform.feed, platform.members, platform.trait)
    messages = [
        one for of_user in expected_messages(platform.purchases, platform.feed.changes["repeat-buyers"]).values() for one in of_user
    ]
    scope = message_scope(len(messages), sum(one.fate == MAILED for one in messages))
    comparison = replace(comparison, scopes=[*comparison.scopes, scope])
    console = Console(file=io.StringIO(), record=True, width=200)
    print_segments(console, {key: len(users) for key, users in platform.members.items()}, platform.feed)
    print_story(console, platform.purchases, platform.feed)
    assert conclude(console, comparison, platform.feed) == 0
    printed = {words(line) for line in re.sub("[│┃┏┓└┘┡┩]", " ", console.export_text()).splitlines()}
    assert len(stable) > 10
    assert [line for line in stable if line not in printed] == []
