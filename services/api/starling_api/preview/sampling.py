"""Core: users are drawn by lot and asked what they are, and what they would be, under a segment on trial.

Who is drawn: whole slices, in an order by lot. Which slice a user is in depends on two hashes of the user's key alone, so the
users of some slices are a fair sample of all. Of those read, as many are asked as time allows, again in an order by lot.
Strata by slice would win nothing: hashing makes all slices alike.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

from starling_api.ports import PastEvent, PastReader, Snapshot
from starling_api.preview.estimates import Drawn
from starling_common.settings import Clock
from starling_rules.history import reported_ms
from starling_segments import PreviewResult, RequiredHistory, SegmentPreview, decode_state, evaluate, fold_history

READ_SECONDS: Final = 0.8
"""Reading goes on so long, counted from the request; then those read have to be asked."""
ASK_SECONDS: Final = 1.7
"""And asking so long: with the answer itself it makes less than two seconds."""
_ENOUGH: Final = {False: 8_000, True: 4_000}
"""Users read at most. By whether their events have to be folded: that takes a query each."""
EVERYBODY: Final = {False: 5_000, True: 1_500}
"""As few users as that are all asked, however long it takes."""
_MOST_SLICES: Final = 64
_CHUNK: Final = 125
_CUT: Final = "of somebody who did very much, only the newest events were looked at"
_UNDATED: Final = "what became of messages counts as of the user's own last event before it: what stream time was then is not kept"


class Candidate(NamedTuple):
    """A user who was drawn."""

    user_id: str
    partition: int
    state: bytes


@dataclass(frozen=True)
class Questions:
    """What is asked of every user. By partition: `instants` (epoch ms), and `pasts` (None: the states keep all that counts)."""

    workspace: str
    trial: SegmentPreview
    instants: Mapping[int, int]
    pasts: Mapping[int, RequiredHistory | None]
    reader: PastReader
    clock: Clock

    @property
    def folds(self) -> bool:
        """Whether anybody's events have to be read."""
        return any(past is not None for past in self.pasts.values())

    def ask(self, candidates: Sequence[Candidate]) -> Iterator[tuple[str, PreviewResult, Sequence[str]]]:
        """User, answer, and why the answer may be wrong. Raises: DatabaseUnavailable."""
        lacking = [one for one in candidates if self.pasts[one.partition] is not None]
        events = dict(zip((one.user_id for one in lacking), self._read(lacking), strict=True))
        for one in candidates:
            state, now, past = decode_state(one.state), self.instants[one.partition], self.pasts[one.partition]
            memory = None
            limits: list[str] = []
            if past is not None:
                told, cut = events[one.user_id]
                memory = fold_history(past, state, self._in_time(told, now), now), past.fresh
                limits = [_CUT] * cut + [_UNDATED] * self._guesses_at(told, past)
            yield one.user_id, evaluate(self.trial, state, memory, now), limits

    def _read(self, lacking: Sequence[Candidate]) -> Sequence[tuple[Sequence[PastEvent], bool]]:
        if not lacking:
            return ()
        pasts = [past for past in self.pasts.values() if past is not None]
        reaches, earliest = [past.reach_ms for past in pasts], min(self.instants[one.partition] for one in lacking)
        since = _BEGINNING if None in reaches else earliest - max(reach or 0 for reach in reaches)
        inside = any(past.looks_inside for past in pasts)
        return self.reader.pasts(self.workspace, [one.user_id for one in lacking], since, inside=inside)

    def _in_time(self, events: Sequence[PastEvent], now: int) -> Iterator[tuple[PastEvent, int]]:
        """Each with stream time as it was then, as far as the user's own events tell; without what came in after `now`."""
        so_far, wall = 0, self.clock is Clock.WALL
        for event in events:
            if wall or not event.is_outcome:
                so_far = max(so_far, event.received_at_micros // 1000 if wall else event.time_ms)
            then = min(so_far, now)
            dated = event._replace(time_ms=reported_ms(event.received_at_micros, self.clock, then)) if event.is_outcome else event
            if not wall or so_far <= now:
                yield dated, then

    def _guesses_at(self, events: Sequence[PastEvent], past: RequiredHistory) -> bool:
        """Whether an event counts at a time that is not known."""
        return self.clock is Clock.EVENT and any(event.is_outcome and past.plan.touches(event.name) for event in events)


_BEGINNING: Final = -(2**62)
"""Before any instant that an event can have."""


@dataclass
class Surveyed:
    """Who was asked, and what they said. `limits`: why it may be wrong."""

    drawn: Drawn
    answers: dict[str, PreviewResult] = field(default_factory=dict)
    limits: dict[str, None] = field(default_factory=dict)

    def users(self, wanted: Callable[[PreviewResult], bool]) -> list[str]:
        """Those of whom that is true, in an order by lot."""
        return [user for user, found in self.answers.items() if wanted(found)]


@dataclass(frozen=True)
class Surveyor:
    """Draws and asks. `seconds`: a clock; its start is that of the request."""

    snapshot: Snapshot
    questions: Questions
    lots: random.Random
    elapsed: Callable[[], float]

    def survey(self) -> Surveyed:
        """Everybody where they are few, else a fair sample. Raises: DatabaseUnavailable."""
        candidates, share = self._draw()
        self.lots.shuffle(candidates)
        everybody = share == 1 and len(candidates) <= EVERYBODY[self.questions.folds]
        found = Surveyed(Drawn(share, len(candidates), 0))
        began, longest = self.elapsed(), 0.0
        for start in range(0, len(candidates), _CHUNK):
            if start and not everybody and began + longest > ASK_SECONDS:
                break
            self._ask(found, candidates[start : start + _CHUNK])
            ended = self.elapsed()
            began, longest = ended, max(longest, ended - began)
        found.drawn = Drawn(share, len(candidates), len(found.answers))
        return found

    def ask_all(self, users: Sequence[str]) -> Surveyed:
        """These users, whoever of them is known. Raises: DatabaseUnavailable."""
        states = self.snapshot.some(self.questions.workspace, users)
        found = Surveyed(Drawn(1, len(states), len(states)))
        self._ask(found, [Candidate(user, *held) for user, held in states.items()])
        return found

    def _ask(self, found: Surveyed, candidates: Sequence[Candidate]) -> None:
        for user, answer, limits in self.questions.ask(candidates):
            found.answers[user] = answer
            found.limits.update(dict.fromkeys(limits))

    def _draw(self) -> tuple[list[Candidate], float]:
        """Those in the slices that were read, and the share of all slices that these are."""
        slices, folds = self.snapshot.slices(), self.questions.folds
        self.lots.shuffle(slices)
        candidates: list[Candidate] = []
        read, at_once, wanted = 0, 1, len(slices)
        while read < wanted:
            places = slices[read : min(wanted, read + at_once)]
            for place, users in zip(places, self.snapshot.users(places, self.questions.workspace), strict=True):
                candidates += [Candidate(user, place.partition, state) for user, state in users]
            read += len(places)
            each = max(len(candidates) / read, 0.01)
            at_once = max(1, min(_MOST_SLICES, 2 * read, int(_ENOUGH[folds] / each)))
            if each * len(slices) > EVERYBODY[folds]:
                if self.elapsed() > READ_SECONDS:
                    break
                if wanted == len(slices):
                    # Said once, and not "until there are enough": who stops at a large slice thinks that all are large.
                    wanted = min(wanted, max(2, ceil(_ENOUGH[folds] / each)))
        return candidates, read / len(slices) if slices else 1.0


def stopwatch() -> Callable[[], float]:
    """Seconds since now."""
    began = time.monotonic()
    return lambda: time.monotonic() - began
