"""The example in the package's README runs and gives the stated results."""

import json
import re
from pathlib import Path
from typing import Any

import starling_policy
from starling_policy import CHECKS, REASONS, Defer, parse_campaign, parse_policy
from starling_policy.bounds import MAX_CAP_LIMIT, MAX_CAPS, MAX_MESSAGES

README = (Path(starling_policy.__file__).parent.parent / "README.md").read_text()


def test_the_example_gives_the_stated_results() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)  # noqa: S102 - our own README
    assert names["decision"].outcome == Defer(until=1_767_286_400_000, reason="capped")
    assert 'Defer(until=1_767_286_400_000, reason="capped")' in example
    assert names["decision"].next_change_at == 1_767_286_400_000


def test_the_stated_bounds_are_those_of_the_code() -> None:
    assert f"the newest {MAX_MESSAGES:,} past messages" in README
    assert f"{MAX_CAPS} caps of at most {MAX_CAP_LIMIT} messages need {MAX_CAPS * MAX_CAP_LIMIT:,}" in README.replace("\n  ", " ")


def test_the_examples_of_the_reference_are_accepted_and_every_check_and_reason_is_in_it() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/policy.md").read_text()
    examples = dict(re.findall(r'^```json title="([a-z]+)"\n(.*?)^```', page, re.MULTILINE | re.DOTALL))
    assert len(parse_policy(json.loads(examples["policy"])).caps) == 2
    rules = parse_campaign(json.loads(examples["campaign"]))
    plain = parse_campaign({"key": "win-back", "channel": "email"})
    same = ("purpose", "priority", "expires_after_ms", "quiet", "caps")
    assert [getattr(rules, name) for name in same] == [getattr(plain, name) for name in same]
    assert [function.__name__ for function in CHECKS] == re.findall(r"^\| `(\w+)` \| `\w+`(?:, `\w+`)? \|", page, re.MULTILINE)
    assert [reason for reason in REASONS if f"`{reason}`" not in page] == []
