"""Adapter: the fence of a table: a commit succeeds only if no other process has moved the table's Kafka position.

Iceberg calls the fence with the ancestors at each attempt to commit. Snapshots without a position, such as those of maintenance,
are skipped.
"""

from collections.abc import Callable
from typing import Any, Final

from starling_spark.lakehouse.positions import Tip

OFFSETS: Final = "starling.offsets"
"""The property of a snapshot with the position of the table: the location of its file, or of earlier releases the position."""


class LakeFenced(Exception):
    """Another process has appended to the table after its position was read. Nothing was appended."""


class Fence:
    """Iceberg's `SnapshotAncestryValidator`, called from the JVM. `snapshot`: the newest one with a position, None without one."""

    class Java:
        """The interface that the proxy in the JVM implements."""

        implements: Final = ["org.apache.iceberg.SnapshotAncestryValidator"]

    def __init__(self, snapshot: int | None) -> None:
        self._snapshot = snapshot
        self.moved_to: int | None = None
        """The snapshot of the other process."""

    def validate(self, ancestors: Any) -> bool:
        """Return whether the newest snapshot with a position is the expected one. `ancestors`: the newest first."""
        left = ancestors.iterator()
        while left.hasNext():
            one = left.next()
            if one.summary().get(OFFSETS) is not None:
                found = int(one.snapshotId())
                if found != self._snapshot:
                    self.moved_to = found
                return found == self._snapshot
        return self._snapshot is None

    def errorMessage(self) -> str:  # noqa: N802 - Iceberg's name
        """Return the text of Iceberg's exception."""
        return "another process has moved the position of the table"


class PropertyFence(Fence):
    """The fence of a table without a history, whose position is a property. `tip`: as read before; `read` returns the present one.

    The commit that follows requires that the newest snapshot is still that of the attempt.
    """

    def __init__(self, tip: Tip, read: Callable[[], Tip]) -> None:
        super().__init__(tip.snapshot)
        self._tip = tip
        self._read = read

    def validate(self, _ancestors: Any) -> bool:
        """Return whether the position is the expected one."""
        found = self._read()
        if found.position != self._tip.position:
            self.moved_to = found.snapshot
        return found.position == self._tip.position
