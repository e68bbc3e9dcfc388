"""Pure core: one order for the records of a topic, also after the topic was deleted and created again."""

from collections.abc import Mapping
from typing import Final, TypeAlias

Incarnations: TypeAlias = Mapping[str, int]
"""Topic -> how often it was created again since its first sight; a failover to another copy of the topic counts too."""

_STEP: Final = 1 << 44
"""More than any offset or sequence, and 2^19 of them fit a timestamp of Cassandra."""


def ordinal(incarnation: int, number: int) -> int:
    """Return a number that is greater than those of all earlier incarnations, and orders by `number` within this one."""
    return incarnation * _STEP + number


def next_incarnation(newest: tuple[int, str] | None, topic_id: str) -> int:
    """Return the incarnation of a topic with that id. `newest`: the newest known incarnation and its id, None at first sight.

    An id that was replaced before begins another incarnation: after a failover and back, the newest records still win.
    """
    if newest is None:
        return 0
    return newest[0] if newest[1] == topic_id else newest[0] + 1
