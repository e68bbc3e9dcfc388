"""The rates of `starling plan-capacity` equal the files of benchmarks/results that they come from."""

import json
import shutil
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from tools import capacity_rates
from tools.capacity_rates import RATES, RESULTS, rates, text


def _member(node: Any, key: str) -> Any:
    return node[int(key)] if isinstance(node, list) else node[key]


def test_the_rates_are_those_of_the_results() -> None:
    assert RATES.read_text() == text(), "the rates of starling plan-capacity are out of date: run `make capacity`"


def test_each_source_leads_to_its_value() -> None:
    found = [(name, rate) for name, rate in json.loads(RATES.read_text()).items() if ".json/" in rate["source"]]
    assert len(found) > 60
    for name, rate in found:
        file, _, pointer = rate["source"].partition(".json/")
        document = json.loads((RESULTS / f"{file}.json").read_text())
        assert reduce(_member, pointer.split("/"), document) == rate["value"], name


def test_another_result_makes_the_rates_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(RESULTS, tmp_path / "results")
    platform = tmp_path / "results/platform.json"
    document = json.loads(platform.read_text())
    document["20-segments-1-switches"]["cpu_micros"]["segmenter"] = 99.5
    platform.write_text(json.dumps(document))
    monkeypatch.setattr(capacity_rates, "RESULTS", tmp_path / "results")
    assert rates()["platform/cpu_micros/segmenter"]["value"] == 99.5
    assert text() != RATES.read_text()


def test_a_pointer_without_a_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity_rates, "SELECTED", {"x": ("stream.json", "/absent/*")})
    with pytest.raises(ValueError, match=r"benchmarks/results/stream\.json has no number at /absent/\*: correct it"):
        rates()
