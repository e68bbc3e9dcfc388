"""The settings reference equals the settings models, and it has every model and every environment variable."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import Field
from pydantic_settings import BaseSettings

from tools.settings_reference import COMMAND, PAGE, SECTIONS, page, row_of, rows_of_model, unit_of

ROOT = Path(__file__).parents[3]


def product_sources() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in listed if not name.startswith(("tests/", "benchmarks/", "tools/")) and (ROOT / name).exists()]


def settings_models() -> Iterator[str]:
    """The names of all classes below BaseSettings, as `module.Class`."""
    known = {"BaseSettings"}
    classes = [
        (f"{path.parent.name}.{path.stem}", found.name, {ast.unparse(base) for base in found.bases})
        for path in product_sources()
        for found in ast.walk(ast.parse(path.read_text()))
        if isinstance(found, ast.ClassDef)
    ]
    while added := {name for _, name, bases in classes if bases & known} - known:
        known |= added
    # Those with an underscore read a part of the same variables.
    yield from (f"{module}.{name}" for module, name, _ in classes if name in known and not name.startswith("_"))


def test_the_page_equals_the_generated_one() -> None:
    assert PAGE.read_text() == page(), "docs/reference/settings.md is out of date: run `make settings-reference`"


def test_the_page_has_every_settings_model() -> None:
    listed = {".".join(section.model.__module__.split(".")[-2:]) + "." + section.model.__name__ for section in SECTIONS}
    assert set(settings_models()) == listed


def test_every_setting_has_a_description_without_a_full_stop() -> None:
    rows = [row for section in SECTIONS for row in rows_of_model(section.model)]
    assert len(rows) > 200
    assert [row.name for row in rows if not row.description or row.description.endswith(".")] == []


def test_the_page_has_every_variable_that_is_read_without_a_model() -> None:
    read = {
        name
        for path in product_sources()
        for name in re.findall(r"""(?:environ\.get\(|environ\[|getenv\()["'](\w+)["'](?!\] = )""", path.read_text())
    }
    assert {row.name for row in COMMAND} == read


def test_a_setting_without_a_description_is_refused_by_name() -> None:
    class Bare(BaseSettings):
        retention_days: int = Field(ge=1)

    with pytest.raises(ValueError, match="STARLING_RETENTION_DAYS has no description"):
        row_of("STARLING_", "retention_days", Bare.model_fields["retention_days"])


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("ack_timeout_ms", "ms"),
        ("rate_items_per_second", "items/s"),
        ("backing_store_flush_seconds", "s"),
        ("group", ""),
        ("threads", "threads"),
    ],
)
def test_the_unit_is_the_end_of_the_name(name: str, unit: str) -> None:
    assert unit_of(name) == unit
