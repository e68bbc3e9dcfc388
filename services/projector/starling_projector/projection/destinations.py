"""Pure core: the tables of the read models, in the order of writing."""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class Destination(Enum):
    """The tables in the order of writing. A definition is written after its version, so that readers find the version."""

    DEFINITION_VERSION = "definition_versions"
    MEMBER = "segment_members"
    MEMBER_GONE = "segment_members (deleted)"
    USER_MEMBERSHIP = "user_memberships"
    USER_PROFILE = "user_profiles"
    USER_EVENT = "user_history"
    AUDIT = "audit_log"
    DEFINITION_CREATED = "definitions (created)"
    DEFINITION = "definitions"

    # Every member exists once. The hash of an enumeration is a function in Python, and is computed several times for each row.
    __hash__ = object.__hash__


TABLES: Final[Mapping[Destination, str]] = {destination: destination.value.partition(" ")[0] for destination in Destination}
FIRST: Final = frozenset({Destination.DEFINITION_VERSION})
LAST: Final = frozenset({Destination.DEFINITION})
