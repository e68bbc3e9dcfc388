"""Adapter: the definitions as the reading thread has them, and every set of them that a task may have been switched to."""

from collections.abc import Callable

from starling_common.outcome import Done, Refused, Skipped
from starling_common.values import parts_of
from starling_common.wire import Record
from starling_rules.definitions import Definitions, fold


class DefinitionsLost(Exception):
    """The topic of definitions is not followed any more; a restart reads it anew."""


class DefinitionLog:
    """One thread appends; any thread may ask. What is handed out never changes."""

    def __init__(self, on_refused: Callable[[Refused], None]) -> None:
        """`on_refused` is told of each record that was not taken over; it is called in the appending thread."""
        self.problem: Callable[[], str | None] = lambda: None
        """What keeps newer definitions from coming in; set by whoever feeds this log."""
        self._on_refused = on_refused
        self._taken: list[Record] = []
        self._current = Definitions()
        self._reached: dict[bytes, int] = {_set_of(self._current.name): 0}

    def append(self, record: Record) -> None:
        """Take over one `DefinitionChanged`, or leave everything as it was."""
        match fold(self._current, record):
            case Done(definitions):
                self._taken.append(record)
                self._reached[_set_of(definitions.name)] = len(self._taken)
                self._current = definitions
            case Refused() as refused:
                self._on_refused(refused)
            case Skipped():
                pass

    def current(self) -> Definitions:
        """The newest set. Raises: DefinitionsLost when newer ones cannot come in any more: better to stop than to be wrong."""
        problem = self.problem()
        if problem is not None:
            raise DefinitionsLost(problem)
        return self._current

    def at(self, name: bytes) -> Definitions | None:
        """The set of that name, whatever leaves it was compiled to; None if there never was one in this topic.

        It is folded again from the records: keeping every set would need memory with the square of their number.
        """
        count = self._reached.get(_set_of(name))
        if count is None:
            return None
        definitions = Definitions()
        for record in self._taken[:count]:
            outcome = fold(definitions, record)
            assert isinstance(outcome, Done)  # noqa: S101 - it was taken once, and a fold has no other input
            definitions = outcome.value
        return definitions


def _set_of(name: bytes) -> bytes:
    return parts_of(name)[0]
