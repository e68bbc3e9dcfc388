"""Pure core: the two kinds of state that the segmenter keeps, a user's and an account's, as one tagged union.

The tag is the first byte, of the key as well as of the encoded state (`is_account`).
"""

from collections.abc import Callable
from typing import TypeAlias

from starling_segmenter.state.accounts import AccountState, decode_account, encode_account, is_account
from starling_segments import UserState, decode_state, encode_state
from starling_stream.model.processor import Unit

State: TypeAlias = UserState | AccountState


def encode(state: State, encode_user: Callable[[UserState], bytes] = encode_state) -> bytes:
    """Return the bytes of a user's or an account's state. `encode_user` determines the format of the former."""
    return encode_account(state) if isinstance(state, AccountState) else encode_user(state)


def decode(data: bytes) -> State:
    """Return the state that was encoded. Raises: UnknownStateFormat."""
    return decode_account(data) if is_account(data) else decode_state(data)


def user_state(unit: Unit[State], key: bytes) -> UserState | None:
    """Return the state of a user; None for a new user. Raises: TypeError for the key of an account."""
    state = unit.get(key)
    if isinstance(state, AccountState):
        raise TypeError(f"the key {key!r} belongs to an account; expected the key of a user")
    return state


def account_state(unit: Unit[State], key: bytes) -> AccountState | None:
    """Return the state of an account; None for a new account. Raises: TypeError for the key of a user."""
    state = unit.get(key)
    if isinstance(state, UserState):
        raise TypeError(f"the key {key!r} belongs to a user; expected the key of an account")
    return state
