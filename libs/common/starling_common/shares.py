"""Pure core: one bounded resource, divided among workspaces and the targets within them, so that none can exhaust it."""

from collections import defaultdict


class Shares:
    """Counts what each workspace and target uses of `capacity`.

    A workspace may use as much as remains free, and a target as much as remains of half the capacity (dynamic thresholds, Choudhury
    and Hahne 1998). One workspace alone therefore reaches a half and one target alone a quarter. Every further one leaves as much
    for the next one as it takes itself.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._used = 0
        self._workspaces: dict[str, int] = defaultdict(int)
        self._targets: dict[tuple[str, str], int] = defaultdict(int)

    @property
    def free(self) -> int:
        """What no target uses."""
        return self._capacity - self._used

    def may_take(self, workspace: str, target: str, amount: int = 1) -> bool:
        """Return whether the target may use so much more. An amount above the capacity is allowed while nothing is used."""
        if self._used == 0:
            return True
        used = self._workspaces.get(workspace, 0)
        if amount > self.free or (used > 0 and used + amount > self.free):
            return False
        of_target = self._targets.get((workspace, target), 0)
        return of_target == 0 or of_target + amount <= self._capacity // 2 - used

    def take(self, workspace: str, target: str, amount: int = 1) -> None:
        """Count the amount as used."""
        self._used += amount
        self._workspaces[workspace] += amount
        self._targets[workspace, target] += amount

    def give_back(self, workspace: str, target: str, amount: int = 1) -> None:
        """Count the amount as free."""
        self._used -= amount
        self._workspaces[workspace] -= amount
        self._targets[workspace, target] -= amount
        if not self._workspaces[workspace]:
            del self._workspaces[workspace]
        if not self._targets[workspace, target]:
            del self._targets[workspace, target]
