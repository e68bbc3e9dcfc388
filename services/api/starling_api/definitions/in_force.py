"""Core: the segments in force, parsed as by the segmenter, and the aggregates that each partition's states have for them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starling_api.definitions.definition import Definition, used_lists, used_segments, used_traits
from starling_api.ports import DefinitionReader, InForce, PartitionProgress, ReportedProgress
from starling_common.cassandra.read_models import ARCHIVED, PAUSED, SEGMENT
from starling_common.values import parts_of, plan_name
from starling_segments import LEAVES, DefinitionRefused, InvalidPlan, Known, Segment, parse_segment, stored_leaves


@dataclass(frozen=True)
class Running:
    """The segments of one workspace. `paused`: keys of the segments whose members stay unchanged."""

    workspace: str
    segments: Mapping[str, Segment]
    paused: frozenset[str]
    _leaves: dict[frozenset[str], frozenset[str]] = field(default_factory=dict, repr=False, compare=False)

    def maintained(self, progress: PartitionProgress, reported: ReportedProgress | None, name: bytes) -> frozenset[str]:
        """Return the leaf nodes whose aggregates every state of a partition has (`stored_leaves`).

        `name`: fingerprint of the segments in force in all workspaces. A partition with the same fingerprint has the leaf
        nodes of all segments. Else the segments count whose newest version the partition reported before the snapshot,
        if the snapshot is whole and its states have this program's format of leaf nodes.
        """
        if progress.plan == name:
            return self._leaves_of(frozenset(self.segments))
        if not progress.whole or reported is None or parts_of(progress.plan)[1] != parts_of(name)[1]:
            return frozenset()
        applied = reported.definitions
        current = (key for key, one in self.segments.items() if applied.get(f"{self.workspace}/{key}") == one.version)
        return self._leaves_of(frozenset(current))

    def _leaves_of(self, keys: frozenset[str]) -> frozenset[str]:
        # Cached: compiling hundreds of segments takes longer than evaluating hundreds of users.
        found = self._leaves.get(keys)
        if found is None:
            found = self._leaves[keys] = _kept([self.segments[key] for key in sorted(keys)])
        return found


@dataclass
class Definitions:
    """Reads the segments in force from the read model. Thread-safe; concurrent calls may parse the same segments twice."""

    reader: DefinitionReader
    _cache: dict[str, tuple[Any, Running]] = field(default_factory=dict)

    def running(self, workspace: str) -> Running:
        """Return one workspace's segments. Documents that this version cannot parse are left out, as by the segmenter."""
        found = [one for one in self.reader.definitions(workspace, SEGMENT) if one.status != ARCHIVED]
        signature = [(one.key, one.version, one.status, one.recorded_at_micros) for one in found]
        known = self._cache.get(workspace)
        if known is None or known[0] != signature:
            paused = frozenset(one.key for one in found if one.status == PAUSED)
            known = self._cache[workspace] = signature, Running(workspace, _parsed(found), paused)
        return known[1]

    def name(self) -> bytes:
        """Return the fingerprint of the segments in force in all workspaces."""
        return plan_name(_in_force(self.reader.everywhere(SEGMENT)), LEAVES)


def _in_force(known: Iterable[InForce]) -> Iterable[tuple[str, int, bool]]:
    return ((f"{one.workspace}/{one.key}", one.version, one.status == PAUSED) for one in known if one.status != ARCHIVED)


def _kept(segments: Sequence[Segment]) -> frozenset[str]:
    try:
        return stored_leaves(segments)
    except InvalidPlan:
        return frozenset()  # a segment uses one that is not in force here yet, so no aggregate is guaranteed


def _parsed(definitions: Sequence[Definition]) -> dict[str, Segment]:
    uses = {one.key: used_segments(one.document) for one in definitions}
    parsed: dict[str, Segment] = {}
    for one in definitions:
        others = {key: used for key, used in uses.items() if key != one.key}
        # The document was accepted before, so its references count as known.
        known = Known(others, used_traits(one.document), lists=used_lists(one.document), accounts=True)
        try:
            parsed[one.key] = replace(parse_segment(one.document, known), version=one.version)
        except DefinitionRefused:
            continue  # the segmenter leaves it out too
    return parsed
