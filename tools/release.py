"""Makes a release in out/release: `python -m tools.release 0.2.0`, which `make release VERSION=0.2.0` runs.

Out of the last commit come a source archive, a wheel of the sources, a wheel with the compiled modules, the chart, an SBOM of each
image, the licences, the release notes and the checksums. Times are those of the commit.
"""

import csv
import hashlib
import os
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distribution
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Final, NamedTuple

import yaml
from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from defusedxml.ElementTree import parse
from packageurl import PackageURL

from tools.locks import Locked, closure, differences, locked, requirements

JARS: Final = ("spark", "iceberg")
"""The jars of the image `spark`, by the directory of their POM."""
_POMS: Final = "apps/local/starling_local/runtime/maven"
_POM: Final = "{http://maven.apache.org/POM/4.0.0}"
_LONGEST_LICENCE: Final = 60
"""In characters; what is longer in the field `License` is the text of the licence."""


class Refused(Exception):
    """The release is not made. The text has one reason a line, each with its cure."""


class Part(NamedTuple):
    """A package in an image. `hashes` are SHA-256, one for each file that the package may be installed from."""

    purl: PackageURL
    licence: str
    hashes: Sequence[str]
    needs: frozenset[str]

    @property
    def key(self) -> str:
        """Return the name by which other parts need this one."""
        return str(self.purl.name)


