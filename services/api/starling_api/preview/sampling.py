"""Core: evaluates a random sample of users for a preview, under the current segments and under the previewed one.

Whole slices are read in random order. Two hashes of the user's key select the slice, so the users of some slices are a random
sample of all users. The users that were read are evaluated in random order until the time limit. Stratification by slice would
not narrow the interval, because hashing makes the slices alike.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

from starling_api.ports import PastEvent, PastReader, Snapshot
from starling_api.preview.estimates import SampleSize
from starling_common.settings import Clock
from starling_rules.history import reported_ms
from starling_segments import PreviewResult, RequiredHistory, SegmentPreview, decode_state, evaluate, fold_history

READ_SECONDS: Final = 0.8
"""Time limit of reading slices, from the start of the request."""
EVALUATE_SECONDS: Final = 1.7
"""Time limit of evaluating users, from the start of the request. It keeps the response below two seconds."""
_READ_LIMIT: Final = {False: 8_000, True: 4_000}
"""Maximum users to read, by whether their events have to be evaluated, which needs one query for each user."""
ALL_USERS_LIMIT: Final = {False: 5_000, True: 1_500}
"""Up to this number all users are evaluated without a time limit."""
_MOST_SLICES: Final = 64
_CHUNK: Final = 125
_CUT: Final = "for users with more than 1,000 events in 30 days, only the newest 1,000 were evaluated"
_UNDATED: Final = "delivery outcomes are dated by the user's last event before them, because their stream time is not stored"


class Candidate(NamedTuple):
    """A sampled user with the encoded state."""

    user_id: str
    partition: int
    state: bytes


@dataclass(frozen=True)
class CandidateEvaluator:
    """Evaluates users. By partition: `instants` (epoch ms), and `pasts` (None: the states have all necessary aggregates)."""

    workspace: str
    preview: SegmentPreview
    instants: Mapping[int, int]
    pasts: Mapping[int, RequiredHistory | None]
    reader: PastReader
    clock: Clock

    @property
    def folds(self) -> bool:
        """Return whether events have to be read."""
        return any(past is not None for past in self.pasts.values())

    def evaluate(self, candidates: Sequence[Candidate]) -> Iterator[tuple[str, PreviewResult, Sequence[str]]]:
        """Yield user, result, and limitations of the result. Raises: DatabaseUnavailable."""
        lacking = [one for one in candidates if self.pasts[one.partition] is not None]
        events = dict(zip((one.user_id for one in lacking), self._read(lacking), strict=True))
        for one in candidates:
            state, now, past = decode_state(one.state), self.instants[one.partition], self.pasts[one.partition]
            memory = None
            limits: list[str] = []
            if past is not None:
                history, cut = events[one.user_id]
                memory = fold_history(past, state, self._in_time(history, now), now), past.fresh
                limits = [_CUT] * cut + [_UNDATED] * self._has_undated(history, past)
            yield one.user_id, evaluate(self.preview, state, memory, now), limits

    def _read(self, lacking: Sequence[Candidate]) -> Sequence[tuple[Sequence[PastEvent], bool]]:
        if not lacking:
            return ()
        pasts = [past for past in self.pasts.values() if past is not None]
        reaches, earliest = [past.reach_ms for past in pasts], min(self.instants[one.partition] for one in lacking)
        since = _BEGINNING if None in reaches else earliest - max(reach or 0 for reach in reaches)
        inside = any(past.looks_inside for past in pasts)
        return self.reader.pasts(self.workspace, [one.user_id for one in lacking], since, inside=inside)

    def _in_time(self, events: Sequence[PastEvent], now: int) -> Iterator[tuple[PastEvent, int]]:
        """Yield the events received until `now`, each with its stream time as derived from the user's own events."""
        latest, wall = 0, self.clock is Clock.WALL
        for event in events:
            if wall or not event.is_outcome:
                latest = max(latest, event.received_at_micros // 1000 if wall else event.time_ms)
            then = min(latest, now)
            dated = event._replace(time_ms=reported_ms(event.received_at_micros, self.clock, then)) if event.is_outcome else event
            if not wall or latest <= now:
                yield dated, then

    def _has_undated(self, events: Sequence[PastEvent], past: RequiredHistory) -> bool:
        """Return whether an evaluated outcome has no stored stream time."""
        return self.clock is Clock.EVENT and any(event.is_outcome and past.plan.touches(event.name) for event in events)


_BEGINNING: Final = -(2**62)
"""An instant earlier than any event."""


@dataclass
class Sample:
    """The results of the evaluated users. `limits`: limitations of the results, as an ordered set."""

    size: SampleSize
    answers: dict[str, PreviewResult] = field(default_factory=dict)
    limits: dict[str, None] = field(default_factory=dict)

    def users(self, wanted: Callable[[PreviewResult], bool]) -> list[str]:
        """Return the users whose result satisfies `wanted`, in random order."""
        return [user for user, found in self.answers.items() if wanted(found)]


@dataclass(frozen=True)
class Sampler:
    """Reads and evaluates users. `elapsed`: returns the seconds since the start of the request."""

    snapshot: Snapshot
    evaluator: CandidateEvaluator
    rng: random.Random
    elapsed: Callable[[], float]

    def sample(self) -> Sample:
        """Evaluate all users if they are few, else a random sample. Raises: DatabaseUnavailable."""
        candidates, share = self._read_slices()
        self.rng.shuffle(candidates)
        is_complete = share == 1 and len(candidates) <= ALL_USERS_LIMIT[self.evaluator.folds]
        found = Sample(SampleSize(share, len(candidates), 0))
        began, longest = self.elapsed(), 0.0
        for start in range(0, len(candidates), _CHUNK):
            if start and not is_complete and began + longest > EVALUATE_SECONDS:
                break
            self._evaluate(found, candidates[start : start + _CHUNK])
            ended = self.elapsed()
            began, longest = ended, max(longest, ended - began)
        found.size = SampleSize(share, len(candidates), len(found.answers))
        return found

    def evaluate_all(self, users: Sequence[str]) -> Sample:
        """Evaluate those of the users that have a state. Raises: DatabaseUnavailable."""
        states = self.snapshot.some(self.evaluator.workspace, users)
        found = Sample(SampleSize(1, len(states), len(states)))
        self._evaluate(found, [Candidate(user, *located) for user, located in states.items()])
        return found

    def _evaluate(self, found: Sample, candidates: Sequence[Candidate]) -> None:
        for user, answer, limits in self.evaluator.evaluate(candidates):
            found.answers[user] = answer
            found.limits.update(dict.fromkeys(limits))

    def _read_slices(self) -> tuple[list[Candidate], float]:
        """Return the users of the slices that were read, and the share of the slices that was read."""
        slices, folds = self.snapshot.slices(), self.evaluator.folds
        self.rng.shuffle(slices)
        candidates: list[Candidate] = []
        read, at_once, wanted = 0, 1, len(slices)
        while read < wanted:
            chunk = slices[read : min(wanted, read + at_once)]
            for one, users in zip(chunk, self.snapshot.users(chunk, self.evaluator.workspace), strict=True):
                candidates += [Candidate(user, one.partition, state) for user, state in users]
            read += len(chunk)
            each = max(len(candidates) / read, 0.01)
            at_once = max(1, min(_MOST_SLICES, 2 * read, int(_READ_LIMIT[folds] / each)))
            if each * len(slices) > ALL_USERS_LIMIT[folds]:
                if self.elapsed() > READ_SECONDS:
                    break
                if wanted == len(slices):
                    # Fixed once: a limit on the users read would bias the sample, because it stops at large slices more often.
                    wanted = min(wanted, max(2, ceil(_READ_LIMIT[folds] / each)))
        return candidates, read / len(slices) if slices else 1.0


def stopwatch() -> Callable[[], float]:
    """Return a function that returns the seconds since this call."""
    began = time.monotonic()
    return lambda: time.monotonic() - began
