"""Pure core: what is wrong with a definition, and where; all of it at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from zoneinfo import ZoneInfo

NOT_YET = "not_yet"
"""The language knows it, this version of the product does not: the API answers 501."""

CODES = frozenset(
    {
        "unknown_field", "missing_field", "wrong_type", "unknown_operator", "operator_does_not_fit", "bad_duration", "bad_date",
        "bad_timezone", "bad_pattern", "bad_window", "empty_group", "too_deep", "too_wide", "unknown_segment", "unknown_list",
        "unknown_trait", "cycle", "bad_key", "key_taken", "out_of_range", "bad_text", "too_large", NOT_YET,
    }
)  # fmt: skip
UTC = ZoneInfo("UTC")
MAX_DEPTH = 16
MAX_LEAVES = 256


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a definition. `pointer` is a JSON pointer (RFC 6901) into the document."""

    pointer: str
    code: str
    message: str
    expected: str


class DefinitionRefused(ValueError):
    """The document is not a definition. `faults` holds everything wrong with it, in document order."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__("; ".join(f"{fault.pointer or '/'}: {fault.message}" for fault in faults))
        self.faults = faults

    @property
    def not_yet(self) -> bool:
        """True when nothing is wrong but that parts of it are not built yet."""
        return all(fault.code == NOT_YET for fault in self.faults)


@dataclass(frozen=True)
class Known:
    """What a definition may refer to, looked up by the caller.

    `segments`: key of each live segment -> keys of the segments it uses. `computed_traits`: keys without the
    `computed.` prefix. `taken_keys`: keys a new segment must not have (live or archived). `lists`: keys of uploaded
    lists, None where there can be none yet. `accounts`: whether users' accounts are told of. `timezone`: the workspace's.
    """

    segments: Mapping[str, frozenset[str]] = field(default_factory=dict)
    computed_traits: frozenset[str] = frozenset()
    taken_keys: frozenset[str] = frozenset()
    lists: frozenset[str] | None = None
    accounts: bool = False
    timezone: str = "UTC"


@dataclass(slots=True)
class Reading:
    """What grows while one document is read."""

    known: Known
    key: str | None = None
    zone: ZoneInfo = UTC
    faults: list[Fault] = field(default_factory=list)
    leaves: int = 0
    in_account: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the document the reader stands. `depth` counts the groups around it."""

    reading: Reading
    pointer: str = ""
    depth: int = 0

    def at(self, *steps: str | int) -> Place:
        """The place some steps further down."""
        tail = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)
        return replace(self, pointer=self.pointer + tail)

    def inside_group(self) -> Place:
        """The same place, one group deeper."""
        return replace(self, depth=self.depth + 1)

    def refuse(self, code: str, message: str, expected: str) -> None:
        """Note a fault here and go on reading."""
        self.reading.faults.append(Fault(self.pointer, code, message, expected))

    def count_leaf(self) -> bool:
        """A leaf stands here: events, traits and the predicates inside `where` all count. False: it is one too many to read."""
        self.reading.leaves += 1
        if self.reading.leaves == MAX_LEAVES + 1:
            self.refuse(
                "too_wide",
                f"the definition has more than {MAX_LEAVES} conditions",
                f"at most {MAX_LEAVES} conditions, those inside where included",
            )
        return self.reading.leaves <= MAX_LEAVES


def finish(reading: Reading) -> None:
    """Raise DefinitionRefused if anything was found."""
    if reading.faults:
        raise DefinitionRefused(tuple(reading.faults))


def refuse_unknown_fields(node: Mapping[str, object], allowed: frozenset[str], place: Place) -> None:
    """Note every field that does not belong here."""
    for name in node:
        if name not in allowed:
            place.at(name).refuse("unknown_field", f"unknown field {name!r}", "one of " + ", ".join(sorted(allowed)))
