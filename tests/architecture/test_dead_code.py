"""The check of dead code finds a planted definition and a needless entry, and the tree has none."""

from pathlib import Path

import pytest

from tools.dead_code import Unused, main, report, unused

MODULE = """
_SECONDS = 1
_UNITS: dict[str, int] = {}


def used(place: str) -> str:
    return place


def unused() -> str:
    return used("here")


class Record:
    model_config = {}

    def do_GET(self) -> None: ...

    def forgotten(self) -> int:
        return _SECONDS
"""


@pytest.mark.long
def test_the_tree_has_no_dead_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0, capsys.readouterr().out


def test_planted_definitions_are_found_and_callbacks_are_not(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    found = {(one.line, one.name) for one in unused(["module.py"], tmp_path)}
    assert found == {(3, "_UNITS"), (10, "unused"), (14, "Record"), (19, "forgotten")}


def test_a_use_in_another_file_counts(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "user.py").write_text("from module import Record, unused\n\nunused()\nRecord().forgotten()\n")
    assert {one.name for one in unused(["module.py", "user.py"], tmp_path)} == {"_UNITS"}


def test_the_report_has_what_is_not_allowed_and_the_entries_that_are_not_needed() -> None:
    found = [Unused("libs/a/module.py", 3, "kept"), Unused("libs/a/module.py", 5, "unused")]
    assert report(found, {"module.py:kept": "a framework calls it", "module.py:gone": "a framework calls it"}) == [
        "libs/a/module.py:5: 'unused' is not used: remove it, or list 'module.py:unused' in tools/dead_code.py with the reason",
        "tools/dead_code.py: 'module.py:gone' is used or gone: remove the entry",
    ]
