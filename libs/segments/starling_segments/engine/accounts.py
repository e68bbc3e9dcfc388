"""Pure core: what a user says to their account, and how segments wait for what the account says.

What the other users of an account do is told of by others, a moment later. Until all of it is known for a user, whatever asks
for it stays as it is for that user: half an answer is never announced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from starling_segments.engine.compiled import CompiledSegment
from starling_segments.engine.plan import Plan
from starling_segments.engine.state import Belonging, UserState


class Said(NamedTuple):
    """What an account is to be told about a user. `answers`: condition's identity -> what the user says; None: gone from it."""

    account: str
    answers: Mapping[str, bool] | None


def waiting_for_accounts(plan: Plan) -> Plan:
    """The plan in which what asks for an account stays as it is while that is not known."""
    if not plan.accounts:
        return plan
    needs = _needs(plan)
    segments = tuple(_once_known(compiled, needs[compiled.segment.key]) for compiled in plan.segments)
    who_asks = dict.fromkeys((asked.id for asked in plan.accounts), 0)
    for place, compiled in enumerate(segments):
        for asked_id in needs[compiled.segment.key]:
            who_asks[asked_id] |= 1 << place
    accounts = tuple(
        replace(asked, mask=who_asks[asked.id], needs=frozenset[str]().union(*(needs[key] for key in asked.uses)))
        for asked in {asked.id: asked for asked in plan.accounts}.values()
    )
    return replace(plan, segments=segments, accounts=accounts)


def belong_to(state: UserState, account: str | None) -> bool:
    """The user's account is that one now (None or empty: none). Returns whether it was another one."""
    before = None if state.belongs is None else state.belongs.account
    if (account or None) == before:
        return False
    if state.belongs is None:
        state.belongs = Belonging(account)
    else:
        state.belongs.account = account or None
    return True


def speaks(state: UserState, plan: Plan) -> bool:
    """Whether there is an account that has to hear of what changes for the user."""
    belongs = state.belongs
    return belongs is not None and bool(plan.accounts or belongs.told)


def to_tell(state: UserState, plan: Plan) -> list[Said]:
    """What the user's accounts have to be told now, which is then taken as told."""
    belongs = state.belongs
    if belongs is None or not speaks(state, plan):
        return []
    wanted = belongs.account if plan.accounts else None
    answers = {} if wanted is None else _answers(state, plan)
    said = []
    if belongs.told is not None and belongs.told != wanted:
        said.append(Said(belongs.told, None))
    if wanted is None:
        state.account = None
    elif belongs.told != wanted or belongs.answers != answers:
        said.append(Said(wanted, answers))
    belongs.told, belongs.answers = wanted, answers
    return said


def _answers(state: UserState, plan: Plan) -> dict[str, bool]:
    return {asked.id: asked.holds(state, state.clock) for asked in plan.accounts if not _lacks(state, asked.needs)}


def _needs(plan: Plan) -> dict[str, frozenset[str]]:
    """Segment -> the conditions on an account that it is built on, itself or through other segments."""
    needs: dict[str, frozenset[str]] = {}
    for place, compiled in enumerate(plan.segments):  # each comes after those that it uses
        own = frozenset(asked.id for asked in plan.accounts if asked.mask >> place & 1)
        needs[compiled.segment.key] = own.union(*(needs[key] for key in compiled.segment.uses))
    return needs


def _once_known(compiled: CompiledSegment, needs: frozenset[str]) -> CompiledSegment:
    if not needs:
        return compiled
    key, truth = compiled.segment.key, compiled.holds

    def holds(state: UserState, now: int) -> bool:
        if not _lacks(state, needs):
            return truth(state, now)
        membership = state.memberships.get(key)
        return membership is not None and membership.member

    return replace(compiled, holds=holds)


def _lacks(state: UserState, needs: frozenset[str]) -> bool:
    """Whether the user's account has not said all of this yet."""
    belongs, account = state.belongs, state.account
    if not needs or belongs is None or belongs.account is None:
        return False
    return account is None or account.id != belongs.account or not needs <= account.others.keys()
