"""The profile: computed traits, bounds, and the stored form."""

import struct

import msgspec
import pytest

from starling_common.outcome import Refused, Skipped
from starling_items.dedupe import DEFAULT_WINDOW_MS, SeenMessages, remember
from starling_items.profile import (
    FORMAT,
    FORMAT_BEFORE,
    MAX_ANONYMOUS_ID_BYTES,
    MAX_ANONYMOUS_IDS,
    MAX_TRAITS_BYTES,
    Changed,
    Computation,
    Profile,
    add_anonymous_id,
    decode_profile,
    encode_profile,
    merge_traits,
    profile_encoder,
    same_json,
    set_computed,
)


def test_the_stored_form_gives_back_the_profile() -> None:
    profile = Profile(
        traits_json='{"plan":"pro"}',
        anonymous_ids=["a-1", "a-2"],
        group_id="acme",
        seen=SeenMessages(b"\xff" * 8 + (5).to_bytes(8, "big"), bytes(4) + (8).to_bytes(4, "big")),
        computations={"vip": Computation(2, 1_767_225_600_000), "n": Computation(1, 5, 1_767_225_600, 9)},
    )
    assert decode_profile(encode_profile(profile)) == profile
    assert decode_profile(encode_profile(Profile())) == Profile()


# Bytes that every later version must read.
FORMAT_1 = "0195ae7b22706c616e223a2270726f227d91a3612d31a461636d6592cdea6082050807ce0001d4c081a37669709202cd03e8"
FORMAT_2 = (
    "0295ae7b22706c616e223a2270726f227d91a3612d31a461636d6592c41000000000000000050000000000000007c4080000000100000003"
    "81a37669709202cd03e8"
)


@pytest.mark.parametrize("stored", [FORMAT_1, FORMAT_2])
def test_every_stored_form_stays_readable(stored: str) -> None:
    seen = SeenMessages()
    remember(seen, 5, 60_008, DEFAULT_WINDOW_MS)
    remember(seen, 7, 180_000, DEFAULT_WINDOW_MS)
    profile = Profile('{"plan":"pro"}', ["a-1"], "acme", seen, {"vip": Computation(2, 1000)})
    assert decode_profile(bytes.fromhex(stored)) == profile


