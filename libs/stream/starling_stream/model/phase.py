"""Pure core: how far a task has come. A module of its own, since mypyc compiles no enumerations."""

from enum import StrEnum


class Phase(StrEnum):
    """ASSIGNED -> RESTORING -> RUNNING -> REVOKED; a task never goes back."""

    ASSIGNED = "assigned"
    RESTORING = "restoring"
    RUNNING = "running"
    REVOKED = "revoked"
