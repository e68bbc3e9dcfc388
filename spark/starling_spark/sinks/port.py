"""Pure core: the contract of a sink.

A row has a key and a version, which grows with each change of the key. For each key a sink keeps the row with the highest version.
So a repetition changes nothing, and neither does an older writer. A row that the sink does not accept is returned with the reason,
and the other rows go on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

VERSION: Final = "row_version"
"""The column with the version, a whole number."""
MOST_REASON: Final = 500
_MOST_KEY: Final = 500


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of an export: all of them, and those of the key, which are among them. `VERSION` is a column too."""

    schema: pa.Schema
    key: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all columns, in order."""
        return tuple(self.schema.names)

    def key_text(self, row: Sequence[Any]) -> str:
        """Return the key of a row as text, for messages."""
        values = dict(zip(self.names, row, strict=True))
        return "/".join(str(values[name]) for name in self.key)[:_MOST_KEY]


class Run(NamedTuple):
    """One run of an export. `number`: grows with each run, and a run that was killed is repeated with the same number."""

    export: str
    number: int


class RejectedRow(NamedTuple):
    """A row that the sink does not accept."""

    key: str
    version: int
    code: str
    reason: str
    cure: str


class Written(NamedTuple):
    """The rows of one task: the number of accepted ones, the rejected ones, and the names of new files, if the sink has any."""

    accepted: int
    rejected: tuple[RejectedRow, ...] = ()
    files: tuple[str, ...] = ()


class SinkRefused(Exception):
    """The sink accepts no row, such as for a wrong password. The text names the place, the reason and the cure."""


class SinkUnavailable(Exception):
    """The sink does not answer. The next run tries again. The text names the place, the reason and the cure."""


class Sink(Protocol):
    """A destination. It is sent to the workers of Spark. Every method may raise SinkRefused and SinkUnavailable."""

    def check(self, shape: Shape, /) -> None:
        """Check in the driver that rows of this shape can be written, before the first one is."""

    def write(self, shape: Shape, run: Run, batches: Iterable[pa.RecordBatch], most_rejected: int, /) -> Written:
        """Write the rows of one task, in a worker. A key occurs in one task of a run only. It ends early beyond `most_rejected`."""

    def complete(self, shape: Shape, run: Run, written: Sequence[Written], /) -> None:
        """Make the rows of all tasks visible, in the driver, if they are not yet."""


def check_rejected(rejected: Sequence[RejectedRow], most: int) -> None:
    """Raise SinkRefused if more rows are rejected than the export accepts."""
    if len(rejected) > most:
        first = f"{rejected[0].key}: {rejected[0].reason}"
        raise SinkRefused(
            f"stopped after {len(rejected)} rejected rows, over max_rejects {most}, the first of them {first}: correct the sink, "
            "or raise max_rejects"
        )
