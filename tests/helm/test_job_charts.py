"""The chart's templates of the jobs that the API starts use existing settings, and grant exactly the permissions of the API."""

import inspect
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml
from pydantic_settings import BaseSettings

from starling_api.jobs import kubernetes
from starling_api.jobs.wiring import Job, job_name
from starling_api.settings import ApiSettings
from starling_spark.jobs.backfill.settings import BackfillSettings
from starling_spark.jobs.imports.settings import ImportSettings
from starling_spark.jobs.sql_traits.settings import SqlTraitsSettings

CHART: Final = Path(__file__).parents[2] / "helm/starling"
ALL_VALUES: Final[dict[str, Any]] = yaml.safe_load((CHART / "values.yaml").read_text())


class Chart(NamedTuple):
    """A job's template and its block of values.yaml."""

    job: Job
    settings: type[BaseSettings]
    block: str

    @property
    def template(self) -> str:
        return (CHART / f"templates/{self.job.replace('_', '-')}.yaml").read_text()

    @property
    def values(self) -> dict[str, Any]:
        values: dict[str, Any] = ALL_VALUES[self.block]
        return values


EVERY = pytest.mark.parametrize(
    "chart",
    [
        Chart("backfill", BackfillSettings, "backfill"),
        Chart("imports", ImportSettings, "imports"),
        Chart("sql_traits", SqlTraitsSettings, "sqlTraits"),
    ],
    ids=lambda it: it.job,
)


def settings_of(model: type[BaseSettings]) -> set[str]:
    """As they are called in the environment; of nested ones the first name."""
    return {f"STARLING_{name.upper()}" for name in model.model_fields}


@EVERY
def test_the_api_is_given_settings_that_it_has_all_of_them(chart: Chart) -> None:
    prefix = f"STARLING_{chart.job.upper()}_"
    given = set(re.findall(rf"^  ({prefix}\w+):", chart.template, re.MULTILINE))
    assert given == {name for name in settings_of(ApiSettings) if name.startswith(prefix)}


@EVERY
def test_the_job_is_given_settings_that_it_has(chart: Chart) -> None:
    assert {name.partition("__")[0] for name in chart.values["environment"]} <= settings_of(chart.settings)


@EVERY
def test_every_value_is_used_and_every_use_has_a_value(chart: Chart) -> None:
    used = set(re.findall(r"(?<![\w$.])\.([a-z]\w*)", re.sub(r"^\s*#.*$", "", chart.template, flags=re.MULTILINE)))
    assert used - {"annotations", "create", "name"} == set(chart.values), "in the template, and in values.yaml"
    assert set(re.findall(r"\.serviceAccount\.(\w+)", chart.template)) == set(chart.values["serviceAccount"])


@EVERY
def test_the_api_may_do_what_it_does_and_no_more(chart: Chart) -> None:
    calls = set(re.findall(r"self\._api\.(\w+?)_namespaced_job\(", inspect.getsource(kubernetes)))
    verbs = {verb for found in re.findall(r"verbs: \[([^]]*)\]", chart.template) for verb in found.split(", ")}
    assert verbs == {"get" if call == "read" else call for call in calls}
    assert re.search(r'\$job := "(.*)"', chart.template).group(1) == job_name(chart.job)  # type: ignore[union-attr]
