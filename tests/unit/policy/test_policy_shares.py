"""The assignment to variants and the holdout: exact ranges, uniform, and independent between salts. All seeds are fixed."""

from collections import Counter
from itertools import combinations

import pytest

from starling_policy import Variant, parse_campaign, variant_of
from starling_policy.shares import CONTROL_SALT, WHOLE, control_position, holdout_position, position_of
from tests.unit.policy.making import message, outcome, person, policy

USERS = [f"user-{number}" for number in range(40_000)]
SALTS = ["win-back:holdout", "win-back:variant", "welcome:holdout", CONTROL_SALT]


def chi_square(observed: Counter[object], cells: int) -> float:
    expected = observed.total() / cells
    return sum((count - expected) ** 2 / expected for count in observed.values()) + (cells - len(observed)) * expected


@pytest.mark.parametrize("salt", SALTS)
def test_positions_are_uniform(salt: str) -> None:
    observed: Counter[object] = Counter(position_of(salt, user) // 100 for user in USERS)
    assert chi_square(observed, 100) < 148.2  # 99 degrees of freedom, p = 0.001


@pytest.mark.parametrize(("one", "other"), [*combinations(SALTS, 2)])
def test_positions_of_different_salts_are_independent(one: str, other: str) -> None:
    observed: Counter[object] = Counter((position_of(one, user) // 1000, position_of(other, user) // 1000) for user in USERS)
    assert chi_square(observed, 100) < 148.2


def test_a_planted_dependence_is_found() -> None:
    observed: Counter[object] = Counter((position_of("a", user) // 1000, (position_of("a", user) + 500) // 1000) for user in USERS)
    assert chi_square(observed, 100) > 148.2


def test_the_holdout_and_the_control_group_have_their_size() -> None:
    held = sum(holdout_position("win-back", user) < 1000 for user in USERS)
    control = sum(control_position(user) < 500 for user in USERS)
    both = sum(holdout_position("win-back", user) < 1000 and control_position(user) < 500 for user in USERS)
    assert abs(held - 4000) < 200  # 3.3 standard deviations
    assert abs(control - 2000) < 144
    assert abs(both - 200) < 46


def test_a_person_is_held_out_below_the_share_and_not_at_it() -> None:
    share = holdout_position("win-back", "ada") / 100
    assert 0.01 < share < 99.99
    assert outcome(message(holdout={"percent": share})) == "send"
    assert outcome(message(holdout={"percent": round(share + 0.01, 2)})) == "holdout"
    control = control_position("ada") / 100
    assert outcome(message(), rules=policy(control_group={"percent": control})) == "send"
    assert outcome(message(), rules=policy(control_group={"percent": round(control + 0.01, 2)})) == "holdout"


def test_the_ranges_of_variants_follow_one_another_in_document_order() -> None:
    at = position_of("win-back:variant", "ada")
    first, second = Variant("a", at), Variant("b", WHOLE - at)
    assert variant_of("win-back", (first, second), "ada") == "b"
    assert variant_of("win-back", (first._replace(share=at + 1), second._replace(share=WHOLE - at - 1)), "ada") == "a"
    assert variant_of("win-back", (), "ada") is None


def test_every_user_has_a_variant_and_the_weights_hold() -> None:
    weights = {"a": 33.33, "b": 0, "c": 66.67}
    variants = parse_campaign(
        {"key": "x", "channel": "email", "variants": [{"key": key, "weight": weight} for key, weight in weights.items()]}
    ).variants
    found = Counter(variant_of("x", variants, user) for user in USERS)
    assert found.keys() == {"a", "c"}
    assert abs(found["a"] - 13_332) < 310


def test_users_of_any_id_have_a_position() -> None:
    assert all(0 <= position_of("s", user) < WHOLE for user in ("", "\ud800", "ä" * 500, *USERS[:100]))
    assert outcome(message(holdout={"percent": 100}), person(user_id="\ud800")) == "holdout"
