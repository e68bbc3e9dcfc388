"""Pure core: what happens to a person: changes of membership, events, and outcomes of messages."""

from collections.abc import Callable
from typing import NamedTuple


class MembershipChange(NamedTuple):
    """A change of membership in a segment. `at`: epoch ms, stream time. `cause`: the kind of it."""

    segment: str
    entered: bool
    at: int
    cause: str


class Happened(NamedTuple):
    """An event that campaigns select. `at`: its own time, `arrived_at`: its arrival, both epoch ms of the clock in use.

    `text`: a JSON object with `name` and `properties`. `value_of`: the path of a property -> its number, if it is one.
    """

    event_id: str
    at: int
    arrived_at: int
    text: str
    value_of: Callable[[str], float | None]


class Outcome(NamedTuple):
    """A report of a channel or the tracker. `at`: epoch ms of the clock in use. `soft_bounce`: see `Reached`."""

    delivery_id: str
    outcome: str
    reason: str | None
    at: int
    soft_bounce: str | None = None
