"""Writes the figures of docs/how-to/capacity.md, which are outputs of `starling plan-capacity`: `make capacity`."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Final

from typer.testing import CliRunner

from starling_cli.app import build_app

PAGE: Final = Path(__file__).parent.parent / "docs/how-to/capacity.md"

_BLOCK: Final = re.compile(r"^```text\n\$ starling (plan-capacity [^\n]*)\n.*?^```$", re.MULTILINE | re.DOTALL)
_FILTERED: Final = re.compile(r"(?P<words>.*) \| grep -E '(?P<pattern>[^']+)'")
_ASSUMED: Final = re.compile(r"^(<!-- assumed: (plan-capacity [^\n]*) -->\n).*?^(<!-- end -->)$", re.MULTILINE | re.DOTALL)


def filled(page: str) -> str:
    """Return the page with the output of each of its commands. The table of assumptions is left out of the blocks."""
    page = _BLOCK.sub(lambda block: f"```text\n$ starling {block[1]}\n{_shortened(block[1])}```", page)
    return _ASSUMED.sub(lambda block: block[1] + _assumed(block[2]) + block[3], page)


def _shortened(command: str) -> str:
    filtered = _FILTERED.fullmatch(command)
    words = filtered["words"] if filtered else command
    lines = [line.rstrip() for line in output(words).splitlines()]
    kept = [line for line in lines if re.search(filtered["pattern"], line)] if filtered else lines[: lines.index("Assumed") - 1]
    return "".join(f"{line}\n" for line in kept)


def _assumed(command: str) -> str:
    rows = json.loads(output(f"{command} --json"))["assumptions"]
    lines = ["| what | value | why |", "|---|---|---|", *(f"| {row['what']} | {row['value']} | {row['why']} |" for row in rows)]
    return "\n" + "".join(f"{line}\n" for line in lines) + "\n"


def output(command: str) -> str:
    """Return what a command prints. Raises: ValueError if it fails."""
    done = CliRunner().invoke(build_app(), shlex.split(command))
    if done.exit_code or done.exception:
        raise ValueError(f"docs/how-to/capacity.md: starling {command}: {done.exception or done.output}")
    return done.stdout


def main() -> int:
    """Write the page."""
    PAGE.write_text(filled(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
