"""Adapter: brings bundles from Maven into the runtime directory, whole and checked or not at all."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from starling_local.errors import NotPossible
from starling_local.runtime.bundles import (
    BUNDLES,
    Bundle,
    checksum_faults,
    directory_name,
    parse_checksums,
)

Say = Callable[[str], None]


class FetchError(NotPossible):
    """A bundle could not be brought; the text says what failed and what to do."""


def default_runtime_dir() -> Path:
    """`STARLING_RUNTIME_DIR`, else `~/.cache/starling/runtime`: shared by every instance of this user."""
    named = os.environ.get("STARLING_RUNTIME_DIR")
    return Path(named) if named else Path.home() / ".cache" / "starling" / "runtime"


def runtime_jars(name: str, runtime_dir: Path | None = None) -> list[Path]:
    """Every jar of a bundle, sorted; fetched first when it is not here yet.

    Raises: KeyError for an unknown bundle, FetchError when Maven cannot bring it.
    """
    return sorted(fetch(BUNDLES[name], runtime_dir or default_runtime_dir()).rglob("*.jar"))


def is_fetched(bundle: Bundle, runtime_dir: Path) -> bool:
    """It is here, whole; Maven is not needed."""
    return _home(bundle, runtime_dir).is_dir()


def fetch(bundle: Bundle, runtime_dir: Path, say: Say = lambda _line: None) -> Path:
    """The bundle's directory, filled. Safe to repeat, and for several processes at once.

    Raises: FetchError when Maven fails or a file is not the one that was pinned.
    """
    home = _home(bundle, runtime_dir)
    if home.is_dir():
        return home
    runtime_dir.mkdir(parents=True, exist_ok=True)
    with _only_one(runtime_dir / f".{bundle.name}.lock"):
        if home.is_dir():  # somebody else brought it while we waited
            return home
        say(f"fetching {bundle.name}")
        with tempfile.TemporaryDirectory(prefix=f".{bundle.name}-", dir=runtime_dir) as scratch:
            filled = Path(scratch) / "files"
            copy_with_maven(bundle, filled)
            _verify(bundle, filled)
            if bundle.archive:
                _unpack(filled)
            filled.rename(home)  # a rename is all or nothing: a half-filled home cannot be seen
    return home


def digests(directory: Path) -> dict[str, str]:
    """{file name: SHA-256 in hex} of every file in the directory."""
    return {path.name: _sha256(path) for path in sorted(directory.iterdir()) if path.is_file()}


def _home(bundle: Bundle, runtime_dir: Path) -> Path:
    return runtime_dir / directory_name(bundle, bundle.pom.read_bytes())


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def copy_with_maven(bundle: Bundle, target: Path) -> None:
    """Fill `target` with the bundle's files, unchecked. Raises FetchError."""
    maven = shutil.which("mvn")
    if maven is None:
        raise FetchError("mvn is not on the PATH: install Maven 3.8 or newer (Debian: apt install maven)")
    command = [maven, "-q", "-B", "-f", str(bundle.pom), bundle.goal, "-DincludeScope=runtime"]
    done = subprocess.run([*command, f"-DoutputDirectory={target}"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        first = next((line for line in done.stdout.splitlines() if "[ERROR]" in line), "no message")
        raise FetchError(f"Maven could not bring {bundle.name}: {first.strip()}")


def _verify(bundle: Bundle, directory: Path) -> None:
    expected = parse_checksums(bundle.checksum_file.read_text())
    faults = checksum_faults(expected, digests(directory))
    if faults:
        raise FetchError(f"{bundle.name} is not what was pinned in {bundle.checksum_file.name}: {'; '.join(faults)}")


def _unpack(directory: Path) -> None:
    for archive in list(directory.glob("*.tar.gz")):
        with tarfile.open(archive) as packed:
            # Python before 3.11.4 has no filters.
            packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
            packed.extractall(directory)  # noqa: S202 - its bytes are pinned, and checked by now
        archive.unlink()


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
