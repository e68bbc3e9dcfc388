"""The presets of the chart: up to date with the capacity plan, accepted by the chart, and installed as the plan has it."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import yaml

from tests.helm.kubernetes_types import misfits
from tests.helm.rendering import CHART, Manifest, StrictLoader, helm, named, rendered, template, without_keys, workloads
from tools import chart_presets
from tools.capacity_guide import output
from tools.chart_presets import DIRECTORY, SERVICES, SIZES, STATEFUL, commands, text

EVERY = pytest.mark.parametrize("size", SIZES)
KINDS = {"Deployment": "V1Deployment", "StatefulSet": "V1StatefulSet", "Job": "V1Job"}


def preset(size: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((DIRECTORY / f"{size}-values.yaml").read_text(), StrictLoader)  # noqa: S506 - a safe loader
    return found


@cache
def objects(size: str) -> tuple[Manifest, ...]:
    return tuple(rendered(preset(size)))


@cache
def plan(size: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(output(f"{commands()[size]} --json"))
    return found


@EVERY
def test_a_preset_is_up_to_date(size: str) -> None:
    assert (DIRECTORY / f"{size}-values.yaml").read_text() == text(size), "the presets are out of date: run `make capacity`"


def test_there_is_no_other_preset() -> None:
    assert {path.name for path in DIRECTORY.iterdir()} == {f"{size}-values.yaml" for size in SIZES}


def test_another_plan_makes_the_presets_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {**commands(), "large": commands()["large"].replace("--rps 100000", "--rps 200000")}
    monkeypatch.setattr(chart_presets, "commands", lambda: more)
    assert text("large") != (DIRECTORY / "large-values.yaml").read_text()


@EVERY
def test_helm_lints_a_preset_strictly(size: str) -> None:
    for major in (3, 4):
        files = ("--values", str(CHART / "ci/minimal-values.yaml"), "--values", str(DIRECTORY / f"{size}-values.yaml"))
        done = helm("lint", "--strict", str(CHART), *files, major=major)
        assert done.returncode == 0, done.stdout + done.stderr


@EVERY
def test_helm_4_renders_a_preset_as_helm_3(size: str) -> None:
    assert without_keys(rendered(preset(size), major=4)) == without_keys(objects(size))


@EVERY
def test_the_pods_are_those_of_the_plan(size: str) -> None:
    parts = {part["part"]: part for part in plan(size)["parts"]}
    pods = {one.component: one for one in workloads(objects(size))}
    for name in SERVICES:
        replicas = pods[name].manifest["spec"]["replicas"]
        assert replicas == parts[name]["replicas"]
        requests = pods[name].container["resources"]["requests"]
        assert int(requests["cpu"].removesuffix("m")) / 1000 * replicas >= parts[name]["cores"]
        assert int(requests["memory"].removesuffix("Mi")) * 1024 * 1024 >= parts[name]["memory_gb"] * 1e9
        limit = pods[name].container["resources"]["limits"]["memory"]
        assert int(limit.removesuffix("Mi")) > int(requests["memory"].removesuffix("Mi"))
    assert ("profiles" in pods) == ("spark profiles" in parts)
    settings = named(objects(size), "ConfigMap", "prod-starling-api")["data"]
    assert settings["STARLING_PROFILE_PARTITIONS"] == str(plan(size)["partitions"])


@EVERY
def test_the_volumes_hold_the_states_of_the_plan(size: str) -> None:
    stores = {one["name"]: one["disk_bytes"] for one in plan(size)["stores"] if one["store"] == "RocksDB"}
    for one in workloads(objects(size)):
        if one.component in STATEFUL:
            [claim] = one.manifest["spec"]["volumeClaimTemplates"]
            gib = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi"))
            assert gib * 1024**3 * one.manifest["spec"]["replicas"] >= stores[one.component]


@EVERY
def test_the_objects_of_a_preset_have_fields_of_kubernetes(size: str) -> None:
    found = [
        misfit
        for one in objects(size)
        if one["kind"] in KINDS
        for misfit in misfits(one, KINDS[one["kind"]], f"{one['kind']}/{one['metadata']['name']}")
    ]
    assert found == []


def test_a_preset_alone_is_refused_with_what_is_missing() -> None:
    files = ("--values", str(DIRECTORY / "small-values.yaml"))
    done = helm("template", "prod", str(CHART), *files)
    assert done.returncode != 0
    assert "kafka.brokers: set the addresses of the brokers" in done.stderr


def test_a_preset_goes_with_every_other_choice() -> None:
    for ci in ("production", "everything"):
        assert template(preset("large"), ci).returncode == 0
