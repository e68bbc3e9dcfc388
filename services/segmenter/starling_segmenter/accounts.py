"""Pure core: an account's users and what they say, as the account's own worker keeps it, and who has to hear of a change.

An account is a key of its own in the segmenter's state. Its users say there what they answer to each condition that a segment
has for the users of an account; whoever is concerned is told how many others there are, and how many of them fulfil it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec

from starling_common.wire import Record
from starling_segments import Cause

_MARK: Final = b"\x01"
"""The first byte of an account's key, and of its state: no workspace begins with it, and no user's state."""

_MOST_BYTES: Final = 800_000
"""Of an account's state: a record of the changelog holds less than a megabyte. About 20,000 users with ids of 36 bytes."""


class Why(NamedTuple):
    """What brought it about. `at`: epoch ms of the users' time; the rest is None where nobody's request did."""

    at: int
    cause: Cause
    message_id: str | None = None
    event_name: str | None = None
    correlation_id: str | None = None


class Answered(NamedTuple):
    """One `AccountAnswered`. `answers`: None for a user who belongs to the account no more."""

    workspace: str
    account_id: str
    user_id: str
    answers: Mapping[str, bool] | None
    why: Why


class Tallied(NamedTuple):
    """One `AccountTallied`. `matching`: condition's identity -> how many of the `others` fulfil it."""

    workspace: str
    account_id: str
    user_id: str
    others: int
    matching: Mapping[str, int]
    why: Why


class Alike(msgspec.Struct, array_like=True):
    """How many users of an account give these answers."""

    users: int
    answers: dict[str, bool]


class AccountState(msgspec.Struct, array_like=True):
    """An account: its users by the number of those `alike`. `too_large`: it outgrew what can be kept, and keeps nothing."""

    users: dict[str, int] = msgspec.field(default_factory=dict)
    alike: dict[int, Alike] = msgspec.field(default_factory=dict)
    id_bytes: int = 0
    too_large: bool = False


class Tally(NamedTuple):
    """How many users there are, and how many of them fulfil each condition that all of them have answered."""

    users: int
    matching: Mapping[str, int]


def account_key(workspace: str, account_id: str) -> bytes:
    """The key of an account's state."""
    return _MARK + f"{workspace}/{account_id}".encode()


def is_account(data: bytes) -> bool:
    """Whether a key, or the bytes of a state, are an account's."""
    return data[:1] == _MARK


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AccountState)


def encode_account(account: AccountState) -> bytes:
    """Its mark, then MessagePack."""
    return _MARK + _encoder.encode(account)


def decode_account(data: bytes) -> AccountState:
    """The inverse."""
    return _decoder.decode(memoryview(data)[1:])


def tally_of(account: AccountState) -> Tally:
    """Of the account as it is."""
    kinds = list(account.alike.values())
    known = set.intersection(*(set(kind.answers) for kind in kinds)) if kinds else set()
    return Tally(len(account.users), {asked: sum(kind.users for kind in kinds if kind.answers[asked]) for asked in known})


def apply_answer(account: AccountState, said: Answered) -> Iterator[Tallied] | None:
    """Store the answers of one user; return the tallies to send, or None if the account has just become too large."""
    if account.too_large:
        return iter(())
    before, is_new = tally_of(account), said.user_id not in account.users
    _forget(account, said.user_id)
    if said.answers is not None:
        _keep(account, said.user_id, said.answers)
    if not _fits(account):
        account.users, account.alike, account.too_large = {}, {}, True
        return None
    return _tidings(account, said, before, is_new=is_new)


def _tidings(account: AccountState, said: Answered, before: Tally, *, is_new: bool) -> Iterator[Tallied]:
    """One for each user to whom the difference may matter: who has just come, and for whom any or all of the others turned."""
    after = tally_of(account)
    fresh = any(asked not in before.matching for asked in after.matching)
    concerned = {number: _turned(kind.answers, before, after) for number, kind in account.alike.items()}
    hears = account.users if any(concerned.values()) else {said.user_id} & account.users.keys()
    for user in hears:
        if (is_new or fresh) if user == said.user_id else concerned[account.users[user]]:
            own = account.alike[account.users[user]].answers
            matching = {asked: count - own[asked] for asked, count in after.matching.items()}
            yield Tallied(said.workspace, said.account_id, user, after.users - 1, matching, said.why)


def _turned(own: Mapping[str, bool], before: Tally, after: Tally) -> bool:
    """Whether for somebody who gives these answers, and gave them before, any or all of the others turned."""
    return any(
        asked not in before.matching
        or _any_and_all(before.users - 1, before.matching[asked] - own[asked])
        != _any_and_all(after.users - 1, matching - own[asked])
        for asked, matching in after.matching.items()
    )


def _any_and_all(others: int, matching: int) -> tuple[bool, bool]:
    return matching > 0, matching == others


def _forget(account: AccountState, user: str) -> None:
    number = account.users.pop(user, None)
    if number is None:
        return
    account.id_bytes -= len(user.encode())
    account.alike[number].users -= 1
    if not account.alike[number].users:
        del account.alike[number]


def _keep(account: AccountState, user: str, answers: Mapping[str, bool]) -> None:
    number = next((number for number, kind in account.alike.items() if kind.answers == answers), None)
    if number is None:
        number = next(free for free in range(len(account.alike) + 1) if free not in account.alike)
        account.alike[number] = Alike(0, dict(answers))
    account.alike[number].users += 1
    account.users[user] = number
    account.id_bytes += len(user.encode())


def _fits(account: AccountState) -> bool:
    answers = sum(len(kind.answers) for kind in account.alike.values())
    return account.id_bytes + 8 * len(account.users) + 12 * len(account.alike) + 10 * answers <= _MOST_BYTES


def read_answered(record: Record) -> Answered:
    """An `AccountAnswered` as decoded."""
    answers = record["answers"] if record["belongs"] else None
    return Answered(record["workspace"], record["account_id"], record["user_id"], answers, _why(record))


def read_tallied(record: Record) -> Tallied:
    """An `AccountTallied` as decoded."""
    ids = record["workspace"], record["account_id"], record["user_id"]
    return Tallied(*ids, record["others"], record["matching"], _why(record))


def record_of(told: Answered | Tallied, now_micros: int) -> Record:
    """The record that says so."""
    fields: dict[str, Any] = {**told._asdict(), **told.why._asdict(), "received_at": now_micros}
    del fields["why"]
    if isinstance(told, Answered):
        fields |= {"belongs": told.answers is not None, "answers": told.answers or {}}
    return fields


def _why(record: Record) -> Why:
    cause = cast("Cause", record["cause"])
    return Why(record["at"], cause, record["message_id"], record["event_name"], record["correlation_id"])
