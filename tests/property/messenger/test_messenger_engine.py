"""The messenger's engine against the oracle: every decision, instant and reason, and each answer to `policy/check`."""

import os

from tests.property.messenger.differential import run_stories
from tests.property.messenger.engine import MessengerEngine

CASES = os.environ.get("STARLING_ORACLE_DELIVERY_CASES")
STORIES = 2 * int(CASES or "200")


def test_the_engine_and_the_oracle_decide_alike() -> None:
    reached = run_stories(MessengerEngine(), STORIES, same=CASES is None)
    assert reached["requested None"] > STORIES // 4
    assert sum(count for end, count in reached.items() if end.startswith("dropped")) > STORIES // 4
