"""The chart's backfill templates use existing settings, and grant exactly the permissions of the API."""

import inspect
import re
from pathlib import Path
from typing import Any

import yaml

from starling_api.jobs import kubernetes
from starling_api.jobs.wiring import job_name
from starling_api.settings import ApiSettings
from starling_spark.jobs.backfill.settings import BackfillSettings

CHART = Path(__file__).parents[2] / "helm/starling"
TEMPLATE = (CHART / "templates/backfill.yaml").read_text()
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())["backfill"]


def settings_of(model: type[ApiSettings] | type[BackfillSettings]) -> set[str]:
    """As they are called in the environment; of nested ones the first name."""
    return {f"STARLING_{name.upper()}" for name in model.model_fields}


def test_the_api_is_given_settings_that_it_has_all_of_them() -> None:
    given = set(re.findall(r"^  (STARLING_BACKFILL_\w+):", TEMPLATE, re.MULTILINE))
    assert given == {name for name in settings_of(ApiSettings) if name.startswith("STARLING_BACKFILL_")}


def test_the_job_is_given_settings_that_it_has() -> None:
    assert {name.partition("__")[0] for name in VALUES["environment"]} <= settings_of(BackfillSettings)


def test_every_value_is_used_and_every_use_has_a_value() -> None:
    used = set(re.findall(r"(?<![\w$.])\.([a-z]\w*)", re.sub(r"^\s*#.*$", "", TEMPLATE, flags=re.MULTILINE)))
    assert used - {"annotations", "create", "name"} == set(VALUES), "in the template, and in values.yaml"
    assert set(re.findall(r"\.serviceAccount\.(\w+)", TEMPLATE)) == set(VALUES["serviceAccount"])


def test_the_api_may_do_what_it_does_and_no_more() -> None:
    calls = set(re.findall(r"self\._api\.(\w+?)_namespaced_job\(", inspect.getsource(kubernetes)))
    verbs = {verb for found in re.findall(r"verbs: \[([^]]*)\]", TEMPLATE) for verb in found.split(", ")}
    assert verbs == {"get" if call == "read" else call for call in calls}
    assert re.search(r'\$job := "(.*)"', TEMPLATE).group(1) == job_name("backfill")  # type: ignore[union-attr]
