"""Adapter: fetches bundles with Maven into the runtime directory; a bundle appears complete and verified, or not at all."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from starling_local.errors import NotPossible
from starling_local.runtime.bundles import (
    BUNDLES,
    Bundle,
    checksum_mismatches,
    directory_name,
    parse_checksums,
)

OnProgress = Callable[[str], None]


class FetchError(NotPossible):
    """A bundle cannot be fetched. The text states the reason and the cure."""


def default_runtime_dir() -> Path:
    """Return `STARLING_RUNTIME_DIR`, else `~/.cache/starling/runtime`; all instances of a user share it."""
    named = os.environ.get("STARLING_RUNTIME_DIR")
    return Path(named) if named else Path.home() / ".cache" / "starling" / "runtime"


def runtime_jars(name: str, runtime_dir: Path | None = None) -> list[Path]:
    """Return every jar of a bundle, sorted; fetch the bundle first if it is missing.

    Raises: KeyError for an unknown bundle, FetchError if Maven cannot fetch it.
    """
    return sorted(fetch(BUNDLES[name], runtime_dir or default_runtime_dir()).rglob("*.jar"))


def is_fetched(bundle: Bundle, runtime_dir: Path) -> bool:
    """Return whether the bundle is complete, so that Maven is not needed."""
    return _home(bundle, runtime_dir).is_dir()


def fetch(bundle: Bundle, runtime_dir: Path, on_progress: OnProgress = lambda _line: None) -> Path:
    """Return the bundle's directory; fetch the bundle if it is missing. Several processes may call this at once.

    Raises: FetchError if Maven fails, or if a file has another checksum than the pinned one.
    """
    home = _home(bundle, runtime_dir)
    if home.is_dir():
        return home
    runtime_dir.mkdir(parents=True, exist_ok=True)
    with _only_one(runtime_dir / f".{bundle.name}.lock"):
        if home.is_dir():  # Another process fetched it in the meantime.
            return home
        on_progress(f"fetching {bundle.name}")
        with tempfile.TemporaryDirectory(prefix=f".{bundle.name}-", dir=runtime_dir) as scratch:
            filled = Path(scratch) / "files"
            copy_with_maven(bundle, filled)
            _verify(bundle, filled)
            if bundle.archive:
                _unpack(filled)
            filled.rename(home)  # A rename is atomic, so an incomplete directory is never visible.
    return home


def digests(directory: Path) -> dict[str, str]:
    """Return {file name: SHA-256 in hex} of every file in the directory."""
    return {path.name: _sha256(path) for path in sorted(directory.iterdir()) if path.is_file()}


def _home(bundle: Bundle, runtime_dir: Path) -> Path:
    return runtime_dir / directory_name(bundle, bundle.pom.read_bytes())


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def copy_with_maven(bundle: Bundle, target: Path) -> None:
    """Fetch the bundle's files into `target` without verification. Raises FetchError."""
    maven = shutil.which("mvn")
    if maven is None:
        raise FetchError("mvn is not on the PATH: install Maven 3.8 or newer (Debian: apt install maven)")
    command = [maven, "-q", "-B", "-f", str(bundle.pom), bundle.goal, "-DincludeScope=runtime"]
    done = subprocess.run([*command, f"-DoutputDirectory={target}"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        first = next((line for line in done.stdout.splitlines() if "[ERROR]" in line), "no message")
        raise FetchError(f"Maven cannot fetch {bundle.name} (is a Maven repository reachable?): {first.strip()}")


def _verify(bundle: Bundle, directory: Path) -> None:
    expected = parse_checksums(bundle.checksum_file.read_text())
    mismatches = checksum_mismatches(expected, digests(directory))
    if mismatches:
        raise FetchError(f"{bundle.name} differs from the checksums in {bundle.checksum_file.name}: {'; '.join(mismatches)}")


def _unpack(directory: Path) -> None:
    for jar in list(directory.glob("*.jar")):
        with zipfile.ZipFile(jar) as packed:
            for name in (one for one in packed.namelist() if one.endswith(".txz")):
                packed.extract(name, directory)
        jar.unlink()
    for archive in [*directory.glob("*.tar.gz"), *directory.glob("*.txz")]:
        with tarfile.open(archive) as files:
            # Python before 3.11.4 has no extraction filters.
            files.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
            files.extractall(directory)  # noqa: S202 - the archive is verified
        archive.unlink()


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
