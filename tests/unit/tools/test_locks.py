"""The check of the locks of the images, on a copy of them with planted differences."""

import shutil
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tools.locks import ROOT, differences, locked, targets

LOCK = "docker/locks/deploy.txt"
STRUCTLOG = canonicalize_name("structlog")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Return a copy of everything that the check reads."""
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("requirements", "locks"):
        shutil.copytree(ROOT / "docker" / name, tmp_path / "docker" / name)
    return tmp_path


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_locks_match_the_project() -> None:
    assert list(differences()) == []
    assert {"build", "ingest", "spark"} <= set(targets())


def test_a_lock_has_hashes_and_no_address() -> None:
    for path in (ROOT / "docker/locks").iterdir():
        text = path.read_text()
        assert "://" not in text
        assert all(package.hashes for package in locked(text).values())


def test_a_version_that_constraints_do_not_have_is_found(copied: Path) -> None:
    version = locked((copied / LOCK).read_text())[STRUCTLOG].version
    replaced(copied / "constraints.txt", f"structlog=={version}", "structlog==99.0.0")
    assert f"{LOCK}: structlog=={version}, but constraints.txt has 99.0.0: run `make locks`" in list(differences(copied))


def test_a_package_without_hashes_is_found(copied: Path) -> None:
    package = locked((copied / LOCK).read_text())[STRUCTLOG]
    for digest in package.hashes:
        replaced(copied / LOCK, digest, "")
    assert list(differences(copied)) == [f"{LOCK}: structlog has no hash: run `make locks`"]


def test_a_requirement_that_the_lock_lacks_is_found_with_what_it_needs(copied: Path) -> None:
    (copied / "docker/requirements/deploy.txt").write_text((copied / "docker/requirements/deploy.txt").read_text() + "fastapi\n")
    found = list(differences(copied))
    assert f"{LOCK}: fastapi is missing: run `make locks`" in found
    assert f"{LOCK}: starlette is missing: run `make locks`" in found


def test_a_package_that_nothing_needs_is_found(copied: Path) -> None:
    replaced(copied / "docker/requirements/deploy.txt", "structlog\n", "")
    assert list(differences(copied)) == [f"{LOCK}: structlog is not needed: run `make locks`"]


def test_a_requirement_that_the_project_does_not_have_is_found(copied: Path) -> None:
    replaced(copied / "docker/requirements/deploy.txt", "structlog\n", "structlog>=1\n")
    assert list(differences(copied)) == [
        "docker/requirements/deploy.txt: structlog>=1: pyproject.toml has no such line: add it there"
    ]


def test_a_missing_lock_is_found(copied: Path) -> None:
    (copied / LOCK).unlink()
    assert list(differences(copied)) == [f"{LOCK} is missing: run `make locks`"]
