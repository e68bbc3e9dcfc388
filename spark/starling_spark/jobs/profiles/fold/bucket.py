"""Pure core: the state of a bucket between micro-batches, and what the fold of one yields."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from starling_common.outcome import Refused
from starling_spark.jobs.profiles.definitions.in_force import Trait
from starling_spark.jobs.profiles.fold.visits import Visits
from starling_spark.jobs.profiles.fold.wheel import Slot

UNCOUNTED: Final = -1


class Clock(msgspec.Struct, array_like=True):
    """The state of a bucket. `received_at` (microseconds) of the last published value; it strictly increases.

    `is_new`: the store has no user yet, so no lookup is needed, and earlier queries may have published outdated values. Most of a
    history is read in this state. `unused`: of earlier releases. `sequence`: the number of micro-batches that published a value. It
    orders the values of each user and trait, also after a state was deleted. `step`: the last step that the bucket has completed;
    `waiting`: the number of lists of users with matches of traits that are not in force; `visits`: what is left of a step.
    `has_published`: earlier queries may have published outdated values of users whom the first step has not visited. `users`: how
    many have a state, `UNCOUNTED` in the state of an earlier release; `waiting_users`: how many are in the lists of `waiting`.
    `copy`: the version of the copy of the users' states on the executor, "" without one.
    """

    now_ms: int = 0
    moved_by: str = ""
    received_at: int = 0
    slots: set[Slot] = msgspec.field(default_factory=set)
    is_new: bool = True
    unused: None = None
    sequence: int = 0
    step: int = 0
    waiting: int = 0
    visits: Visits | None = None
    has_published: bool = False
    users: int = UNCOUNTED
    waiting_users: int = 0
    copy: str = ""


class Computed(NamedTuple):
    """A value to publish, as JSON text; `as_of` is the stream time, `received_at` the wall clock in microseconds.

    `sequence`: greater than that of each former value of this user and trait. A repeated micro-batch has the same.
    """

    user: str
    trait: Trait
    value: str | None
    as_of: int
    received_at: int
    correlation_id: str
    sequence: int


class Store(Protocol):
    """The state of a bucket, stored between micro-batches."""

    def clock(self) -> Clock:
        """Return the bucket's clock; a new one at first."""

    def put_clock(self, clock: Clock) -> None:
        """Store the clock."""

    def read_users(self, users: Sequence[str]) -> Sequence[bytes | None]:
        """Return the users' states; None when there is none. One call for many users is much faster than many calls."""

    def put_users(self, states: Mapping[str, bytes | None]) -> None:
        """Store users' states; None deletes one."""

    def slot(self, slot: Slot) -> list[str]:
        """Return the users of a slot."""

    def put_slot(self, slot: Slot, users: list[str]) -> None:
        """Store the users of a slot; an empty list deletes the slot."""

    def take_published(self) -> Iterable[str]:
        """Return and delete the users with values that earlier queries published from events which are deleted now."""

    def names(self) -> Iterable[str]:
        """Return all users with a state."""

    def put_list(self, number: int, users: list[str]) -> None:
        """Store a list of users."""

    def take_list(self, number: int) -> list[str]:
        """Return and delete a list of users."""


class Unfoldable(NamedTuple):
    """An event that makes the fold raise, or a user whose values or state make the job raise. `user`: `workspace/user`."""

    user: str
    time_ms: int
    correlation_id: str
    why: Refused
