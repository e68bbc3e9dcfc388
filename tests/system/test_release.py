"""A release of a clone of the last commit: what it contains, and what stops it."""

import csv
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.locks import ROOT, locked
from tools.release import images

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
NEXT = "9.8.7"
CHANGE = "- A change that the release notes contain."


def git(directory: Path, *words: str) -> str:
    identity = ("-c", "user.name=release", "-c", "user.email=release@example.com", "-c", "core.hooksPath=/dev/null")
    return subprocess.run(["git", *identity, *words], cwd=directory, check=True, capture_output=True, text=True).stdout


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def made(clone: Path, version: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tools.release", version], cwd=clone, check=False, capture_output=True, text=True, timeout=600
    )


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone whose version is the next one, in which the modules of this checkout need not be compiled again."""
    directory = tmp_path_factory.mktemp("release") / "clone"
    git(ROOT, "clone", "--quiet", "--no-hardlinks", str(ROOT), str(directory))
    for module in (*ROOT.glob("libs/**/*.so"), *ROOT.glob("services/**/*.so"), ROOT / "libs/.compiled"):
        if module.exists():
            shutil.copy(module, directory / module.relative_to(ROOT))
    replace(directory / "pyproject.toml", f'\nversion = "{VERSION}"', f'\nversion = "{NEXT}"')
    replace(directory / "helm/starling/Chart.yaml", f"ersion: {VERSION}", f"ersion: {NEXT}")
    replace(
        directory / "CHANGELOG.md",
        "## Unreleased\n",
        f"## Unreleased\n\n## {NEXT} - 2030-01-02\n\n### Added\n\n{CHANGE}\n\n## 9.8.6\n",
    )
    git(directory, "commit", "--quiet", "--all", "--message", "release: prepare it")
    return directory


@pytest.fixture
def tree(clone: Path) -> Iterator[Path]:
    """Return the clone, which the test may change."""
    yield clone
    git(clone, "reset", "--quiet", "--hard")
    git(clone, "clean", "--quiet", "--force", "-d")


def test_an_uncommitted_change_stops_it(tree: Path) -> None:
    (tree / "note.txt").write_text("")
    refused = made(tree, NEXT)
    assert refused.returncode == 1
    assert "the tree has uncommitted changes (?? note.txt …): commit or remove them" in refused.stderr
    assert not (tree / "out/release").exists()


def test_another_version_stops_it(tree: Path) -> None:
    refused = made(tree, "9.9.9")
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        f"release: pyproject.toml: version is {NEXT}, not 9.9.9: change it",
        f"release: helm/starling/Chart.yaml: version is {NEXT}, not 9.9.9: change it",
        f"release: helm/starling/Chart.yaml: appVersion is {NEXT}, not 9.9.9: change it",
        "release: CHANGELOG.md has no section `## 9.9.9 - YYYY-MM-DD`: move the changes from Unreleased into it",
    ]
    assert made(tree, "").stderr == "release: '' is no version: write VERSION=x.y.z\n"


def test_an_empty_section_of_the_changelog_stops_it(tree: Path) -> None:
    replace(tree / "CHANGELOG.md", f"{CHANGE}\n", "")
    refused = made(tree, NEXT)
    assert refused.returncode == 1
    assert f"CHANGELOG.md: the section {NEXT} lists no change" in refused.stderr


@pytest.fixture(scope="module")
def out(clone: Path) -> Path:
    done = made(clone, NEXT)
    assert done.returncode == 0, done.stderr
    return clone / "out/release" / NEXT


@pytest.mark.long
def test_it_contains_the_files_with_their_checksums(clone: Path, out: Path) -> None:
    names = {path.name for path in out.iterdir()}
    native = names - {f"starling-{image}-{NEXT}.cdx.json" for image in images(clone)} - {
        f"starling-{NEXT}.tar.gz", f"starling-{NEXT}-py3-none-any.whl", f"starling-{NEXT}.tgz",
        "licences.csv", "RELEASE_NOTES.md", "SHA256SUMS",
    }  # fmt: skip
    [compiled] = native
    assert compiled.startswith(f"starling-{NEXT}-cp311-")
    listed = {name: digest for digest, name in (line.split() for line in (out / "SHA256SUMS").read_text().splitlines())}
    assert listed == {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in names - {"SHA256SUMS"}}
    assert (out / "RELEASE_NOTES.md").read_text() == f"### Added\n\n{CHANGE}\n"
    refused = made(clone, NEXT)
    assert refused.stderr == f"release: out/release/{NEXT} exists: remove it\n"


@pytest.mark.long
def test_the_wheels_contain_the_sources_and_one_of_them_the_compiled_modules(out: Path) -> None:
    with zipfile.ZipFile(out / f"starling-{NEXT}-py3-none-any.whl") as sources:
        names = set(sources.namelist())
    [native] = out.glob("*-cp311-*.whl")
    with zipfile.ZipFile(native) as compiled:
        added = {name for name in compiled.namelist() if name not in names}
    assert "starling_common/values.py" in names
    assert not [name for name in names if name.endswith(".so")]
    assert added
    assert all(name.endswith(".so") for name in added)
    assert any(name.startswith("starling_common/values.") for name in added)
    with tarfile.open(out / f"starling-{NEXT}.tgz") as chart:
        assert "starling/Chart.yaml" in chart.getnames()


@pytest.mark.long
def test_the_sbom_of_an_image_lists_its_lock(clone: Path, out: Path) -> None:
    for image in images(clone):
        document = json.loads((out / f"starling-{image}-{NEXT}.cdx.json").read_text())
        assert document["bomFormat"] == "CycloneDX"
        assert document["metadata"]["component"]["version"] == NEXT
        packages = locked((clone / f"docker/locks/{image}.txt").read_text())
        listed = {component["purl"] for component in document["components"]}
        python = {f"pkg:pypi/{package.name}@{package.version}" for package in packages.values()}
        assert python <= listed
        jars = listed - python
        assert all(purl.startswith("pkg:maven/") for purl in jars)
        assert bool(jars) is (image == "spark")
        rows = list(csv.DictReader((out / "licences.csv").read_text().splitlines()))
        assert {row["package"] for row in rows if image in row["images"].split()} == {purl.partition("@")[0] for purl in listed}
        assert all(row["licence"] != "unknown" for row in rows)
