"""Adapter: one instance = one data directory with its options and the last report of its supervisor."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from starling_local.errors import UserError
from starling_local.ports import Ports

Clock = Literal["wall", "event"]
SCALABLE = ("normalizer", "segmenter", "projector", "delivery", "delivery-email", "messenger")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `up`, stored in `instance.json`; the next `up` uses them again.

    Shape: `campaigns`: the services that decide about and send messages of campaigns;
           `lake`, `views` and `backfill` are optional Spark jobs; `scale` maps a service to its number of workers
           (missing: 1); `only` limits the stack to these parts and their dependencies (empty: all parts);
           `workspaces` are those beside the default one;
           `history_days`: for how long events of users are readable in the API, 0: none are;
           `revision` grows with every change.
    """

    instance_id: str
    port_base: int
    clock: Clock = "wall"
    spark: bool = True
    lake: bool = False
    views: bool = False
    backfill: bool = False
    campaigns: bool = False
    scale: dict[str, int] = {}
    only: tuple[str, ...] = ()
    workspaces: tuple[str, ...] = ()
    history_days: int = 30
    revision: int = 1

    @property
    def ports(self) -> Ports:
        """Return the ports of the instance."""
        return Ports(self.port_base)

    def workers(self, service: str) -> int:
        """Return the number of workers of a service."""
        return self.scale.get(service, 1)


class PartReport(msgspec.Struct, frozen=True, kw_only=True):
    """The supervisor's report on one part.

    Shape: `state` is one of waiting, starting, ready, unready, ending, backoff, done, stopped;
           `last_end` is the reason of the last exit, such as an unanswered liveness check.
    Units: `started_at` in seconds since the epoch, from the kernel; `pid` and `started_at` together identify one process.
    """

    name: str
    state: str
    is_step: bool = False
    pid: int | None = None
    started_at: float | None = None
    restarts: int = 0
    message: str = ""
    last_end: str = ""

    @property
    def is_ready(self) -> bool:
        """Return whether the part serves, or is a step that has ended with 0."""
        return self.state in ("ready", "done")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The state of all parts, written after every change. Shape: `revision` is that of the applied options."""

    supervisor_pid: int
    supervisor_started_at: float
    revision: int
    parts: tuple[PartReport, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Return whether all parts are ready."""
        return bool(self.parts) and all(part.is_ready for part in self.parts)


class NoInstanceError(UserError):
    """The data directory has no instance."""


@dataclass(frozen=True, slots=True)
class Instance:
    """The files of one instance."""

    data_dir: Path

    @property
    def options_file(self) -> Path:
        """Return the path of the options; only `up` writes them."""
        return self.data_dir / "instance.json"

    @property
    def report_file(self) -> Path:
        """Return the path of the report; only the supervisor writes it."""
        return self.data_dir / "parts.json"

    @property
    def lock_file(self) -> Path:
        """Return the path of the lock that the supervisor holds while it runs."""
        return self.data_dir / "supervisor.lock"

    @property
    def logs(self) -> Path:
        """Return the directory of all logs."""
        return self.data_dir / "logs"

    def log_file(self, part: str) -> Path:
        """Return the log of one part; that of the supervisor is called `supervisor`."""
        return self.logs / f"{part}.log"

    def options(self) -> Options:
        """Return the stored options. Raises NoInstanceError if `up` was never run here."""
        try:
            return msgspec.json.decode(self.options_file.read_bytes(), type=Options)
        except FileNotFoundError:
            raise NoInstanceError(f"no instance in {self.data_dir}: run `starling up` first, or set --data-dir") from None

    def exists(self) -> bool:
        """Return whether `up` was run here at least once."""
        return self.options_file.exists()

    def save_options(self, options: Options) -> None:
        """Replace the options atomically."""
        write_atomically(self.options_file, _pretty(options))

    def report(self) -> Report | None:
        """Return the last report; its supervisor may have ended since. None before the first report."""
        try:
            return msgspec.json.decode(self.report_file.read_bytes(), type=Report)
        except FileNotFoundError:
            return None

    def save_report(self, report: Report) -> None:
        """Replace the report atomically."""
        write_atomically(self.report_file, _pretty(report))


def default_data_dir() -> Path:
    """Return `STARLING_DATA_DIR`, else `.starling` in the current directory."""
    return Path(os.environ.get("STARLING_DATA_DIR") or ".starling")


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by a rename, so that a reader sees either the old or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as draft:
        draft.write(content)
        draft.flush()
    Path(draft.name).replace(path)


def _pretty(value: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
