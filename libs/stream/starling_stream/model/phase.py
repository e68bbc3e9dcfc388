"""Pure core: the phases of a task. They have a module of their own because mypyc compiles no enumerations."""

from enum import StrEnum


class Phase(StrEnum):
    """ASSIGNED -> RESTORING -> RUNNING -> REVOKED; no phase is repeated."""

    ASSIGNED = "assigned"
    RESTORING = "restoring"
    RUNNING = "running"
    REVOKED = "revoked"
