"""States as `starling state inspect` shows them."""

import json

from starling_segmenter.state.accounts import AccountState, AnswerGroup, encode_account
from starling_segmenter.state_view import readable
from starling_segments import UserState, decode_state, encode_state
from starling_segments.aggregates.lifetime import Tally
from starling_stream.inspect.operations import readable_of


def test_a_user_is_shown_by_name() -> None:
    state = UserState(known=True, clock=1_000, user_id="ada", traits_json='{"plan":"pro"}')
    state.accumulators.put("abcdefgh", Tally(3))
    state.due.set("abcdefgh", 2_000)
    shown = readable(encode_state(decode_state(encode_state(state))))
    assert (shown["user_id"], shown["clock"], shown["accumulators"], shown["due"], shown["memberships_kept"]) == (
        "ada", 1_000, {"abcdefgh": [1, 3]}, {"abcdefgh": 2_000}, {},
    )  # fmt: skip
    assert json.loads(json.dumps(shown)) == shown


def test_an_account_is_shown_too() -> None:
    shown = readable(encode_account(AccountState(users={"ada": 1}, groups={1: AnswerGroup(1, {"c": True})}, id_bytes=3)))
    assert json.loads(json.dumps(shown)) == [{"ada": 1}, {"1": [1, {"c": True}]}, 3, False]


def test_the_commands_on_states_find_it_by_the_name_of_the_stage() -> None:
    assert readable_of("segmenter") is readable
    assert readable_of("normalizer") is None
