"""Pure core: a worker's identity in its group, and whether its tasks continue over a rebalance."""

from typing import NamedTuple


class Membership(NamedTuple):
    """This worker's identity in its group; it fences the worker's commits."""

    group: str
    generation: int
    member_id: str
    instance_id: str | None


def continues(before: Membership | None, after: Membership) -> bool:
    """Return whether a partition of both memberships belonged to no other worker between them.

    Each generation is one more than the last. A worker that missed one does not know to which worker it assigned the partition, and
    a worker that the group removed has another id. A worker whose request was repeated may have the same generation again.
    """
    if before is None or before.generation < 0:
        return False
    return before.member_id == after.member_id and after.generation - before.generation in (0, 1)
