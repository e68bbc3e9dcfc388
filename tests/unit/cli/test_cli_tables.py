"""Tables for people and for pipes: nothing that was to be shown is cut off."""

import pytest
from rich.table import Table

from starling_cli.commands.common import print_table

ROW = ("normalizer:0:6", "2026-11-21T01:57:25.863Z", "ingest.track:6:803", "bad_timestamp", "no ISO 8601 time " * 9 + "at all")


def a_table() -> Table:
    table = Table("id", "refused at", "from", "code", "message", box=None, pad_edge=False)
    table.add_row(*ROW)
    return table


def test_into_a_pipe_a_row_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(a_table())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(text in lines[1] for text in ROW)


def test_a_narrow_screen_folds_and_cuts_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "60")
    print_table(a_table())
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) > 2
    assert "…" not in shown
