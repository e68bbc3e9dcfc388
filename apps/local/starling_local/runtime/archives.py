"""Adapter: class archives of the JVM parts (Java's Class Data Sharing): a part starts with less processor time."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from starling_local.java import Java
from starling_local.runtime.bundles import BUNDLES, directory_name

PARTS = ("kafka", "cassandra", "registry")
"""The parts with an archive. Each has the name of its bundle."""


def archive_path(part: str, java: Java, runtime_dir: Path) -> Path:
    """Return the path of a part's archive. It depends on the build of Java, whose successor would not use it, and on the bundle."""
    build = hashlib.sha256(f"{java.home}\n{java.build}".encode()).hexdigest()[:12]
    return runtime_dir / "archives" / f"{directory_name(BUNDLES[part], BUNDLES[part].pom.read_bytes())}-{build}.jsa"


def missing_archives(java: Java, runtime_dir: Path, parts: Iterable[str] = PARTS) -> list[str]:
    """Return the parts that have no archive for this Java."""
    return [part for part in parts if not archive_path(part, java, runtime_dir).exists()]


def options_for(part: str, java: Java, runtime_dir: Path) -> tuple[str, ...]:
    """Return the option of Java that maps the part's archive; none without an archive.

    Java itself refuses an archive of other jars or of another build, and then starts without it.
    """
    path = archive_path(part, java, runtime_dir)
    return (f"-XX:SharedArchiveFile={path}",) if path.exists() else ()
