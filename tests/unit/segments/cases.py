"""The shared cases of the package, and one step of a case."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import starling_segments
from starling_segments import AccountTally, Change, Evaluator, UserState

CASES = Path(starling_segments.__file__).parent.parent / "cases"
Doc = dict[str, Any]


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


def take(evaluator: Evaluator, state: UserState, step: Doc) -> list[Change]:
    now = ms(step["at"])
    if "event" in step:
        event = SimpleNamespace(
            name=step["event"],
            time_ms=ms(step["time"] if "time" in step else step["at"]),
            properties=step.get("properties", {}),
            context=step.get("context", {}),
        )
        return evaluator.on_event(state, event, now)
    if "profile" in step:
        return evaluator.on_profile(state, step["profile"], [], now)
    if "list" in step:
        return evaluator.on_list(state, step["list"], step["on"], now)
    if "account" in step:
        others = dict.fromkeys((condition.id for condition in evaluator.plan.accounts), (step["users"], step["matching"]))
        return evaluator.on_account(state, AccountTally(step["account"], others), now)
    return evaluator.on_timer(state, now)
