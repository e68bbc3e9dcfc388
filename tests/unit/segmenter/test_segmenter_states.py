"""The first byte separates a user's state and an account's; the bytes of both are fixed."""

from __future__ import annotations

import pytest

from starling_segmenter.state.accounts import AccountState, AnswerGroup, account_key
from starling_segmenter.state.states import State, account_state, decode, encode, user_state
from starling_segments import UserState

ACCOUNT = AccountState({"ada": 0}, {0: AnswerGroup(1, {"q": True})}, 3)
USER = UserState(known=True, clock=1, user_id="ada", lists=["vips"])


class OneState:
    """A unit of work with one state."""

    partition, stream_time_ms = 0, 0

    def __init__(self, state: State | None) -> None:
        self.state = state

    def get(self, _key: bytes) -> State | None:
        return self.state


@pytest.mark.parametrize(
    ("state", "stored"),
    [
        (ACCOUNT, b"\x01\x94\x81\xa3ada\x00\x81\x00\x92\x01\x81\xa1q\xc3\x03\xc2"),
        (USER, b"\x08\x9c\xc3\x01\xa2{}\x90\x93\xa0\xc4\x00\xc4\x00\x80\x93\xa0\xc4\x00\xc0\x90\xa3ada\x91\xa4vips\xc0\xc0"),
    ],
)
def test_either_kind_of_state_has_the_bytes_that_are_stored(state: State, stored: bytes) -> None:
    assert encode(state) == stored
    assert decode(stored) == decode(encode(state))
    assert type(decode(stored)) is type(state)


def test_a_state_under_a_key_of_the_other_kind_is_an_error_that_names_the_key() -> None:
    with pytest.raises(TypeError, match="belongs to an account"):
        user_state(OneState(ACCOUNT), b"acme/ada")  # type: ignore[arg-type]  # of a unit, only `get` is called
    with pytest.raises(TypeError, match="belongs to a user"):
        account_state(OneState(USER), account_key("acme", "initech"))  # type: ignore[arg-type]
