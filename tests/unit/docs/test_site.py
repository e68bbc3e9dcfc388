"""The documentation builds as a site without a broken link, and the site loads nothing from another host."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    if (ROOT / name).exists()
)


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_another_host(tmp_path: Path) -> None:
    command = [str(ROOT / ".venv/bin/mkdocs"), "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loaded = re.findall(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=\"?(https?:[^\"> ]+)", page.read_text())
        assert loaded == [], page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_of_the_repository_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_documentation_page_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"(?<![\w/.-])docs/[\w./-]+\.(?:md|svg|png)", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []
