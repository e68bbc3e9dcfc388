"""Pure core: the users of a bucket whom a change of definitions concerns, and who may get no event for long.

They are visited in several micro-batches, so that none takes long. A user whom a record touches before is evaluated then.
"""

from collections.abc import Iterable

import msgspec


class Visits(msgspec.Struct, array_like=True):
    """The visits of a bucket that are left: numbers from `next_visit` to before `count`."""

    next_visit: int
    count: int


def visits(names: Iterable[str], count: int) -> list[list[str]]:
    """Return the users of `count` visits, about equally many in each."""
    users = sorted(set(names))
    size = -(-len(users) // count)
    return [users[number * size : (number + 1) * size] for number in range(count)]
