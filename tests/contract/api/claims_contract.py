"""What every store of the command side must do. Subclass, provide the fixtures, inherit the tests."""

from collections.abc import Mapping
from typing import Any

from starling_api.definitions.definition import Author, Change, archived, defined, revised
from starling_api.ports import Answers, Claims, Stored
from starling_common.values import Workspace

MEANING = frozenset({"where"})


def first_change(workspace: str, where: Mapping[str, Any]) -> Change:
    author = Author(Workspace(workspace), "marketer-1", "correlation-1")
    return defined("segment", author, {"key": "vip", "name": "Ü \x00 🎉", "where": where}, 1_700_000_000_000_001)


class ClaimsContract:
    def test_an_unused_key_has_no_claim(self, claims: Claims, workspace: str) -> None:
        assert claims.newest(workspace, "segment", "vip") is None

    def test_of_two_first_claims_one_wins(self, claims: Claims, workspace: str) -> None:
        one, other = first_change(workspace, {"everyone": True}), first_change(workspace, {"event": "x"})
        assert claims.claim(one, None)
        assert not claims.claim(other, None)
        found = claims.newest(workspace, "segment", "vip")
        assert found is not None
        assert (found.change, found.published) == (one, False)

    def test_of_two_later_claims_after_the_same_change_one_wins(self, claims: Claims, workspace: str) -> None:
        author = Author(Workspace(workspace), "marketer-1", "correlation-1")
        first = first_change(workspace, {"everyone": True})
        assert claims.claim(first, None)
        second = revised(first, author, {**first.document, "where": {"event": "x"}}, MEANING, 0)
        assert claims.claim(second, first)
        assert not claims.claim(archived(first, author, 0), first)
        assert claims.claim(archived(second, author, 0), second)

    def test_published_is_remembered_for_that_change_only(self, claims: Claims, workspace: str) -> None:
        author = Author(Workspace(workspace), "marketer-1", "correlation-1")
        first = first_change(workspace, {"everyone": True})
        claims.claim(first, None)
        assert first in claims.unpublished()
        claims.mark_published(first)
        assert first not in claims.unpublished()
        second = archived(first, author, 0)
        claims.claim(second, first)
        claims.mark_published(first)  # late, and of no effect
        found = claims.newest(workspace, "segment", "vip")
        assert found is not None
        assert (found.change, found.published) == (second, False)

    def test_a_withdrawn_claim_restores_the_one_before_it(self, claims: Claims, workspace: str) -> None:
        author = Author(Workspace(workspace), "marketer-1", "correlation-1")
        first = first_change(workspace, {"everyone": True})
        claims.claim(first, None)
        claims.withdraw(first, None)
        assert claims.newest(workspace, "segment", "vip") is None
        assert claims.claim(first, None)
        claims.mark_published(first)
        second = archived(first, author, 0)
        claims.claim(second, first)
        claims.withdraw(second, first)
        found = claims.newest(workspace, "segment", "vip")
        assert found is not None
        assert (found.change, found.published) == (first, True)
        assert claims.claim(second, first)

    def test_a_published_or_superseded_claim_is_not_withdrawn(self, claims: Claims, workspace: str) -> None:
        author = Author(Workspace(workspace), "marketer-1", "correlation-1")
        first = first_change(workspace, {"everyone": True})
        claims.claim(first, None)
        claims.mark_published(first)
        claims.withdraw(first, None)
        second = archived(first, author, 0)
        assert claims.claim(second, first)
        claims.withdraw(first, None)
        claims.mark_published(second)
        claims.withdraw(second, first)
        found = claims.newest(workspace, "segment", "vip")
        assert found is not None
        assert (found.change, found.published) == (second, True)

    def test_workspaces_and_kinds_are_separate(self, claims: Claims, workspace: str) -> None:
        claims.claim(first_change(workspace, {"everyone": True}), None)
        assert claims.newest(f"{workspace}x", "segment", "vip") is None
        assert claims.newest(workspace, "webhook", "vip") is None


class AnswersContract:
    def test_the_second_request_sees_the_reservation_of_the_first(self, answers: Answers, workspace: str) -> None:
        assert answers.reserve(workspace, "k", "print") is None
        assert answers.reserve(workspace, "k", "other") == ("print", Stored(0, "", None))

    def test_a_stored_response_is_found(self, answers: Answers, workspace: str) -> None:
        answers.reserve(workspace, "k", "print")
        answers.store(workspace, "k", "print", Stored(201, '{"a": "Ü"}', '"1"'))
        assert answers.reserve(workspace, "k", "print") == ("print", Stored(201, '{"a": "Ü"}', '"1"'))

    def test_a_released_key_is_free(self, answers: Answers, workspace: str) -> None:
        answers.reserve(workspace, "k", "print")
        answers.release(workspace, "k")
        assert answers.reserve(workspace, "k", "other") is None

    def test_keys_of_workspaces_are_separate(self, answers: Answers, workspace: str) -> None:
        answers.reserve(workspace, "k", "print")
        assert answers.reserve(f"{workspace}x", "k", "print") is None
