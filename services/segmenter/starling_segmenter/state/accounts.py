"""Pure core: the state of an account and the tallies that its users receive.

An account has a key of its own in the segmenter's state, with the answers of its users to each condition that a segment has on
the users of an account. A tally contains the number of other users and how many of them fulfil each condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec

from starling_common.wire import Record
from starling_segments import Cause

_MARK: Final = b"\x01"
"""The first byte of an account's key and of its state; no workspace and no state of a user begins with it."""

_MAX_BYTES: Final = 800_000
"""Limit of an account's state, below the megabyte of a changelog record: about 20,000 users with ids of 36 bytes."""


class Origin(NamedTuple):
    """The origin of a change. `at`: stream time in ms; the ids and the name are None for a timer or a definition."""

    at: int
    cause: Cause
    message_id: str | None = None
    event_name: str | None = None
    correlation_id: str | None = None


class Answered(NamedTuple):
    """One `AccountAnswered`. `answers`: condition id -> truth; None for a user who has left the account."""

    workspace: str
    account_id: str
    user_id: str
    answers: Mapping[str, bool] | None
    origin: Origin


class Tallied(NamedTuple):
    """One `AccountTallied`. `matching`: condition id -> number of the `others` who fulfil it."""

    workspace: str
    account_id: str
    user_id: str
    others: int
    matching: Mapping[str, int]
    origin: Origin


class AnswerGroup(msgspec.Struct, array_like=True):
    """The number of users of an account with the same answers."""

    users: int
    answers: dict[str, bool]


class AccountState(msgspec.Struct, array_like=True):
    """An account. `users`: user id -> number of the group in `groups`. `too_large`: the account exceeded its limit and is empty."""

    users: dict[str, int] = msgspec.field(default_factory=dict)
    groups: dict[int, AnswerGroup] = msgspec.field(default_factory=dict)
    id_bytes: int = 0
    too_large: bool = False


class Tally(NamedTuple):
    """The number of users, and how many of them fulfil each condition that all users have answered."""

    users: int
    matching: Mapping[str, int]


def account_key(workspace: str, account_id: str) -> bytes:
    """Return the key of an account's state."""
    return _MARK + f"{workspace}/{account_id}".encode()


def is_account(data: bytes) -> bool:
    """Return whether a key, or the bytes of a state, belong to an account."""
    return data[:1] == _MARK


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AccountState)


def encode_account(account: AccountState) -> bytes:
    """Return the mark, then MessagePack."""
    return _MARK + _encoder.encode(account)


def decode_account(data: bytes) -> AccountState:
    """Return the account of its encoded state."""
    return _decoder.decode(memoryview(data)[1:])


def tally_of(account: AccountState) -> Tally:
    """Return the tally of all users of the account."""
    groups = list(account.groups.values())
    known = set.intersection(*(set(group.answers) for group in groups)) if groups else set()
    matching = {condition: sum(group.users for group in groups if group.answers[condition]) for condition in known}
    return Tally(len(account.users), matching)


def apply_answer(account: AccountState, answered: Answered) -> Iterator[Tallied] | None:
    """Store the answers of one user; return the tallies to send, or None if the account has just become too large."""
    if account.too_large:
        return iter(())
    before, is_new = tally_of(account), answered.user_id not in account.users
    _remove(account, answered.user_id)
    if answered.answers is not None:
        _add(account, answered.user_id, answered.answers)
    if not _fits(account):
        account.users, account.groups, account.too_large = {}, {}, True
        return None
    return _tallies(account, answered, before, is_new=is_new)


def _tallies(account: AccountState, answered: Answered, before: Tally, *, is_new: bool) -> Iterator[Tallied]:
    """Yield a tally for a new user, and for each user for whom "any" or "all" of the others has another truth than before."""
    after = tally_of(account)
    is_answered = any(condition not in before.matching for condition in after.matching)
    changed = {number: _is_changed(group.answers, before, after) for number, group in account.groups.items()}
    receivers = account.users if any(changed.values()) else {answered.user_id} & account.users.keys()
    for user in receivers:
        if (is_new or is_answered) if user == answered.user_id else changed[account.users[user]]:
            own = account.groups[account.users[user]].answers
            matching = {condition: count - own[condition] for condition, count in after.matching.items()}
            yield Tallied(answered.workspace, answered.account_id, user, after.users - 1, matching, answered.origin)


def _is_changed(own: Mapping[str, bool], before: Tally, after: Tally) -> bool:
    """Return whether "any" or "all" of the others has another truth for a user whose own answers stay the same."""
    return any(
        condition not in before.matching
        or _any_and_all(before.users - 1, before.matching[condition] - own[condition])
        != _any_and_all(after.users - 1, matching - own[condition])
        for condition, matching in after.matching.items()
    )


def _any_and_all(others: int, matching: int) -> tuple[bool, bool]:
    return matching > 0, matching == others


def _remove(account: AccountState, user: str) -> None:
    number = account.users.pop(user, None)
    if number is None:
        return
    account.id_bytes -= len(user.encode())
    account.groups[number].users -= 1
    if not account.groups[number].users:
        del account.groups[number]


def _add(account: AccountState, user: str, answers: Mapping[str, bool]) -> None:
    number = next((number for number, group in account.groups.items() if group.answers == answers), None)
    if number is None:
        number = next(free for free in range(len(account.groups) + 1) if free not in account.groups)
        account.groups[number] = AnswerGroup(0, dict(answers))
    account.groups[number].users += 1
    account.users[user] = number
    account.id_bytes += len(user.encode())


def _fits(account: AccountState) -> bool:
    answers = sum(len(group.answers) for group in account.groups.values())
    return account.id_bytes + 8 * len(account.users) + 12 * len(account.groups) + 10 * answers <= _MAX_BYTES


def read_answered(record: Record) -> Answered:
    """Return the message of a decoded `AccountAnswered`."""
    answers = record["answers"] if record["belongs"] else None
    return Answered(record["workspace"], record["account_id"], record["user_id"], answers, _origin(record))


def read_tallied(record: Record) -> Tallied:
    """Return the message of a decoded `AccountTallied`."""
    ids = record["workspace"], record["account_id"], record["user_id"]
    return Tallied(*ids, record["others"], record["matching"], _origin(record))


def record_of(message: Answered | Tallied, now_micros: int) -> Record:
    """Return the record of a message."""
    fields: dict[str, Any] = {**message._asdict(), **message.origin._asdict(), "received_at": now_micros}
    del fields["origin"]
    if isinstance(message, Answered):
        fields |= {"belongs": message.answers is not None, "answers": message.answers or {}}
    return fields


def _origin(record: Record) -> Origin:
    cause = cast("Cause", record["cause"])
    return Origin(record["at"], cause, record["message_id"], record["event_name"], record["correlation_id"])
