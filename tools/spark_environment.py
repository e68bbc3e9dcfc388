"""Packs the Python of Spark's executors: `python -m tools.spark_environment out/spark-environment.tar.gz`.

The archive is a virtual environment of this interpreter with our packages, those of docker/requirements/spark.txt, and those that
they require. It works in any directory, so `spark-submit --archives …#environment` unpacks it beside each executor.
Every node has the same Linux, and the interpreter at the same path. The jars of PySpark are left out, because a node has Spark.
"""

import io
import os
import sys
import tarfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).parent.parent
_REQUIREMENTS: Final = ROOT / "docker" / "requirements" / "spark.txt"
_PACKAGES: Final = ("libs/*/starling_*", "spark/starling_spark")
_SCHEMAS: Final = ROOT / "schemas" / "avro"
_LEFT_OUT: Final = ("pyspark/jars/", "pyspark/examples/", "pyspark/bin/", "pyspark/sbin/", "pyspark/python/", "pyspark/data/")
_SITE: Final = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")
_COMPRESSION: Final = 1
"""Most bytes are compiled: a higher level takes long and saves little."""


def pack(target: Path) -> int:
    """Write the archive, and return the number of its files. Raises: PackageNotFoundError, OSError."""
    count = 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:gz", compresslevel=_COMPRESSION) as archive:
        interpreter = Path(os.path.realpath(sys.executable))
        _add_text(archive, "pyvenv.cfg", f"home = {interpreter.parent}\ninclude-system-site-packages = false\n")
        with TemporaryDirectory() as scratch:
            link = Path(scratch, "python")
            link.symlink_to(interpreter)
            archive.add(link, "bin/python")
        for source, inside in files():
            archive.add(source, str(_SITE / inside), recursive=False)
            count += 1
    return count


def files() -> Iterator[tuple[Path, Path]]:
    """Yield each file, and its path below `site-packages`."""
    for found in sorted(_closure(_required(_REQUIREMENTS.read_text())).values(), key=lambda one: str(one.name)):
        for file in found.files or ():
            inside = file.as_posix()
            if not inside.startswith(("../", "/")) and not inside.startswith(_LEFT_OUT) and not inside.endswith(".pyc"):
                source = Path(str(found.locate_file(file)))
                if source.is_file():
                    yield source, Path(inside)
    for package in (one for pattern in _PACKAGES for one in sorted(ROOT.glob(pattern))):
        yield from ((source, source.relative_to(package.parent)) for source in _below(package))
    # The compiled modules share one library beside the packages.
    yield from ((source, Path(source.name)) for source in sorted(ROOT.glob("libs/*/*.so")))
    yield from ((source, Path("starling_common/schemas/avro", source.relative_to(_SCHEMAS))) for source in _below(_SCHEMAS))


def _below(directory: Path) -> list[Path]:
    return sorted(one for one in directory.rglob("*") if one.is_file() and "__pycache__" not in one.parts)


def _required(text: str) -> list[Requirement]:
    return [Requirement(line) for line in text.splitlines() if line and not line.startswith("#")]


def _closure(wanted: Iterable[Requirement]) -> dict[str, Distribution]:
    """Return the distributions by name: those that are wanted with their extras, and what they require."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    left = [(one, extra) for one in wanted for extra in ("", *one.extras)]
    while left:
        requirement, extra = left.pop()
        if (requirement.name, extra) in seen:
            continue
        seen.add((requirement.name, extra))
        found[requirement.name] = distribution(requirement.name)
        for line in found[requirement.name].requires or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                left += [(needed, one) for one in ("", *needed.extras)]
    return found


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(text.encode())
    archive.addfile(entry, io.BytesIO(text.encode()))


def main() -> int:
    """Pack, and print the size of the archive; return the exit code."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m tools.spark_environment ARCHIVE.tar.gz\n")
        return 2
    target = Path(sys.argv[1])
    count = pack(target)
    sys.stdout.write(f"{target}: {count} files, {target.stat().st_size // 1_000_000} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
