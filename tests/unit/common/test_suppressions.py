"""The suppressed addresses as a fold."""

from typing import Any

import pytest

from starling_common.outcome import Done, Refused
from starling_common.records.suppressions import STOP, SuppressedAddresses, fold_suppression, suppression_key

DIGEST = "ab" * 32


def record(kind: str | None, **more: Any) -> dict[str, Any]:
    return {"workspace": "acme", "channel": "sms", "digest": DIGEST, "kind": kind, **more}


def folded(*records: dict[str, Any]) -> str | None:
    known = SuppressedAddresses()
    for one in records:
        assert isinstance(fold_suppression(known, b"", one), Done)
    return known.kind("acme", "sms", DIGEST)


@pytest.mark.parametrize(
    ("records", "kind"),
    [
        ([], None),
        ([record("uploaded")], "uploaded"),
        ([record("uploaded"), record(None)], None),
        ([record("uploaded"), record("complaint")], "complaint"),
        ([record("uploaded"), record(STOP, by_person=True)], STOP),
        ([record("uploaded"), record(STOP, by_person=True), record(None, by_person=True)], "uploaded"),
        ([record(STOP, by_person=True), record(None)], STOP),
        ([record(None, by_person=True), record("hard_bounce")], "hard_bounce"),
        ([record(None), record(None, by_person=True)], None),
        ([record("uploaded", workspace="other"), record("uploaded", channel="email")], None),
    ],
)
def test_suppressions_of_people_and_of_others_do_not_end_one_another(records: list[dict[str, Any]], kind: str | None) -> None:
    assert folded(*records) == kind


def test_compaction_keeps_the_newest_of_both() -> None:
    one, other = suppression_key("acme", "sms", DIGEST), suppression_key("acme", "sms", DIGEST, by_person=True)
    assert (one, other) == (f"acme/sms/{DIGEST}".encode(), f"acme/sms/{DIGEST}/stop".encode())


@pytest.mark.parametrize("refused", [None, record("uploaded", digest="no digest")])
def test_a_record_without_an_address_is_refused(refused: dict[str, Any] | None) -> None:
    known = SuppressedAddresses()
    assert isinstance(fold_suppression(known, b"", refused), Refused)
    assert known == SuppressedAddresses()
