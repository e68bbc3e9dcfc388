"""Pure core: the search for the record or timer that makes a task's unit fail, by units of half the size after each failure."""


class Bisection:
    """A search begins at the second failure at one position. Its units contain records or timers, not both.

    A failed unit is discarded whole, so the next one starts from the same state with the first half of the records. A committed
    unit doubles the limit, until it exceeds the size of the unit before the search.

    The position is the number of units that the task has committed. A failure at one position that is not repeated there is
    forgotten.
    """

    def __init__(self, failed_at: int | None = None) -> None:
        """`failed_at`: the position of the last failure before a restart."""
        self.failed_at = failed_at
        self.searching = False
        self.records = 0
        """The largest number of records in a unit of the search."""
        self.timers = 0
        """The largest number of timers, or of keys of a switch."""
        self._most_records = self._most_timers = 0

    def failed(self, position: int, records: int, timers: int) -> bool:
        """Note the failure of a unit with so many records and timers; return whether it had one and that one is the cause."""
        if not self.searching:
            if position == self.failed_at:
                self.searching = True
                self._most_records, self._most_timers = records, timers
                self.records, self.timers = max(1, records // 2), max(1, timers // 2)
            self.failed_at = position
            return False
        if records:
            self.records = max(1, min(self.records, records) // 2)
            return records == 1 and not timers
        self.timers = max(1, min(self.timers, timers) // 2)
        return timers == 1

    def committed(self, records: int) -> None:
        """Note the commit of a unit of the search."""
        if not self.searching:
            return
        if records:
            self.records *= 2
            self.timers = self._most_timers + 1  # a unit of the search has records only when no timer is due
        else:
            self.timers *= 2
        self.searching = self.records <= self._most_records or self.timers <= self._most_timers
