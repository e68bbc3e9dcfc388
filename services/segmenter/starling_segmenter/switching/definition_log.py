"""Adapter: the definitions read so far, and each earlier set of them that a task may have been switched to."""

from collections.abc import Callable

from starling_common.outcome import Done, Outcome, Skipped
from starling_common.values import parts_of
from starling_common.wire import Record
from starling_rules.definitions import Definitions, fold


class DefinitionsLost(Exception):
    """The topic of definitions is no longer followed; a restart reads it again."""


class DefinitionLog:
    """One thread appends, any thread reads. The returned values are immutable."""

    def __init__(self) -> None:
        """Make a log without definitions."""
        self.problem: Callable[[], str | None] = lambda: None
        """Returns the error that stopped the reading of definitions, or None; the reader sets it."""
        self._records: list[Record] = []
        self._current = Definitions()
        self._positions: dict[bytes, int] = {_set_of(self._current.name): 0}

    def append(self, record: Record) -> Outcome["DefinitionLog"]:
        """Apply one `DefinitionChanged`; a refused record changes nothing."""
        outcome = fold(self._current, record)
        if not isinstance(outcome, Done):
            return outcome
        self._records.append(record)
        self._positions[_set_of(outcome.value.name)] = len(self._records)
        self._current = outcome.value
        return Done(self)

    def current(self) -> Definitions:
        """Return the newest set. Raises: DefinitionsLost if newer ones can no longer be read: outdated rules would emit errors."""
        problem = self.problem()
        if problem is not None:
            raise DefinitionsLost(problem)
        return self._current

    def at(self, name: bytes) -> Definitions | None:
        """Return the set of that name, compiled by any release; None if this topic never contained it.

        The set is folded again from the records: storing every set would need memory quadratic in their number.
        """
        count = self._positions.get(_set_of(name))
        if count is None:
            return None
        definitions = Definitions()
        for record in self._records[:count]:
            outcome = fold(definitions, record)
            assert isinstance(outcome, Done)  # noqa: S101 - the fold has accepted these records before
            definitions = outcome.value
        return definitions


def fold_topic(definitions: DefinitionLog, _key: bytes, record: Record | None) -> Outcome[DefinitionLog]:
    """As `DefinitionLog.append`, for a `FoldedTopic`."""
    return Skipped("a tombstone") if record is None else definitions.append(record)


def _set_of(name: bytes) -> bytes:
    return parts_of(name)[0]
