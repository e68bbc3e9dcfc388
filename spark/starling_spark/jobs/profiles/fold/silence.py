"""Pure core: a bucket that catches up without publishing, and visits its users when it begins to publish.

The users are visited in several micro-batches, so that none takes long. A user whom a record touches before is evaluated then.
"""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

import msgspec


class CatchingUp(NamedTuple):
    """How a query begins. `is_silent`: without publishing. `changed`: (workspace, key) of each trait that the former query did not
    have in this version.
    """

    is_silent: bool
    changed: frozenset[tuple[str, str]]


LIVE: Final = CatchingUp(is_silent=False, changed=frozenset())


class Silence(msgspec.Struct, array_like=True):
    """The state of such a bucket. `ended_ms`: stream time at the end of the silence; None before that.

    `next_visit` of `visits`: the number of the next visit. `everything`: all values of untouched users are published, because
    events are deleted that the former query had counted.
    """

    ended_ms: int | None = None
    next_visit: int = 0
    visits: int = 0
    everything: bool = False


class Visited(msgspec.Struct, array_like=True):
    """A user to visit. `is_published`: earlier queries published values of this user from events that may be deleted now."""

    name: str
    is_published: bool = False


def visits(names: Iterable[str], published: Collection[str], count: int) -> list[list[Visited]]:
    """Return the users of `count` visits, about equally many in each."""
    users = [Visited(name, name in published) for name in sorted({*names, *published})]
    size = -(-len(users) // count)
    return [users[number * size : (number + 1) * size] for number in range(count)]
