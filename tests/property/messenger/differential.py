"""Compares an engine with the oracle over generated stories.

An engine takes part with an adapter that implements `Engine`: it maps each input of a story to the engine's own, and the engine's
results to decisions and answers. `variant` is compared for requests and hold-outs only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pprint import pformat
from typing import Protocol

from hypothesis import HealthCheck, Phase, given, settings

from tests.property.messenger.oracle import Oracle
from tests.property.messenger.story import Decision, Result, Story
from tests.property.messenger.strategies import stories


class Engine(Protocol):
    """The messenger's engine, for one user and without any state before the story."""

    def run(self, story: Story) -> Result:
        """Return all decisions about the messages of a story, and the answers to its checks; pending messages have no decision."""


class OracleEngine:
    """The oracle as an engine."""

    def __init__(self, oracle: type[Oracle] = Oracle) -> None:
        self.oracle = oracle

    def run(self, story: Story) -> Result:
        oracle = self.oracle(story.user_id)
        decisions = oracle.read(story)
        return Result(tuple(decisions), tuple(oracle.check(asked) for asked in story.checks))


class Difference(AssertionError):
    """An engine and the oracle decide differently."""


def run_stories(engine: Engine, examples: int, *, same: bool = False) -> Counter[str]:
    """Compare an engine with the oracle over so many stories; return how often each status and reason occurred.

    `same`: the stories of every run are the same.

    Raises:
        Difference: for the smallest story found, with its inputs and what both make of it.

    """
    reached: Counter[str] = Counter()

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=same,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(stories())
    def agree(story: Story) -> None:
        reached.update(compare(engine, story))

    agree()
    return reached


def compare(engine: Engine, story: Story) -> list[str]:
    """Return the statuses and reasons of a story on which both agree.

    Raises:
        Difference: if they do not agree.

    """
    expected, actual = OracleEngine().run(story), engine.run(story)
    wanted, found = _in_order(expected.decisions), _in_order(actual.decisions)
    if wanted != found or expected.answers != actual.answers:
        asked = zip(story.checks, expected.answers, actual.answers, strict=True)
        parts = {
            "user": story.user_id,
            "inputs": story.inputs,
            "only the oracle decides": [one for one in wanted if one not in found],
            "only the engine decides": [one for one in found if one not in wanted],
            "checks": [one for one in asked if one[1] != one[2]],
        }
        raise Difference("\n".join(f"{name}:\n{pformat(part, width=160)}" for name, part in parts.items()))
    return [f"{one.status} {one.reason}" for one in wanted] + [f"check {one.answer} {one.reason}" for one in expected.answers]


def _in_order(decisions: Sequence[Decision]) -> list[Decision]:
    plain = [replace(one, variant=None) if one.status == "dropped" else one for one in decisions]
    return sorted(plain, key=lambda one: (one.campaign, one.instance, one.decided_at))
