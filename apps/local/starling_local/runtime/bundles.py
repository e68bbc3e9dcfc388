"""Pure core: the bundles, the names of their directories, and their checksums."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

_MAVEN = Path(__file__).parent / "maven"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin"

LIBRARIES = f"{_PLUGIN}:3.8.1:copy-dependencies"
"""Copies every runtime dependency of the pom, including transitive ones."""
ARCHIVE = f"{_PLUGIN}:2.10:copy"
"""Copies the pom's artifact items. Version 2: from version 3 on, `copy` requires parent poms, which a mirror may lack."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """One directory of files that Maven fetches.

    Shape: `goal` is the Maven goal that fills the directory; an `archive` bundle consists of one
           `.tar.gz`, or one jar with a `.txz`, which is unpacked in place; `on_demand`: tests alone need and fetch it.
    Source: `maven/<name>/pom.xml` pins the versions, `maven/<name>/SHA256SUMS` the checksums.
    """

    name: str
    goal: str
    archive: bool = False
    on_demand: bool = False

    @property
    def pom(self) -> Path:
        """Return the path of the pom, which pins the versions."""
        return _MAVEN / self.name / "pom.xml"

    @property
    def checksum_file(self) -> Path:
        """Return the path of the pinned checksums."""
        return _MAVEN / self.name / "SHA256SUMS"


BUNDLES = {
    bundle.name: bundle
    for bundle in (
        Bundle("kafka", LIBRARIES),
        Bundle("cassandra", LIBRARIES),
        Bundle("registry", ARCHIVE, archive=True),
        Bundle("spark", LIBRARIES),
        Bundle("iceberg", LIBRARIES),
        Bundle("jdbc", LIBRARIES),
        Bundle("postgres", ARCHIVE, archive=True, on_demand=True),
        Bundle("opensearch", LIBRARIES, on_demand=True),
        Bundle("s3", LIBRARIES, on_demand=True),
        Bundle("iceberg-aws", LIBRARIES, on_demand=True),
        Bundle("nessie", ARCHIVE, on_demand=True),
    )
}


def directory_name(bundle: Bundle, pom: bytes) -> str:
    """Return a directory name that depends on the pom, so that two versions never share a directory."""
    return f"{bundle.name}-{hashlib.sha256(pom).hexdigest()[:12]}"


def parse_checksums(text: str) -> dict[str, str]:
    """Return `sha256sum` output as {file name: hex digest}. Raises ValueError for any other line."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        digest, gap, name = line.partition("  ")
        if len(digest) != 64 or not gap or not name:
            raise ValueError(f"not a checksum line: {line!r}")
        found[name] = digest
    return found


def checksum_mismatches(expected: dict[str, str], found: dict[str, str]) -> list[str]:
    """Return one text for each difference between two sets of checksums; an empty list means equality."""
    missing = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    extra = [f"{name} is not expected" for name in sorted(found.keys() - expected.keys())]
    shared = sorted(expected.keys() & found.keys())
    changed = [f"{name} has other bytes" for name in shared if expected[name] != found[name]]
    return missing + extra + changed
