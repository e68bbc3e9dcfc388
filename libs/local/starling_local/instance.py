"""Adapter: one instance = one data directory; its options, its ports, and what its supervisor last wrote."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from starling_local.errors import LocalError
from starling_local.ports import Ports

Clock = Literal["wall", "event"]
SCALABLE = ("normalizer", "segmenter", "projector", "delivery")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for with `up`. Kept in `instance.json`, so that the next `up` goes on the same way.

    Shape: `lake` and `views` are Spark jobs that not everybody needs, and so is `backfill`, which runs only at times;
           `scale` maps a service to its number of workers (missing: 1); `only` limits the stack to these parts and
           what they need (empty: everything); `revision` grows with every `up`.
    """

    instance_id: str
    port_base: int
    clock: Clock = "wall"
    spark: bool = True
    lake: bool = False
    views: bool = False
    backfill: bool = False
    scale: dict[str, int] = {}
    only: tuple[str, ...] = ()
    revision: int = 1

    @property
    def ports(self) -> Ports:
        """Every port, counted from the base."""
        return Ports(self.port_base)

    def workers(self, service: str) -> int:
        """How many workers of a service run."""
        return self.scale.get(service, 1)


class PartReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor says about one part.

    Shape: `state` is one of waiting, starting, ready, unready, backoff, done, stopped.
    Units: `started_at` in seconds since the epoch, as the kernel tells it: with `pid` it names one process for ever.
    """

    name: str
    state: str
    is_step: bool = False
    pid: int | None = None
    started_at: float | None = None
    restarts: int = 0
    message: str = ""

    @property
    def is_ready(self) -> bool:
        """It serves, or has done its work."""
        return self.state in ("ready", "done")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All the supervisor knows, written after every change; `revision` is that of the options it applied."""

    supervisor_pid: int
    supervisor_started_at: float
    revision: int
    parts: tuple[PartReport, ...] = ()

    @property
    def is_ready(self) -> bool:
        """All parts are."""
        return bool(self.parts) and all(part.is_ready for part in self.parts)


class NoInstanceError(LocalError):
    """The data directory holds no instance."""


@dataclass(frozen=True, slots=True)
class Instance:
    """Where the files of one instance are. Opens nothing by itself."""

    data_dir: Path

    @property
    def options_file(self) -> Path:
        """What was asked for; written by `up` alone."""
        return self.data_dir / "instance.json"

    @property
    def report_file(self) -> Path:
        """What runs; written by the supervisor alone."""
        return self.data_dir / "parts.json"

    @property
    def lock_file(self) -> Path:
        """Held by the supervisor as long as it lives."""
        return self.data_dir / "supervisor.lock"

    @property
    def logs(self) -> Path:
        """The directory of all logs."""
        return self.data_dir / "logs"

    def log_file(self, part: str) -> Path:
        """The log of one part; the supervisor's is called `supervisor`."""
        return self.logs / f"{part}.log"

    def options(self) -> Options:
        """Raises NoInstanceError if `up` was never run here."""
        try:
            return msgspec.json.decode(self.options_file.read_bytes(), type=Options)
        except FileNotFoundError:
            raise NoInstanceError(f"no instance in {self.data_dir}: run `starling up` first, or name its --data-dir") from None

    def exists(self) -> bool:
        """`up` was run here at least once."""
        return self.options_file.exists()

    def save_options(self, options: Options) -> None:
        """Replace the file whole."""
        write_atomically(self.options_file, _pretty(options))

    def report(self) -> Report | None:
        """What the last supervisor wrote last; it may be dead by now. None before the first one."""
        try:
            return msgspec.json.decode(self.report_file.read_bytes(), type=Report)
        except FileNotFoundError:
            return None

    def save_report(self, report: Report) -> None:
        """Replace the file whole."""
        write_atomically(self.report_file, _pretty(report))


def default_data_dir() -> Path:
    """`STARLING_DATA_DIR`, else `.starling` in the current directory."""
    return Path(os.environ.get("STARLING_DATA_DIR") or ".starling")


def write_atomically(path: Path, content: bytes) -> None:
    """A reader sees the old file or the new one, never a part of either."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as draft:
        draft.write(content)
        draft.flush()
    Path(draft.name).replace(path)


def _pretty(value: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