def test_a_profile_written_in_the_format_before_is_the_same_profile() -> None:
    seen = SeenMessages()
    for number in range(3_000):
        remember(seen, number * 0x9E3779B97F4A7C15 % 2**64, 1_767_225_600_000 + number * 90_000, DEFAULT_WINDOW_MS)
    profile = Profile('{"plan":"pro"}', ["a-1"], "acme", seen, {"vip": Computation(2, 1000)})
    for before in (profile, Profile()):
        stored = profile_encoder(FORMAT_BEFORE)(before)
        assert stored[0] == FORMAT_BEFORE
        assert decode_profile(stored) == before
        # The layout of release 0.1.0: the start, and each hash with its milliseconds after it.
        since_ms, ages = msgspec.msgpack.decode(stored[1:], strict=False)[3]
        assert [(since_ms + age) // 60_000 for age in ages.values()] == list(struct.unpack(f">{len(ages)}I", before.seen.minutes))
        assert profile_encoder(FORMAT)(decode_profile(stored)) == encode_profile(before)


def test_any_other_format_is_refused_with_those_that_can_be_written() -> None:
    with pytest.raises(ValueError, match="profile format 3: this version writes the formats 1 and 2"):
        profile_encoder(3)


@pytest.mark.parametrize("data", [b"", b"\x03\x90", b"\x01", b"\x01\xc1", b"\x01\x91\x05", b"\x02", b"\x02\x91\x05"])
def test_other_bytes_are_no_profile(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_profile(data)


def test_two_new_profiles_share_nothing() -> None:
    one, other = Profile(), Profile()
    one.anonymous_ids.append("a-1")
    remember(one.seen, 1, 1, DEFAULT_WINDOW_MS)
    one.computations["vip"] = Computation(1, 1)
    assert other == Profile()


def test_traits_have_a_bound() -> None:
    refused = merge_traits("{}", {"a": "x" * MAX_TRAITS_BYTES})
    assert isinstance(refused, Refused)
    assert refused.code == "profile_too_large"


def test_the_latest_anonymous_ids_are_kept() -> None:
    known: list[str] = []
    for number in range(MAX_ANONYMOUS_IDS + 5):
        add_anonymous_id(known, f"a-{number}")
        add_anonymous_id(known, "a-7" if number > 7 else f"a-{number}")
    assert len(known) == len(set(known)) == MAX_ANONYMOUS_IDS
    assert known[-1] == f"a-{MAX_ANONYMOUS_IDS + 4}"


def test_the_latest_anonymous_ids_within_the_bound_of_bytes_are_kept() -> None:
    known: list[str] = []
    ids = [f"{number:03}{'é' * 254}" for number in range(60)]
    for anonymous_id in ids:
        add_anonymous_id(known, anonymous_id)
    assert known == ids[-(MAX_ANONYMOUS_ID_BYTES // 511) :]


def test_a_stored_profile_with_ids_of_any_length_is_cut_when_it_is_read() -> None:
    stored = encode_profile(Profile('{"plan":"pro"}', [*(f"{number}{'x' * 30_000}" for number in range(40)), "latest"]))
    assert decode_profile(stored) == Profile('{"plan":"pro"}', ["latest"])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (0, False, False),
        ("1", 1, False),
        (None, None, True),
        ([1], [1], True),
        ([1], [True], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": {"b": 1}}, {"a": {"b": 1.0}}, False),
    ],
)
def test_same_json(one: object, other: object, same: bool) -> None:
    assert same_json(one, other) is same


def test_a_computed_trait_is_set_changed_and_removed() -> None:
    profile = Profile(traits_json='{"plan":"pro"}')
    assert set_computed(profile, "n", 1, Computation(1, 10)) == Changed('{"plan":"pro","computed":{"n":1}}', ["computed.n"])
    profile = Profile(traits_json='{"plan":"pro","computed":{"n":1}}', computations={"n": Computation(1, 10)})
    assert set_computed(profile, "n", 2, Computation(1, 11)) == Changed('{"plan":"pro","computed":{"n":2}}', ["computed.n"])
    assert set_computed(profile, "n", None, Computation(1, 11)) == Changed('{"plan":"pro"}', ["computed.n"])
    assert set_computed(profile, "n", 1, Computation(1, 11)) == Changed(profile.traits_json, [])


@pytest.mark.parametrize(
    ("computation", "older"),
    [(Computation(1, 99), True), (Computation(2, 9), True), (Computation(2, 10), False), (Computation(3, 1), False)],
)
def test_an_older_computation_is_passed_over(computation: Computation, older: bool) -> None:
    profile = Profile(traits_json='{"computed":{"n":1}}', computations={"n": Computation(2, 10)})
    assert isinstance(set_computed(profile, "n", 5, computation), Skipped) is older


@pytest.mark.parametrize(
    ("computation", "outdated"),
    [
        (Computation(2, 10, 7, 3), True),
        (Computation(2, 99, 7, 3), True),
        (Computation(2, 99, 7, 2), True),
        (Computation(2, 99, 6, 9), True),
        (Computation(1, 99, 9, 9), True),
        (Computation(2, 10, 7, 4), False),
        (Computation(2, 10, 8, 0), False),
        (Computation(3, 10, 1, 1), False),
    ],
)
def test_a_value_of_a_lower_epoch_or_sequence_and_a_repeated_one_are_passed_over(computation: Computation, outdated: bool) -> None:
    profile = Profile(traits_json='{"computed":{"n":1}}', computations={"n": Computation(2, 10, 7, 3)})
    assert isinstance(set_computed(profile, "n", 5, computation), Skipped) is outdated


@pytest.mark.parametrize(
    ("held", "computation", "outdated"),
    [
        (Computation(2, 10), Computation(2, 9, 7, 1), False),
        (Computation(2, 10, 7, 3), Computation(2, 10), False),
        (Computation(2, 10, 7, 3), Computation(2, 9), True),
        (Computation(2, 10, 7, 3), Computation(1, 11), True),
    ],
)
def test_without_counting_the_stream_time_decides(held: Computation, computation: Computation, outdated: bool) -> None:
    profile = Profile(traits_json='{"computed":{"n":1}}', computations={"n": held})
    assert isinstance(set_computed(profile, "n", 5, computation), Skipped) is outdated


class ComputationBefore(msgspec.Struct, array_like=True, frozen=True):
    """The computation of the release before epochs."""

    version: int
    as_of_ms: int


def test_a_release_without_epochs_reads_a_computation_with_them() -> None:
    stored = msgspec.msgpack.encode({"vip": Computation(2, 1000, 1_767_225_600, 9)})
    found = msgspec.msgpack.decode(stored, type=dict[str, ComputationBefore])
    assert found == {"vip": ComputationBefore(2, 1000)}
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=dict[str, Computation]) == {"vip": Computation(2, 1000)}
