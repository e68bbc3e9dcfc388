"""Pure core: a fold of records in which a record that makes the code raise changes nothing."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from starling_common.failures import is_of_installation, poison
from starling_common.outcome import Refused

S = TypeVar("S")
R = TypeVar("R")
Result = TypeVar("Result")

_MOST: Final = 500
"""Records between two copies of the state: a copy costs as much as some records, and a failure folds the records since it again."""


class IsolatedFold(Generic[S, R, Result]):
    """Folds records into `state`. A record that makes the fold raise twice is refused, and the state is as without it.

    `fold` changes the state that it is given, and is deterministic. `copy` returns an equal, independent state.
    """

    def __init__(self, initial: Callable[[], S], fold: Callable[[S, R], Result], copy: Callable[[S], S]) -> None:
        """`initial` returns the state before the first record; it may be called again."""
        self._initial = initial
        self._fold = fold
        self._copy = copy
        self._copied: S | None = None
        self._since: list[R] = []
        self._most = _MOST
        self.state = initial()

    def take(self, record: R) -> Result | Refused:
        """Fold a record, and return its result, or why it is refused. Raises: failures of the installation."""
        if len(self._since) >= self._most:
            self._checkpoint()
        try:
            result = self._fold(self.state, record)
        except Exception as cause:
            if is_of_installation(cause):
                raise
            return self._again(record)
        self._since.append(record)
        return result

    def _again(self, record: R) -> Result | Refused:
        self._rewind()
        self._checkpoint()
        try:
            result = self._fold(self.state, record)
        except Exception as cause:
            if is_of_installation(cause):
                raise
            self._rewind()
            return poison(cause)
        self._since.append(record)
        return result

    def _checkpoint(self) -> None:
        try:
            copied = self._copy(self.state)
        except Exception as cause:
            if is_of_installation(cause):
                raise
            self._most = 2 * len(self._since) + _MOST  # a state that cannot be copied now may be so after more records
            return
        self._copied, self._most = copied, _MOST
        self._since.clear()

    def _rewind(self) -> None:
        self.state = self._initial() if self._copied is None else self._copy(self._copied)
        for record in self._since:
            self._fold(self.state, record)
