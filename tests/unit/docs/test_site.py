"""The documentation builds as a site without a broken link, and the site loads nothing from another host."""

import re
import shutil
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


def built(site: Path, *, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    """Run the command of `make docs`, without the setup before it."""
    arguments = f"MKDOCS_ARGS=--config-file {config} --site-dir {site}"
    return subprocess.run(
        ["make", "--no-print-directory", "--old-file=setup", "docs", arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the documentation, in which a test plants an error."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    return tmp_path


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_another_host(tmp_path: Path) -> None:
    done = built(tmp_path)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loaded = re.findall(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=\"?(https?:[^\"> ]+)", page.read_text())
        assert loaded == [], page.name


def test_a_broken_link_and_a_broken_anchor_fail_the_build(copied: Path) -> None:
    with (copied / "docs/index.md").open("a") as page:
        page.write("\n[a page](reference/absent.md) [a heading](reference/glossary.md#absent)\n")
    done = built(copied / "site", config=copied / "mkdocs.yml")
    assert done.returncode != 0
    assert "'reference/absent.md', but the target is not found" in done.stdout
    assert "does not contain an anchor '#absent'" in done.stdout


def test_a_page_outside_the_navigation_fails_the_build(copied: Path) -> None:
    (copied / "docs/runbooks/planted.md").write_text("# Planted\n")
    done = built(copied / "site", config=copied / "mkdocs.yml")
    assert done.returncode != 0
    assert "- runbooks/planted.md" in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_of_the_repository_leads_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_documentation_page_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"(?<![\w/.-])docs/[\w./-]+\.(?:md|svg|png)", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []
