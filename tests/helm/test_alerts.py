"""The alert rules use existing metrics and labels, and each has a runbook whose commands exist."""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import typer
import yaml
from prometheus_client import CollectorRegistry

from starling_cli.app import build_app
from starling_common.telemetry.metrics import Metrics, telemetry
from starling_stream.inspect.operations import _parser
from starling_stream.state.metrics import BackingStoreGauges, Gauges

ROOT = Path(__file__).parents[2]
RUNBOOKS = ROOT / "docs/runbooks"
GROUPS = yaml.safe_load((ROOT / "helm/starling/rules/alerts.yaml").read_text())["groups"]
RULES: dict[str, Mapping[str, Any]] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
SCRAPED = {"job", "instance", "le"}
"""Labels that Prometheus adds, and the one of histograms."""
SECTIONS = ["Symptom", "What it means", "What to look at", "Cure"]
SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def _series() -> dict[str, tuple[str, frozenset[str]]]:
    """Name of a series -> the metric it is of, and its labels."""
    found = {
        name + suffix: (name, frozenset(entry.get("labels", ())) | SCRAPED)
        for name, entry in telemetry().items()
        for suffix in SUFFIXES[entry["type"]]
    }
    return {**found, "up": ("up", frozenset(SCRAPED))}


def _selectors(expression: str) -> list[Any]:
    promql_parser.parse(expression)
    # A name with its matchers; the parser above has seen to it that nothing else looks like that.
    names = re.findall(r"\b(starling_[a-z_]+|up)\b(?:\{([^}]*)\})?", expression)
    assert names, f"{expression} asks for nothing"
    return names


def _labels_of(matchers: str) -> set[str]:
    return set(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", matchers))


@pytest.mark.parametrize("name", RULES)
def test_a_rule_uses_exported_metrics(name: str) -> None:
    series, expression = _series(), RULES[name]["expr"]
    known: set[str] = set()
    for asked, matchers in _selectors(expression):
        assert asked in series
        assert _labels_of(matchers) <= series[asked][1]
        known |= series[asked][1]
    grouped = {label for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in re.split(r",\s*", group)}
    assert grouped <= known
    left = {label for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in re.split(r",\s*", group)} or known
    assert set(re.findall(r"\$labels\.([a-z_]+)", RULES[name]["annotations"]["summary"])) <= left


@pytest.mark.parametrize("broken", ["sum by (job", "starling_stream_lag_record > 1"])
def test_a_rule_that_is_wrong_would_be_found(broken: str) -> None:
    with pytest.raises((ValueError, AssertionError)):
        assert all(asked in _series() for asked, _ in _selectors(broken))


def test_what_the_rules_of_the_stream_layer_ask_for_is_in_a_workers_registry() -> None:
    metrics = Metrics(CollectorRegistry())
    Gauges(metrics), BackingStoreGauges(metrics)
    exported = {f"{family.name}_total" if family.type == "counter" else family.name for family in metrics.registry.collect()}
    series = _series()
    asked = {series[name][0] for rule in RULES.values() for name, _ in _selectors(rule["expr"])}
    assert {name for name in asked if name.startswith("starling_stream_")} <= exported


def test_rules_of_services_use_metrics_of_their_code() -> None:
    series = _series()
    asked = {series[name][0] for rule in RULES.values() for name, _ in _selectors(rule["expr"])} - {"up"}
    for name in (name for name in asked if not name.startswith("starling_stream_")):
        service = name.split("_")[1]
        homes = {"profiles": "spark/starling_spark/jobs/profiles", "spark": "spark/starling_spark", "group": "libs"}
        home = ROOT / homes.get(service, f"services/{service}")
        assert any(f'"{name}"' in path.read_text() for path in home.rglob("*.py")), name


@pytest.mark.parametrize("name", RULES)
def test_every_alert_has_its_page(name: str) -> None:
    page = ROOT / RULES[name]["annotations"]["runbook"]
    text = page.read_text()
    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    [query] = re.findall(r"^```promql\n(.*?)\n```", text, re.MULTILINE | re.DOTALL)
    assert promql_parser.parse(query).prettify() == promql_parser.parse(RULES[name]["expr"]).prettify()
    assert f"[{name}]({page.name}) | {RULES[name]['labels']['severity']} |" in (RUNBOOKS / "README.md").read_text()


def test_every_page_is_of_an_alert_and_every_metric_and_link_in_it_is_there() -> None:
    pages = {path.name for path in RUNBOOKS.glob("*.md")} - {"README.md"}
    assert pages == {Path(rule["annotations"]["runbook"]).name for rule in RULES.values()}
    series = _series()
    for path in RUNBOOKS.glob("*.md"):
        text = path.read_text()
        assert all(name in series or name in telemetry() for name in re.findall(r"\bstarling_(?!stream\.)[a-z_]+_[a-z_]+\b", text))
        assert all((path.parent / target).exists() for target in re.findall(r"\]\(([^)#:]+)\)", text))


def _commands() -> Iterator[tuple[str, str]]:
    for path in sorted(RUNBOOKS.glob("*.md")):
        blocks = re.findall(r"^```sh\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
        lines = [line for block in blocks for line in block.splitlines()]
        spans = re.findall(r"`(starling (?!…)[^`]*)`", path.read_text().replace("\n  ", " "))
        yield from ((path.stem, line) for line in [*lines, *spans])


@pytest.mark.parametrize(("page", "command"), sorted(set(_commands())))
def test_every_command_of_a_page_is_taken(page: str, command: str) -> None:
    _taken(typer.main.get_command(build_app()), shlex.split(command)[1:])


@pytest.mark.parametrize("words", [["inspect", "ada"], ["verify", "--partition", "3"], ["rebuild", "3"]])
def test_the_operations_that_stand_in_for_the_command_are_taken(words: list[str]) -> None:
    assert _parser().parse_args(["--stage", "segmenter", *words]).stage == "segmenter"


def _taken(command: Any, words: list[str]) -> None:
    context = command.make_context(command.name, words)
    if hasattr(command, "resolve_command"):
        name, inner, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert inner is not None, name
        _taken(inner, rest)
