"""The check of commit messages: what it accepts, and the fault that it names otherwise."""

from pathlib import Path

import pytest

from tools.commit_message import faults, main

BODY = "\n\nA longer id made a profile larger than the broker accepts.\n"


@pytest.mark.parametrize(
    "subject",
    [
        "ingest: refuse ids over 512 bytes",
        "segment-language: pass dates through",
        "docs: embed the picture",
        "tests: focus on one partition",
        "stream: " + "x" * 64,
        "Merge branch 'main' into topic",
        'Revert "ingest: refuse ids over 512 bytes"',
        "fixup! ingest: refuse ids over 512 bytes",
    ],
)
def test_a_subject_with_scope_and_imperative_is_accepted(subject: str) -> None:
    assert list(faults(subject)) == []
    assert list(faults(subject + BODY)) == []


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("stream: " + "x" * 65, "has 73 characters"),
        ("refuse ids over 512 bytes", "has no scope"),
        ("Ingest: refuse ids", "has no scope"),
        ("ingest:refuse ids", "has no scope"),
        ("", "has no scope"),
        ("ingest: refused ids", "'refused' is not an imperative"),
        ("ingest: refusing ids", "'refusing' is not an imperative"),
        ("ingest: refuses ids", "'refuses' is not an imperative"),
        ("ingest: the ids are refused", "'the' is not an imperative"),
        ("ingest: Refuse ids", "begins with a capital letter"),
        ("ingest: refuse ids.", "ends with a full stop"),
        ("ingest: refuse ids\nover 512 bytes", "second line is not empty"),
    ],
)
def test_the_fault_of_a_message_is_named(message: str, fault: str) -> None:
    [found] = faults(message)
    assert fault in found


def test_comments_and_the_diff_of_a_verbose_commit_are_ignored() -> None:
    message = (
        "# a template\n\ningest: refuse ids\n# On branch main\n# ------------------------ >8 ------------------------\n+added.\n"
    )
    assert list(faults(message)) == []


def test_the_command_reads_the_file_that_git_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text("ingest: refuse ids\n")
    assert main([str(file)]) == 0
    file.write_text("ids refused\n")
    assert main([str(file)]) == 1
    assert capsys.readouterr().err.startswith("commit message: the subject has no scope")
