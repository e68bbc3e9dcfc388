"""Pure core: which bundles there are, where each one goes, and what must be inside."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

_MAVEN = Path(__file__).parent / "maven"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin"

LIBRARIES = f"{_PLUGIN}:3.8.1:copy-dependencies"
"""Copies every runtime dependency of the pom, transitive ones too."""
ARCHIVE = f"{_PLUGIN}:2.10:copy"
"""Copies the pom's artifact items. Version 2: from 3 on `copy` insists on reading parent poms that mirrors may lack."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """One directory of files that Maven brings.

    Shape: `goal` is the Maven goal that fills the directory; an `archive` bundle brings one
           `.tar.gz`, which is unpacked in place.
    Source: `maven/<name>/pom.xml` pins the versions, `maven/<name>/SHA256SUMS` the bytes.
    """

    name: str
    goal: str
    archive: bool = False

    @property
    def pom(self) -> Path:
        """What pins the versions."""
        return _MAVEN / self.name / "pom.xml"

    @property
    def checksum_file(self) -> Path:
        """What pins the bytes."""
        return _MAVEN / self.name / "SHA256SUMS"


BUNDLES = {
    bundle.name: bundle
    for bundle in (
        Bundle("kafka", LIBRARIES),
        Bundle("cassandra", LIBRARIES),
        Bundle("registry", ARCHIVE, archive=True),
        Bundle("spark", LIBRARIES),
        Bundle("iceberg", LIBRARIES),
    )
}


def directory_name(bundle: Bundle, pom: bytes) -> str:
    """A name that changes with the pom, so that two versions never share a directory."""
    return f"{bundle.name}-{hashlib.sha256(pom).hexdigest()[:12]}"


def parse_checksums(text: str) -> dict[str, str]:
    """`sha256sum` format to {file name: hex digest}. Raises ValueError on any other line."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        digest, gap, name = line.partition("  ")
        if len(digest) != 64 or not gap or not name:
            raise ValueError(f"not a checksum line: {line!r}")
        found[name] = digest
    return found


def checksum_faults(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """What differs between what should be there and what is, one short text each; empty means equal."""
    missing = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    extra = [f"{name} is not expected" for name in sorted(found.keys() - expected.keys())]
    shared = sorted(expected.keys() & found.keys())
    changed = [f"{name} has other bytes" for name in shared if expected[name] != found[name]]
    return missing + extra + changed
