"""The example in the package's README runs and gives the stated results, and the stated bounds are those of the code."""

import re
from pathlib import Path
from typing import Any

import starling_campaigns
from starling_campaigns.assignment import Assignment
from starling_campaigns.bounds import MAX_ALL_ROUNDS, MAX_ROUNDS, MAX_TEMPLATE_COST, MAX_TEXT_READ
from starling_campaigns.sms import SmsSize

README = (Path(starling_campaigns.__file__).parent.parent / "README.md").read_text()


def test_the_example_gives_the_stated_results() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)  # noqa: S102 - our own README
    assert names["assignment_of"](names["campaign"], "ada") == Assignment(variant="a", held_out=False)
    assert names["message"].parts["text"] == "Olá"
    assert names["message"].sms == SmsSize(encoding="UCS-2", units=3, segments=1)
    for stated in ('Assignment(variant="a", held_out=False)', '"Olá"', 'SmsSize(encoding="UCS-2", units=3, segments=1)'):
        assert stated in example


def test_the_stated_bounds_are_those_of_the_code() -> None:
    assert f"the first {MAX_ROUNDS} elements" in README
    assert f"at most {MAX_ALL_ROUNDS:,} rounds" in README
    assert f"costs at most {MAX_TEMPLATE_COST:,}" in README
    assert f"at most {MAX_TEXT_READ:,} characters" in README