def notes(changelog: str, version: str) -> str:
    """Return the section of a version, without its heading. Raises: Refused if it is missing or lists no change."""
    found = re.search(
        rf"^## {re.escape(version)} - \d{{4}}-\d{{2}}-\d{{2}}\n(?P<text>.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise Refused(f"CHANGELOG.md has no section `## {version} - YYYY-MM-DD`: move the changes from Unreleased into it")
    if not re.search(r"^- \S", found["text"], re.MULTILINE):
        raise Refused(f"CHANGELOG.md: the section {version} lists no change: write one line a change, beginning with `- `")
    return found["text"].strip() + "\n"


def refusals(root: Path, version: str) -> Iterator[str]:
    """Yield each reason against a release, with its cure."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        yield f"{version!r} is no version: write VERSION=x.y.z"
        return
    if changed := _git(root, "status", "--porcelain"):
        yield f"the tree has uncommitted changes ({changed.splitlines()[0].strip()} …): commit or remove them"
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    if project != version:
        yield f"pyproject.toml: version is {project}, not {version}: change it"
    chart = yaml.safe_load((root / "helm/starling/Chart.yaml").read_text())
    for field in ("version", "appVersion"):
        if chart[field] != version:
            yield f"helm/starling/Chart.yaml: {field} is {chart[field]}, not {version}: change it"
    try:
        notes((root / "CHANGELOG.md").read_text(), version)
    except Refused as refused:
        yield str(refused)
    yield from differences(root)


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def licence(name: str) -> str:
    """Return the licence that the metadata of an installed package state; `unknown` if they state none."""
    metadata = distribution(name).metadata
    if "License-Expression" in metadata:
        return metadata["License-Expression"]
    classified = [one.rpartition(" :: ")[2] for one in metadata.get_all("Classifier") or () if one.startswith("License :: ")]
    stated = metadata["License"].strip() if "License" in metadata else ""
    if stated and len(stated) <= _LONGEST_LICENCE and "\n" not in stated:
        return stated
    return " OR ".join(sorted(classified)) or "unknown"


def python_parts(root: Path, image: str) -> list[Part]:
    """Return the Python packages of an image. Raises: Refused if one is not installed here at the version of the lock."""
    packages = locked((root / f"docker/locks/{image}.txt").read_text())
    graph = closure(requirements(root / f"docker/requirements/{image}.txt"))
    return [_python_part(package, graph.get(package.name, set())) for package in packages.values()]


def _python_part(package: Locked, needs: Iterable[str]) -> Part:
    try:
        found = installed_version(package.name)
    except PackageNotFoundError:
        found = "missing"
    if found != package.version:
        raise Refused(f"{package.name} is {found} in .venv, and {package.version} in the lock: run `make setup`")
    purl = PackageURL("pypi", None, package.name, package.version)
    return Part(purl, licence(package.name), package.hashes, frozenset(needs))


def jar_parts(root: Path) -> list[Part]:
    """Return the jars of the image `spark`."""
    found: list[Part] = []
    for bundle in JARS:
        directory = root / _POMS / bundle
        lines = (line.split() for line in (directory / "SHA256SUMS").read_text().splitlines())
        checksums = {name: digest for digest, name in lines}
        for dependency in parse(directory / "pom.xml").iter(f"{_POM}dependency"):
            group, artifact, version = (dependency.findtext(f"{_POM}{field}") for field in ("groupId", "artifactId", "version"))
            purl = PackageURL("maven", group, artifact, version)
            found.append(Part(purl, "Apache-2.0", [checksums[f"{artifact}-{version}.jar"]], frozenset()))
    return found


def bom(image: str, parts: Sequence[Part], version: str, commit: str, moment: datetime) -> str:
    """Return the SBOM of an image, as a CycloneDX document in JSON."""
    licences = LicenseFactory()
    root = Component(
        name=f"starling-{image}",
        version=version,
        type=ComponentType.CONTAINER,
        bom_ref=f"starling-{image}",
        licenses=[licences.make_from_string("Apache-2.0")],
    )
    components = {part.key: _component(part, licences) for part in parts}
    document = Bom(components=components.values(), serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"starling:{commit}:{image}"))
    document.metadata.component = root
    document.metadata.timestamp = moment
    document.register_dependency(root, components.values())
    for part in parts:
        document.register_dependency(components[part.key], [components[name] for name in sorted(part.needs & components.keys())])
    return make_outputter(document, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)


def _component(part: Part, licences: LicenseFactory) -> Component:
    # A package has one hash for each of its files: those of an index belong to the distribution, not to the package.
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in part.hashes]
    source = ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(str(part.purl)), hashes=hashes)
    return Component(
        name=str(part.purl.name),
        group=part.purl.namespace,
        version=part.purl.version,
        type=ComponentType.LIBRARY,
        bom_ref=str(part.purl),
        purl=part.purl,
        licenses=[licences.make_from_string(part.licence)],
        external_references=[source],
    )


def images(root: Path) -> list[str]:
    """Return the targets of the Dockerfile that are images."""
    stages = re.findall(r"^FROM base AS (\S+)$", (root / "docker/Dockerfile").read_text(), re.MULTILINE)
    return [name for name in stages if (root / f"docker/requirements/{name}.txt").exists() and name != "build"]


def write_boms(root: Path, out: Path, version: str, commit: str, moment: datetime) -> None:
    """Write the SBOM of each image, and `licences.csv`: package, version, licence and the images that contain it."""
    found = {image: python_parts(root, image) + (jar_parts(root) if image == "spark" else []) for image in images(root)}
    by_purl = {str(part.purl): part for parts in found.values() for part in parts}
    for image, parts in found.items():
        (out / f"starling-{image}-{version}.cdx.json").write_text(bom(image, parts, version, commit, moment) + "\n")
    with (out / "licences.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["package", "version", "licence", "images"])
        for key in sorted(by_purl):
            holders = [image for image, parts in found.items() if any(str(part.purl) == key for part in parts)]
            part = by_purl[key]
            rows.writerow([key.partition("@")[0], part.purl.version, part.licence, " ".join(holders)])


def build(root: Path, out: Path, moment: datetime) -> None:
    """Build the source archive, both wheels and the chart. Raises: subprocess.CalledProcessError."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(int(moment.timestamp()))}
    environment.pop("STARLING_NATIVE_WHEEL", None)
    hatch = [sys.executable, "-m", "hatchling", "build", "--directory", str(out)]
    _run(root, [*hatch, "--target", "sdist", "--target", "wheel"], environment)
    _run(root, [sys.executable, "apps/local/compile_native.py"], environment)
    _run(root, [*hatch, "--target", "wheel"], {**environment, "STARLING_NATIVE_WHEEL": "1"})
    _run(root, ["tools/helm.sh", "package", "helm/starling", "--destination", str(out)], environment)


def _run(root: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, cwd=root, env=environment, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise Refused(f"`{' '.join(command)}` failed:\n{done.stdout[-4000:]}")


def write_checksums(out: Path) -> None:
    """Write SHA256SUMS, which `sha256sum --check` reads."""
    files = sorted(path for path in out.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (out / "SHA256SUMS").write_text("".join(lines))


def release(root: Path, version: str) -> Path:
    """Make the release and return its directory. Raises: Refused; an existing directory is not changed."""
    if reasons := list(refusals(root, version)):
        raise Refused("\n".join(reasons))
    out = root / "out/release" / version
    if out.exists():
        raise Refused(f"{out.relative_to(root)} exists: remove it")
    commit = _git(root, "rev-parse", "HEAD")
    moment = datetime.fromtimestamp(int(_git(root, "log", "-1", "--format=%ct")), UTC)
    making = out.with_name(f"{version}.part")
    making.mkdir(parents=True, exist_ok=True)
    for left in making.iterdir():
        left.unlink()
    build(root, making, moment)
    write_boms(root, making, version, commit, moment)
    (making / "RELEASE_NOTES.md").write_text(notes((root / "CHANGELOG.md").read_text(), version))
    write_checksums(making)
    making.rename(out)
    return out


def main() -> int:
    """Make the release that the argument names; exit code 1 if it is refused, with one reason a line."""
    try:
        out = release(Path.cwd(), sys.argv[1] if len(sys.argv) > 1 else "")
    except Refused as refused:
        sys.stderr.writelines(f"release: {line}\n" for line in str(refused).splitlines())
        return 1
    sys.stdout.writelines(f"{path.relative_to(Path.cwd())}\n" for path in sorted(out.iterdir()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
