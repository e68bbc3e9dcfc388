"""The locks of the images: every package that an image installs, with its version and the hashes of its files.

    python -m tools.locks           writes docker/locks from docker/requirements and constraints.txt; asks the package index
    python -m tools.locks --check   compares them with pyproject.toml and constraints.txt; needs no network

pip takes hashes from a constraints file only if every requirement is hashed, and an editable installation cannot be. So
`constraints.txt` pins the versions alone, and each image has a lock of its own.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

ROOT: Final = Path(__file__).parent.parent
CURE: Final = "run `make locks`"

_PIN: Final = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?P<extras>\[[^\]]*\])?==(?P<version>\S+)", re.MULTILINE)
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Locked(NamedTuple):
    """One package of a lock; `hashes` are SHA-256 in hexadecimal, one for each file that the index has."""

    name: NormalizedName
    version: str
    hashes: tuple[str, ...]


def targets(root: Path = ROOT) -> list[str]:
    """Return the names of the requirement files: one for each image, and `build`."""
    return sorted(path.stem for path in (root / "docker/requirements").glob("*.txt"))


def locked(text: str) -> dict[NormalizedName, Locked]:
    """Return name -> package of the text of a lock."""
    starts = [*_PIN.finditer(text)]
    ends = [*(match.start() for match in starts[1:]), len(text)]
    return {
        (name := canonicalize_name(match["name"])): Locked(name, match["version"], tuple(_HASH.findall(text[match.end() : end])))
        for match, end in zip(starts, ends, strict=True)
    }


def pins(root: Path = ROOT) -> dict[NormalizedName, str]:
    """Return name -> version of constraints.txt."""
    return {canonicalize_name(match["name"]): match["version"] for match in _PIN.finditer((root / "constraints.txt").read_text())}


def requirements(path: Path) -> Iterator[Requirement]:
    """Yield the requirements of a file, and those of the files that it includes by `-r`."""
    for line in path.read_text().splitlines():
        if line.startswith("-r "):
            yield from requirements(path.parent / line.removeprefix("-r ").strip())
        elif line and not line.startswith("#"):
            yield Requirement(line)


def dependencies(name: str, extras: Iterable[str]) -> Iterator[Requirement]:
    """Yield what the installed package requires with these extras, on this platform. Raises: PackageNotFoundError."""
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def closure(starts: Iterable[Requirement]) -> dict[NormalizedName, set[NormalizedName]]:
    """Return package -> packages that it requires, for all that the requirements need. Raises: PackageNotFoundError."""
    graph: dict[NormalizedName, set[NormalizedName]] = {}
    followed: set[tuple[NormalizedName, frozenset[str]]] = set()
    waiting = list(starts)
    while waiting:
        requirement = waiting.pop()
        name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, extras) in followed:
            continue
        followed.add((name, extras))
        further = list(dependencies(name, extras))
        graph.setdefault(name, set()).update(canonicalize_name(one.name) for one in further)
        waiting += further
    return graph


def differences(root: Path = ROOT) -> Iterator[str]:
    """Yield each difference between the locks and pyproject.toml, constraints.txt and docker/requirements, with its cure."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    declared = {
        str(Requirement(one)) for one in (*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["dev"])
    }
    versions = pins(root)
    for target in targets(root):
        file = root / f"docker/requirements/{target}.txt"
        wanted = list(requirements(file))
        for requirement in wanted:
            if str(requirement) not in declared:
                yield f"docker/requirements/{target}.txt: {requirement}: pyproject.toml has no such line: add it there"
        lock = root / f"docker/locks/{target}.txt"
        if not lock.exists():
            yield f"docker/locks/{target}.txt is missing: {CURE}"
            continue
        yield from (f"docker/locks/{target}.txt: {one}" for one in _faults(locked(lock.read_text()), wanted, versions))


def _faults(
    lock: Mapping[NormalizedName, Locked], wanted: Iterable[Requirement], versions: Mapping[NormalizedName, str]
) -> Iterator[str]:
    for package in lock.values():
        if package.version != (pinned := versions.get(package.name)):
            yield f"{package.name}=={package.version}, but constraints.txt has {pinned or 'no such package'}: {CURE}"
        if not package.hashes:
            yield f"{package.name} has no hash: {CURE}"
    try:
        needed = closure(wanted)
    except PackageNotFoundError as error:
        yield f"{error.name} is not installed: run `make setup`"
        return
    for name in sorted(needed.keys() - lock.keys()):
        yield f"{name} is missing: {CURE}"
    for name in sorted(lock.keys() - needed.keys()):
        yield f"{name} is not needed: {CURE}"


def write(root: Path = ROOT) -> None:
    """Write every lock. Raises: subprocess.CalledProcessError if uv finds no solution or no index."""
    (root / "docker/locks").mkdir(exist_ok=True)
    for target in targets(root):
        options = ["--quiet", "--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
        platform = ["--python-version", "3.11", "--python-platform", "linux", "--constraint", "constraints.txt"]
        # A lock that uv finds is taken as a preference: its versions must come from constraints.txt alone.
        output = ["--upgrade", "--output-file", f"docker/locks/{target}.txt", f"docker/requirements/{target}.txt"]
        command = [sys.executable, "-m", "uv", "pip", "compile", "--native-tls", *options, *platform, *output]
        subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    """Write the locks, or compare them; exit code 1: a difference, each on a line of its own."""
    if "--check" not in sys.argv[1:]:
        write()
    found = list(differences())
    sys.stderr.writelines(f"locks: {one}\n" for one in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
