"""What a reprocessing decides without Spark: up to when, in which order, under which rules."""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from starling_cli.app import build_app
from starling_local.errors import NotPossible
from starling_spark.jobs.reprocess.__main__ import _arguments_of, _words
from starling_spark.jobs.reprocess.commands import Arguments, switch
from starling_spark.jobs.reprocess.plan import Plan, cut_of, groups, rules_hash, table

PLAN = Plan(
    name="spring", rules="r", catalog="then", begun_at_ms=1, snapshots={"ingest_items": 7}, cut={0: 5_000_000, 1: 9_000_000, 2: 1}
)


def test_the_cut_is_just_before_the_first_missing_record() -> None:
    assert cut_of({0: 700, 1: None, 2: 5_000}, latest_ms=1_000) == {0: 699_999, 1: 1_000_000, 2: 1_000_000}


def test_what_is_done_is_not_done_again() -> None:
    half = PLAN.with_done({1: {"accepted": 3, "refused": 1}})
    assert (half.left(), half.is_done) == ([0, 2], False)
    done = half.with_done({0: {"accepted": 2}, 2: {}})
    assert (done.left(), done.is_done) == ([], True)
    assert done.totals() == {"accepted": 5, "duplicate": 0, "refused": 1, "unchanged": 0}
    assert msgspec.json.decode(msgspec.json.encode(half), type=Plan) == half
    assert groups([0, 1, 2], 2) == [[0, 1], [2]]


def test_another_text_is_another_rule(tmp_path: Path) -> None:
    (tmp_path / "dating.py").write_text("x = 1\n")
    before = rules_hash(tmp_path)
    assert rules_hash(tmp_path) == before
    (tmp_path / "dating.py").write_text("x = 2\n")
    assert rules_hash(tmp_path) != before


def test_the_list_states_the_progress_of_each_and_the_one_in_force() -> None:
    done = PLAN.with_done({0: {"accepted": 2}, 1: {}, 2: {}})
    lines = table([PLAN, msgspec.structs.replace(done, name="may")], "may").splitlines()
    assert lines[1].split()[:3] == ["spring", "unfinished", "0/3"]
    assert lines[2].split()[:5] == ["may", "in", "force", "3/3", "2"]
    assert lines[2].endswith("1970-01-01T00:00:09.000Z")


def test_the_command_line() -> None:
    given = _words().parse_args(["run", "--into", "a_1", "--catalog", "now", "--overwrite"])
    assert _arguments_of(given) == Arguments("a_1", "now", overwrite=True)
    back = _words().parse_args(["switch", "--live"])
    assert (back.run, _arguments_of(back)) == (switch, Arguments("", live=True))
    for wrong in (["switch"], ["switch", "a", "--live"], ["run", "--into", "A-1"], ["run", "--into", "a", "--catalog", "later"]):
        with pytest.raises(SystemExit):
            _words().parse_args(wrong)


@pytest.mark.parametrize("words", [["reprocess"], ["reprocess", "switch"], ["reprocess", "switch", "a", "--live"]])
def test_missing_arguments_are_reported(words: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(build_app(), [*words, *([] if words == ["reprocess"] else ["--data-dir", str(tmp_path)])])
    assert isinstance(done.exception, NotPossible)
