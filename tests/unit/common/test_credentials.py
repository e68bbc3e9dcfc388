"""The fold of tokens and write keys: what compaction and concurrent writers may do to their records."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from starling_common.outcome import Done, Refused
from starling_common.records.credentials import (
    Credential,
    Credentials,
    Secret,
    digest_of,
    fold_credentials,
    revocation_key,
    revocation_record,
    secret_key,
    secret_record,
)
from starling_common.telemetry.health import Degraded, checks_answer

FIRST = Secret(digest_of("first"), "fir", "irst", 1_000, None)
SECOND = Secret(digest_of("second"), "sec", "cond", 2_000, 9_000)
TOKEN = Credential("acme", "tok_1", "ci", "editor", (), 1_000, "admin-1", (FIRST,))
WHEN = (5_000_000, "c-1")

Written = tuple[bytes, dict[str, Any] | None]
MADE: Written = (secret_key(TOKEN, FIRST), secret_record(TOKEN, FIRST, WHEN))
ROTATED: Written = (secret_key(TOKEN, SECOND), secret_record(TOKEN, SECOND, WHEN))
ENDING: Written = (MADE[0], secret_record(TOKEN, replace(FIRST, expires_at_ms=3_000), WHEN))
REVOKED: Written = (revocation_key(TOKEN), revocation_record(TOKEN, 5_000, WHEN))


def folded(*records: Written) -> Credentials:
    state = Credentials()
    for key, record in records:
        assert fold_credentials(state, key, record) == Done(state)
    return state


def test_a_secret_finds_its_credential() -> None:
    state = folded(MADE)
    found = state.match("first")
    assert found is not None
    assert (found.credential, found.secret) == (TOKEN, FIRST)
    assert state.match("second") is None
    assert state.get("acme", "tok_1") == TOKEN
    assert state.get("other", "tok_1") is None
    assert state.of_workspace("other") == []


def test_after_a_rotation_both_secrets_are_found_with_their_own_expiry() -> None:
    state = folded(MADE, ROTATED, ENDING)
    first, second = state.match("first"), state.match("second")
    assert first is not None
    assert second is not None
    assert (first.secret.is_valid(2_999), first.secret.is_valid(3_000)) == (True, False)
    assert second.secret.expires_at_ms == 9_000
    assert [one.digest for one in second.credential.secrets] == [FIRST.digest, SECOND.digest]


@pytest.mark.parametrize("order", list(permutations([MADE, ROTATED, REVOKED])))
def test_a_revocation_holds_in_any_order_of_the_records(order: tuple[Written, ...]) -> None:
    # Compaction keeps one record of each key, and a rotation may be written at the same time as a revocation.
    state = folded(*order)
    assert state.match("first") is None
    assert state.match("second") is None
    found = state.get("acme", "tok_1")
    assert found is not None
    assert found.revoked_at_ms == 5_000


def test_a_tombstone_removes_one_secret() -> None:
    state = folded(MADE, ROTATED, (MADE[0], None), (b"acme/unknown/00", None))
    assert state.match("first") is None
    assert state.match("second") is not None


def test_each_change_has_another_version() -> None:
    state = folded(MADE)
    before = state.version
    fold_credentials(state, *ROTATED)
    assert state.version is not before


@pytest.mark.parametrize(
    ("key", "record", "code"),
    [
        (REVOKED[0], None, "missing_value"),
        (b"other/tok_1/00", MADE[1], "bad_key"),
        (b"\xff", MADE[1], "bad_key"),
        (MADE[0], {**(MADE[1] or {}), "sha256": b"short"}, "bad_digest"),
        (MADE[0], {**(MADE[1] or {}), "sha256": None}, "bad_digest"),
    ],
)
def test_a_record_that_is_none_is_refused_without_an_effect(key: bytes, record: dict[str, Any] | None, code: str) -> None:
    state = folded(MADE)
    outcome = fold_credentials(state, key, record)
    assert isinstance(outcome, Refused)
    assert outcome.code == code
    assert state.get("acme", "tok_1") == TOKEN


def test_a_degraded_process_stays_ready_and_names_the_problem() -> None:
    assert checks_answer({"a": None})[0] == 200
    status, _, body = checks_answer({"a": None, "b": Degraded("read 9 s ago")})
    assert (status, body) == (200, b'{"status": "warn", "checks": {"a": "ok", "b": "read 9 s ago"}}')
    status, _, body = checks_answer({"a": "away", "b": Degraded("read 9 s ago")})
    assert (status, body) == (503, b'{"status": "fail", "checks": {"a": "away", "b": "read 9 s ago"}}')
