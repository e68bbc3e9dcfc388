"""The figures of the capacity guide are what `starling plan-capacity` prints."""

import json
import re

import pytest

from tools.capacity_guide import PAGE, filled, output

TEXT = PAGE.read_text()


def test_the_page_has_the_output_of_its_commands() -> None:
    assert filled(TEXT) == TEXT, "docs/how-to/capacity.md is out of date: run `make capacity`"


def test_the_page_has_three_sizes_and_their_parts() -> None:
    sizes = re.findall(r"^\$ starling plan-capacity --rps (\d+) [^|\n]*\n((?:.*\n)*?)```$", TEXT, re.MULTILINE)
    assert [rps for rps, _ in sizes] == ["500", "10000", "100000"]
    for _, printed in sizes:
        assert re.search(r"^segmenter +extrapolated +[\d,.]+ +[\d,.]+ +\d+", printed, re.MULTILINE)
        assert "Assumed" not in printed


def test_what_the_page_states_about_each_size_holds() -> None:
    small, medium, large = re.findall(r"^\$ starling (plan-capacity --rps [^|\n]*)$", TEXT, re.MULTILINE)
    plans = [json.loads(output(f"{command} --json")) for command in (small, medium, large)]
    assert plans[0]["cores_without_idle_cost"] < plans[0]["cores"] / 2
    assert plans[0]["brokers"] == plans[0]["cassandra_nodes"] == 3
    assert plans[1]["formulas"]["brokers"].partition(",")[0].endswith(" TB / 10 TB")
    assert plans[1]["drivers"][3]["item"] == "Kafka events.behaviour"
    assert " cores of segmenter " in plans[2]["formulas"]["partitions"]
    every_kind = json.loads(output(f"{large} --mix every-kind --json"))
    assert every_kind["cores"] < plans[2]["cores"]


def test_a_figure_that_is_edited_by_hand_is_found() -> None:
    edited = re.sub(r"^partitions +64$", "partitions            32", TEXT, count=1, flags=re.MULTILINE)
    assert edited != TEXT
    assert filled(edited) == TEXT


def test_a_command_that_fails_is_named() -> None:
    with pytest.raises(ValueError, match=r"docs/how-to/capacity\.md: starling plan-capacity --rps 0"):
        filled("```text\n$ starling plan-capacity --rps 0 --users 1 --segments 1\n```")
