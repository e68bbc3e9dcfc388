"""A `Backing` in memory: the fake that stands the same contract as Cassandra. It can be away, or go away after some writes."""

import time
from collections.abc import Iterator, Sequence

from starling_stream.model.backing_store import BackingAway, Facts, Place, Standing, StateWrite, bucket_of


class MemoryBacking:
    def __init__(self, buckets: int = 4) -> None:
        self.buckets = buckets
        self.away = False
        self.writes_left: int | None = None
        self.write_seconds = 0.0
        self.due_seconds = 0.0
        self.reads = 0
        self._rows: dict[tuple[Place, bytes], tuple[int, bytes]] = {}
        self._dues: dict[tuple[Place, int, bytes], tuple[int, bool]] = {}
        self._floors: dict[Place, tuple[int, Standing]] = {}
        self._facts: dict[str, Facts] = {}

    def standing(self, log: str, partition: int) -> Standing | None:
        self._answer()
        own = [place for place in self._floors if place[:2] == (log, partition)]
        return self._floors[max(own)][1] if own else None

    def begin(self, place: Place) -> None:
        self._answer()
        self._floors.setdefault(place, (-1, Standing(place.incarnation, None, b"", 0)))

    def write(self, place: Place, writes: Sequence[StateWrite]) -> None:
        time.sleep(self.write_seconds)
        for write in writes:
            self._answer()
            if self.writes_left is not None:
                self.writes_left -= 1
                if self.writes_left < 0:
                    raise BackingAway("went away")
            known = self._rows.get((place, write.key), (-1, b""))
            self._rows[place, write.key] = max(known, (write.at, write.row))
            if write.slot_before != write.slot:
                self._index(place, write)

    def move_floor(self, place: Place, standing: Standing) -> None:
        self._answer()
        at = standing.floor or 0
        if at >= self._floors.get(place, (-1, standing))[0]:
            self._floors[place] = (at, standing)

    def rows(self, place: Place, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        self._answer()
        self.reads += 1
        return {key: self._rows[place, key][1] for key in keys if (place, key) in self._rows}

    def scan(self, place: Place, bucket: int) -> Iterator[Sequence[tuple[bytes, bytes]]]:
        self._answer()
        yield [(key, row) for (where, key), (_, row) in self._rows.items() if where == place and self._in(key, bucket)]

    def due(self, place: Place, bucket: int, slots: tuple[int, int]) -> Iterator[Sequence[bytes]]:
        self._answer()
        time.sleep(self.due_seconds)
        first, last = slots
        yield [
            key
            for (where, slot, key), (_, there) in self._dues.items()
            if there and where == place and first <= slot <= last and self._in(key, bucket)
        ]

    def freeze(self, facts: Facts) -> Facts:
        self._answer()
        return self._facts.setdefault(facts.stage, facts)

    def close(self) -> None:
        pass

    def _in(self, key: bytes, bucket: int) -> bool:
        return bucket_of(key, self.buckets) == bucket

    def _index(self, place: Place, write: StateWrite) -> None:
        for slot, there in ((write.slot, True), (write.slot_before, False)):
            if slot is not None:
                known = self._dues.get((place, slot, write.key), (-1, False))
                # At the same instant a deletion wins, as it does in Cassandra.
                if write.at > known[0] or (write.at == known[0] and not there):
                    self._dues[place, slot, write.key] = (write.at, there)

    def _answer(self) -> None:
        if self.away:
            raise BackingAway("away")
