"""The matrix of formats is that of the code, and the default is a format that the release before reads."""

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from starling_items import profile
from starling_messages.state import PersonState, encode_person
from starling_segments import FORMAT, FORMAT_BEFORE, WRITTEN_FORMAT

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "docs/reference/compatibility.md").read_text()
CELL: Final = re.compile(r"reads (\d+)(?: to (\d+))?, writes (?:(\d+) or )?(?:\*\*)?(\d+)")


class Formats(NamedTuple):
    newest_read: int
    written: tuple[int, ...]


def _matrix() -> dict[str, list[Formats | None]]:
    """Return release -> the formats of users, profiles and people; None for a kind of state that it does not have."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if re.match(r"\| (\d|unreleased)", line)]
    return {name: [_formats(cell) for cell in cells] for name, *cells in rows if len(cells) == 3 and "reads" in cells[0]}


def _formats(cell: str) -> Formats | None:
    found = CELL.match(cell)
    if found is None:
        return None
    oldest, newest, other, written = found.groups()
    return Formats(int(newest or oldest), tuple(int(number) for number in (other, written) if number))


def test_the_last_row_is_this_version() -> None:
    users, profiles, people = list(_matrix().values())[-1]
    assert users == Formats(FORMAT, (FORMAT_BEFORE, FORMAT))
    assert profiles == Formats(profile.FORMAT, (profile.FORMAT_BEFORE, profile.FORMAT))
    assert people == Formats(encode_person(PersonState())[0], (1,))
    assert f"**{WRITTEN_FORMAT}**" in PAGE
    assert f"**{profile.WRITTEN_FORMAT}**" in PAGE


@pytest.mark.parametrize(("kind", "written"), [(0, WRITTEN_FORMAT), (1, profile.WRITTEN_FORMAT)])
def test_the_release_before_reads_the_default_unless_it_cannot_be_deployed_again(kind: int, written: int) -> None:
    *_, (before, formats), _ = _matrix().items()
    read = formats[kind]
    assert read is not None
    cannot_return = re.search(rf"^\| {re.escape(before)} \| [^|]+ \| not possible: ", PAGE, re.MULTILINE)
    assert written <= read.newest_read or cannot_return


def test_each_test_of_the_page_exists() -> None:
    named = re.findall(r"`(tests/\S+\.py)`", PAGE)
    assert len(named) == 4
    assert [path for path in named if not (ROOT / path).exists()] == []
