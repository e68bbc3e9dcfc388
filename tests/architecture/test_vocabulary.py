"""The check of the vocabulary finds a planted word, and the tree has none."""

import pytest

from tests.architecture.vocabulary import ROOT, checked_files, main, violations


def test_the_checked_files_have_no_retired_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0, capsys.readouterr().out


def test_the_documentation_is_checked() -> None:
    paths = set(checked_files(ROOT))
    assert {"README.md", "docs/reference/glossary.md", "docs/runbooks/README.md", "docs/overview.svg"} <= paths


def test_files_of_every_kind_are_checked_and_not_those_that_programs_wrote() -> None:
    paths = set(checked_files(ROOT))
    assert {"Makefile", "libs/segments/cases/account/stories.json", "tests/contract/api/clients/quick_start.ts"} <= paths
    assert not any(path.startswith("benchmarks/results/") or path.endswith("package-lock.json") for path in paths)


def test_a_word_that_tests_may_use_is_retired_in_the_product() -> None:
    found = violations("libs/stream/starling_stream/state/store.py", "class WarmTier: ...")
    assert [violation.word for violation in found] == ["tier", "warm"]
    assert list(violations("tests/unit/stream/test_store.py", "class WarmTier: ...")) == []


def test_the_words_of_a_court_are_retired_in_tests_too() -> None:
    found = violations("tests/faults/findings.py", "def judge_feed(verdict: Verdict): ...  # judged")
    assert [violation.word for violation in found] == ["judge", "judged", "verdict"]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("The worker tells its offset.", "tells"),
        ("def tell_end(): ...", "tell"),
        ("class EndTold: ...", "told"),
        ("Read it ANEW, please", "anew"),
        ("the record at hand", "at hand"),
    ],
)
def test_a_retired_word_is_found_with_its_place_and_its_cure(line: str, word: str) -> None:
    [violation] = violations("docs/page.md", f"first line\n{line}")
    assert (violation.line, violation.word) == (2, word)
    assert str(violation).startswith(f"docs/page.md:2: {word!r} is retired: write ")


@pytest.mark.parametrize("line", ["intelligent", "retold", "a foretelling", "handsaw", "essays", "the anewed"])
def test_words_that_contain_a_retired_one_pass(line: str) -> None:
    assert list(violations("docs/page.md", line)) == []


def test_a_reason_on_the_line_allows_one_word_only() -> None:
    assert list(violations("a.py", "told = 1  # vocabulary: told: field of the topic")) == []
    [violation] = violations("a.py", "told_anew = 1  # vocabulary: told: field of the topic")
    assert violation.word == "anew"
    [violation] = violations("a.py", "told = 1  # vocabulary: told:")
    assert violation.word == "told"
