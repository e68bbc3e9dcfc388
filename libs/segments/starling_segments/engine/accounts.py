"""Pure core: conditions on the users of an account: the answers of a user, and the segments that wait for those of the others.

The answers of an account's other users arrive later, as records. Until all of them have arrived for a user, each segment with
such a condition keeps the user's membership as it is: no membership change is based on a part of the answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from starling_segments.engine.compiled import CompiledSegment
from starling_segments.engine.plan import Plan
from starling_segments.engine.state import Belonging, UserState


class AccountUpdate(NamedTuple):
    """A user's answers for an account: condition id -> truth. `answers` is None when the user has left the account."""

    account: str
    answers: Mapping[str, bool] | None


def defer_account_conditions(plan: Plan) -> Plan:
    """Return the plan with each segment that has account conditions unchanged while answers are missing."""
    if not plan.accounts:
        return plan
    needs = _needs(plan)
    segments = tuple(_deferred(compiled, needs[compiled.segment.key]) for compiled in plan.segments)
    masks = dict.fromkeys((condition.id for condition in plan.accounts), 0)
    for number, compiled in enumerate(segments):
        for condition_id in needs[compiled.segment.key]:
            masks[condition_id] |= 1 << number
    accounts = tuple(
        replace(condition, mask=masks[condition.id], needs=frozenset[str]().union(*(needs[key] for key in condition.uses)))
        for condition in {condition.id: condition for condition in plan.accounts}.values()
    )
    return replace(plan, segments=segments, accounts=accounts)


def set_account(state: UserState, account: str | None) -> bool:
    """Set the user's account; None or an empty id for no account. Return whether it changed."""
    before = None if state.belongs is None else state.belongs.account
    if (account or None) == before:
        return False
    if state.belongs is None:
        state.belongs = Belonging(account)
    else:
        state.belongs.account = account or None
    return True


def reports_to_account(state: UserState, plan: Plan) -> bool:
    """Return whether changes of this user have to be reported to an account."""
    belongs = state.belongs
    return belongs is not None and bool(plan.accounts or belongs.reported_to)


def account_updates(state: UserState, plan: Plan) -> list[AccountUpdate]:
    """Return the answers that the user's accounts lack, and mark them as reported in the state."""
    belongs = state.belongs
    if belongs is None or not reports_to_account(state, plan):
        return []
    account = belongs.account if plan.accounts else None
    answers = {} if account is None else _answers(state, plan)
    updates = []
    if belongs.reported_to is not None and belongs.reported_to != account:
        updates.append(AccountUpdate(belongs.reported_to, None))
    if account is None:
        state.account = None
    elif belongs.reported_to != account or belongs.answers != answers:
        updates.append(AccountUpdate(account, answers))
    belongs.reported_to, belongs.answers = account, answers
    return updates


def _answers(state: UserState, plan: Plan) -> dict[str, bool]:
    return {
        condition.id: condition.holds(state, state.clock)
        for condition in plan.accounts
        if not _lacks_answers(state, condition.needs)
    }


def _needs(plan: Plan) -> dict[str, frozenset[str]]:
    """Return segment key -> ids of the account conditions that it contains, itself or through other segments."""
    needs: dict[str, frozenset[str]] = {}
    for number, compiled in enumerate(plan.segments):  # each follows the segments that it uses
        own = frozenset(condition.id for condition in plan.accounts if condition.mask >> number & 1)
        needs[compiled.segment.key] = own.union(*(needs[key] for key in compiled.segment.uses))
    return needs


def _deferred(compiled: CompiledSegment, needs: frozenset[str]) -> CompiledSegment:
    if not needs:
        return compiled
    key, truth = compiled.segment.key, compiled.holds

    def holds(state: UserState, now: int) -> bool:
        if not _lacks_answers(state, needs):
            return truth(state, now)
        membership = state.memberships.get(key)
        return membership is not None and membership.member

    return replace(compiled, holds=holds)


def _lacks_answers(state: UserState, needs: frozenset[str]) -> bool:
    """Return whether an answer of the user's account to one of these conditions is missing."""
    belongs, account = state.belongs, state.account
    if not needs or belongs is None or belongs.account is None:
        return False
    return account is None or account.id != belongs.account or not needs <= account.others.keys()
