"""The generated stories, and the comparison of an engine with the oracle: it finds planted defects."""

from __future__ import annotations

from random import Random

import pytest

from tests.property.messenger.differential import Difference, OracleEngine, compare, run_stories
from tests.property.messenger.oracle import Message, Oracle, Request
from tests.property.messenger.story import Document, OutcomeReported, Story
from tests.property.messenger.strategies import MOST_CHOICES, story_of
from tests.property.messenger.values import instant, instant_of_local, is_quiet

STORIES = 600
STORIES_UNTIL_FOUND = 2_000
ENDS = [
    "expired", "left_segment", "cancelled", "reentry", "duplicate", "no_address", "suppressed", "no_consent", "quiet_hours",
    "capped", "too_many", "archived",
]  # fmt: skip


def story(number: int) -> Story:
    return story_of(Random(number).randbytes(MOST_CHOICES))


def test_generated_stories_reach_every_end() -> None:
    engine = OracleEngine()
    reached = {end for number in range(STORIES) for end in compare(engine, story(number))}
    assert {"requested None", "held_out holdout", *(f"dropped {reason}" for reason in ENDS)} <= reached
    assert {"check send None", "check drop holdout", "check defer quiet_hours", "check defer capped"} <= reached


class CancelsBeforeDue(Oracle):
    """An exit at the due instant does not cancel."""

    def _cancelled(self, message: Message, at: int) -> str | None:
        return super()._cancelled(message, at - 1)


class FreesSlotsLate(Oracle):
    """A slot is free a ms late."""

    def _is_capped(self, document: Document, at: int) -> bool:
        return super()._is_capped(document, at) or super()._is_capped(document, at - 1)


class LivesInWinter(Oracle):
    """Quiet hours ignore that clocks change."""

    def _is_quiet(self, at: int) -> bool:
        hours = self._policy().get("quiet_hours")
        offset = instant("2026-01-15T00:00Z") - instant_of_local(self._zone(), "2026-01-15T00:00")
        return hours is not None and is_quiet("UTC", at + offset, hours)


class WakesNoMessage(Oracle):
    def _returns_a_slot(self, outcome: OutcomeReported) -> bool:
        return False


class KeepsSlotsOfFailed(Oracle):
    def _is_returned(self, request: Request) -> bool:
        return False


class IncludesTheEventInWhile(Oracle):
    def _was_member(self, segment: str, before: int) -> bool:
        return super()._was_member(segment, before + 1)


class IgnoresPriority(Oracle):
    def _in_order(self, campaign: str | None = None) -> list[Message]:
        return sorted(super()._in_order(campaign), key=lambda one: (one.instant, one.arrival))


class ExpiresEarly(Oracle):
    """The last instant of a message is not in time."""

    def _last_instant(self, message: Message) -> int:
        return super()._last_instant(message) - 1


class KnowsOnePurpose(Oracle):
    def _consents(self, channel: str, purpose: str) -> bool:
        return super()._consents(channel, "marketing")


class NeverPauses(Oracle):
    def _is_paused(self, key: str) -> bool:
        return False


def compare_until_different(engine: OracleEngine) -> None:
    for number in range(STORIES_UNTIL_FOUND):
        compare(engine, story(number))


@pytest.mark.parametrize(
    "broken",
    [
        CancelsBeforeDue, FreesSlotsLate, LivesInWinter, WakesNoMessage, KeepsSlotsOfFailed, IncludesTheEventInWhile,
        IgnoresPriority, ExpiresEarly, KnowsOnePurpose, NeverPauses,
    ],
)  # fmt: skip
def test_the_comparison_finds_a_planted_defect(broken: type[Oracle]) -> None:
    with pytest.raises(Difference, match="only the oracle decides"):
        compare_until_different(OracleEngine(broken))


@pytest.mark.long
def test_a_run_reports_the_smallest_story_that_differs() -> None:
    assert run_stories(OracleEngine(), 50)
    with pytest.raises(Difference) as found:
        run_stories(OracleEngine(CancelsBeforeDue), 1_000, same=True)
    assert str(found.value).count("MembershipChanged(") <= 4


def test_a_message_ends_once_and_is_pending_for_a_reason() -> None:
    for number in range(STORIES // 3):
        oracle = Oracle("u")
        decisions = oracle.read(story(number))
        keys = [(one.campaign, one.instance) for one in decisions]
        assert len(set(keys)) == len(keys)
        assert all(one.decided_at >= one.due_at for one in decisions if one.status != "dropped")
        assert all(one.instant > oracle.now for one in oracle.pending)
