"""`starling plan-capacity` on the command line: tables, JSON, formulas, errors and exit codes."""

import json
import sys

import pytest

from starling_cli.app import main
from starling_local.errors import NOT_POSSIBLE, OK

LOAD = ("--rps", "100000", "--users", "200e6", "--segments", "500")


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run the command; return its exit code."""
    monkeypatch.setattr(sys, "argv", ["starling", "plan-capacity", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or OK)


def test_the_tables_have_each_section(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, *LOAD) == OK
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    headings = ["Whole installation", "Parts", "Disk, all copies", "Network at the peak", "Largest shares", "Assumed"]
    assert [line for line in lines if line in headings] == headings
    assert "Formulas" not in lines
    assert "…" not in printed


def test_json_and_tables_have_the_same_figures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, *LOAD, "--json", "--retention-days", "events=90", "--traits", "50", "--average-rps", "40000") == OK
    document = json.loads(capsys.readouterr().out)
    assert run(monkeypatch, *LOAD, "--retention-days", "events=90", "--traits", "50", "--average-rps", "40000") == OK
    printed = capsys.readouterr().out
    assert document["inputs"]["retention_days"]["events.behaviour"] == 90
    assert f"partitions            {document['partitions']}" in printed
    for part in document["parts"]:
        [line] = [one for one in printed.splitlines() if one.startswith(f"{part['part']}  ")][:1]
        assert f" {part['replicas']} " in line
        assert part["basis"] in line
    assert document["cores"] == pytest.approx(sum(part["cores"] for part in document["parts"]), abs=0.1)


def test_the_formulas_name_their_files(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, *LOAD, "--formula") == OK
    formulas = capsys.readouterr().out.partition("\nFormulas\n")[2].splitlines()
    [cores] = [line for line in formulas if line.startswith("cores of normalizer = ")]
    assert cores.startswith("cores of normalizer = 100,000 events/s * (idle ")
    assert "platform.json/20-segments-1-switches/cpu_micros/normalizer" in cores


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--rps", "0"), "--rps is 0: give a number from 1 to 100,000,000 events/s"),
        (("--rps", "nan"), "--rps is nan: give a number from 1 to 100,000,000 events/s"),
        (("--retention-days", "lake=3"), "--retention-days lake=3: write TOPIC=DAYS with a topic whose records expire"),
        (("--rps", "1e8"), "the slowest stage needs 262,144 partitions, and a topic has at most 8,192: plan several"),
    ],
)
def test_bad_input_is_one_line_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], error: str
) -> None:
    assert run(monkeypatch, *LOAD, *words) == NOT_POSSIBLE
    out, refused = capsys.readouterr()
    assert out == ""
    assert refused.startswith(f"starling: {error}")
    assert refused.count("\n") == 1


@pytest.mark.parametrize("words", [("--rps", "many"), ("--mix", "other"), ("--users",)])
def test_a_word_that_is_no_value_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    assert run(monkeypatch, *LOAD, *words) == NOT_POSSIBLE
