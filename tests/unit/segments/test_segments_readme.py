"""The example in the package's README runs and gives the stated results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import starling_segments
from starling_segments import Change

README = Path(starling_segments.__file__).parent.parent / "README.md"


def test_the_example_gives_the_stated_results() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, str(README), "exec"), names)  # noqa: S102 - our own README
    assert names["changes"] == [Change("repeat", 1, "ENTERED", 1, 2_000, "EVENT")]
    assert names["evaluator"].next_due(names["state"]) == 2_592_001_000
    assert re.findall(r"\[Change\(.*?\)\]|2_592_001_000", example) == [
        '[Change("repeat", 1, "ENTERED", 1, 2_000, "EVENT")]',
        "2_592_001_000",
    ]
