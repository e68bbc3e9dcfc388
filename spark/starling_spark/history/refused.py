"""Adapter: the records that a batch job refuses, from its Python workers to its driver."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from pyspark import AccumulatorParam, SparkContext

from starling_common.outcome import Refused
from starling_common.telemetry.logs import log
from starling_rules.history import Place

Refuse: TypeAlias = Callable[[Place, Refused], None]
"""Takes a record that makes the code raise."""

_MOST_LOGGED: Final = 100


class _Union(AccumulatorParam[dict[Place, Refused]]):
    """The union: a task that is repeated counts a record once."""

    def zero(self, value: dict[Place, Refused]) -> dict[Place, Refused]:  # noqa: ARG002 - Spark's signature
        return {}

    def addInPlace(  # noqa: N802 - Spark's name
        self, value1: dict[Place, Refused], value2: dict[Place, Refused]
    ) -> dict[Place, Refused]:
        value1.update(value2)
        return value1


class RefusedRecords:
    """Records that make the code of a job raise, by place. Workers add, the driver reads after an action."""

    def __init__(self, context: SparkContext) -> None:
        self._found: Any = context.accumulator({}, _Union())

    def add(self, place: Place, why: Refused) -> None:
        """Add a record; called in a worker."""
        self._found.add({place: why})

    def logged(self) -> int:
        """Log the first ones, and return the number of all; called in the driver."""
        found: Mapping[Place, Refused] = self._found.value
        log_refused(found)
        return len(found)


def log_refused(found: Mapping[Place, Refused]) -> None:
    """Log the first records."""
    for (topic, partition, offset), why in sorted(found.items(), key=lambda one: one[0])[:_MOST_LOGGED]:
        log(__name__).error("record_refused", topic=topic, partition=partition, offset=offset, code=why.code, message=why.message)
