"""Pure core: what the kit knows of a target, whatever its channel."""

from typing import Protocol

from starling_delivery.targets import Batching


class Destination(Protocol):
    """One target. A new version begins with a closed circuit. `batching` None: one message an attempt."""

    @property
    def workspace(self) -> str:
        """The workspace of the target."""

    @property
    def key(self) -> str:
        """The key of the target within its workspace."""

    @property
    def version(self) -> int:
        """The version of its definition."""

    @property
    def disabled(self) -> bool:
        """Whether its messages are suppressed."""

    @property
    def batching(self) -> Batching | None:
        """How it gathers messages."""

    @property
    def rate(self) -> float | None:
        """The most requests a second, of all processes; None: no limit."""

    @property
    def problem(self) -> str | None:
        """Why nothing can be sent: its secrets cannot be decrypted."""


class Destinations(Protocol):
    """All targets of a channel."""

    def find(self, workspace: str, key: str) -> Destination | None:
        """Return one target; None for an unknown or archived key, whose messages are suppressed."""
