"""Pure core: the expected messages of the campaign, computed from the purchases and from the membership changes of pandas.

Shares no code with the campaigns, the policy and the messenger of the platform.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from starling_demo.dataset import Purchase
from starling_demo.expected import DAY_MS, END_MS, Change, Changes
from starling_demo.scenario import CAP_DAYS, DELAY_DAYS, GOAL_DAYS, HOLDOUT_PERCENT, WIN_BACK

MAILED: Final = "mailed"
HELD_OUT: Final = "held out"


class Message(NamedTuple):
    """One message of the campaign. `at`: the instant of the decision, epoch milliseconds.

    `fate`: `MAILED`, `HELD_OUT`, or the reason for which it was dropped. `converted`: a mailed or held-out person ordered in time.
    """

    at: int
    fate: str
    converted: bool = False


def expected_messages(purchases: Sequence[Purchase], repeat_buyers: Changes) -> dict[str, list[Message]]:
    """Return user -> messages in order, up to the end. `repeat_buyers`: the changes of the segment of the trigger."""
    orders: dict[str, list[int]] = {}
    for purchase in purchases:
        orders.setdefault(purchase.user_id, []).append(purchase.at_ms)
    found = {user: _of_one(user, orders[user], changes) for user, changes in repeat_buyers.items()}
    return {user: messages for user, messages in found.items() if messages}


def is_held_out(user_id: str) -> bool:
    """Return whether the campaign holds the user out: the murmur3 hash of the campaign's salt and the user id decides."""
    return murmur3_32(f"{WIN_BACK['key']}:holdout:{user_id}".encode()) % 10_000 < HOLDOUT_PERCENT * 100


def differences(expected: Mapping[str, Sequence[Message]], found: Mapping[str, Sequence[Message]]) -> list[str]:
    """Return one line for each user with other messages."""
    users = sorted(expected.keys() | found.keys())
    return [
        f"{WIN_BACK['key']}: {user}: expected {list(expected.get(user, ()))}, found {list(found.get(user, ()))}"
        for user in users
        if list(expected.get(user, ())) != list(found.get(user, ()))
    ]


def _of_one(user: str, orders: Sequence[int], changes: Sequence[Change]) -> list[Message]:
    found = list[Message]()
    entries = {at for status, at in changes if status == "ENTERED"}
    for exit_at in (at for status, at in changes if status == "EXITED"):
        due = exit_at + DELAY_DAYS * DAY_MS
        since = [at for at in orders if exit_at < at <= due]
        if since:
            first = min(since)
            # An order that also makes a repeat buyer again is an entry of the same instant, which is the reason then.
            found.append(Message(first, "left_segment" if first in entries else "cancelled"))
        elif due <= END_MS:
            found.append(_decided(user, due, orders, found))
    return sorted(found)


def _decided(user: str, due: int, orders: Sequence[int], before: Sequence[Message]) -> Message:
    if any(one.fate == MAILED and due - CAP_DAYS * DAY_MS < one.at for one in before):
        return Message(due, "capped")
    converted = any(due < at <= due + GOAL_DAYS * DAY_MS for at in orders)
    return Message(due, HELD_OUT if is_held_out(user) else MAILED, converted)


def murmur3_32(data: bytes) -> int:
    """Return MurmurHash3 x86 32 bit with seed 0 (Austin Appleby, public domain)."""
    mask, value = 0xFFFFFFFF, 0
    for start in range(0, len(data), 4):
        block = data[start : start + 4]
        word = int.from_bytes(block, "little") * 0xCC9E2D51 & mask
        word = (word << 15 | word >> 17) * 0x1B873593 & mask
        value ^= word
        if len(block) == 4:
            value = ((value << 13 | value >> 19) & mask) * 5 + 0xE6546B64 & mask
    value ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        value = (value ^ value >> shift) * factor & mask
    return value ^ value >> 16
