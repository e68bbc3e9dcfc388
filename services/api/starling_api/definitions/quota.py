"""Pure core: the quota of a workspace: number of segments, and the summed worst-case work of one event."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from starling_api.definitions.definition import Definition, used_lists, used_segments, used_traits
from starling_common.cassandra.read_models import ARCHIVED, PAUSED
from starling_segments import CostLimits, DefinitionRefused, FieldError, Known, cost_of_segment, parse_segment

_MOST_CACHED: Final = 20_000


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a workspace: segments that are not archived, and the points of work of those that are not paused."""

    segments: int
    work: int


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of one definition, and of all segments of a workspace. Stored definitions are never refused."""

    definition: CostLimits
    segments: int
    work: int
    _known: dict[bytes, int] = field(default_factory=dict, compare=False, repr=False)

    def check(self, stored: Iterable[Definition], changed: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise DefinitionRefused if the segments `changed` (key -> document, to be evaluated) exceed what a workspace may have.

        A change that does not add to a limit that is exceeded already is accepted.
        """
        works = {one.key: 0 if one.status == PAUSED else self._work_of(one.document) for one in stored if one.status != ARCHIVED}
        before = _usage(works)
        after = _usage({**works, **{key: self._work_of(document) for key, document in changed.items()}})
        errors = []
        if after.segments > self.segments and after.segments > before.segments:
            message = (
                f"the workspace has {before.segments:,} of {self.segments:,} segments and would have {after.segments:,}; "
                "archive segments that are no longer needed"
            )
            errors.append(FieldError("", "too_many_segments", message, f"at most {self.segments:,} segments in a workspace"))
        if after.work > self.work and after.work > before.work:
            message = (
                f"the segments of the workspace cost {before.work:,} of {self.work:,} points of work an event and would cost "
                f"{after.work:,}; archive or pause segments, or make them cheaper"
            )
            errors.append(FieldError("/where", "too_costly", message, f"at most {self.work:,} points in a workspace"))
        if errors:
            raise DefinitionRefused(tuple(errors))

    def _work_of(self, document: Mapping[str, Any]) -> int:
        text = json.dumps([document.get("where"), document.get("timezone")], separators=(",", ":"))
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        known = self._known.get(digest)
        if known is None:
            if len(self._known) >= _MOST_CACHED:
                self._known.clear()
            known = self._known[digest] = _parsed_work(document)
        return known


def _usage(works: Mapping[str, int]) -> Usage:
    return Usage(len(works), sum(works.values()))


def _parsed_work(document: Mapping[str, Any]) -> int:
    # The document was accepted before, so its references count as known.
    used = {key: frozenset[str]() for key in used_segments(document)}
    known = Known(used, used_traits(document), lists=used_lists(document), accounts=True)
    try:
        return cost_of_segment(parse_segment(document, known)).work
    except DefinitionRefused:
        return 0  # the segmenter leaves it out too
