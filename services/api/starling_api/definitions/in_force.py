"""Core: the segments in force, read as the segmenter reads them, and what each partition's states keep of the past for them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starling_api.definitions.definition import Definition, used_lists, used_segments, used_traits
from starling_api.ports import DefinitionReader, InForce, Reported, Standing
from starling_common.read_models import ARCHIVED, PAUSED, SEGMENT
from starling_common.values import parts_of, plan_name
from starling_segments import LEAVES, DefinitionRefused, InvalidPlan, Known, Segment, parse_segment, stored_leaves


@dataclass(frozen=True)
class Running:
    """The segments of one workspace. `paused`: those whose truth stands still."""

    workspace: str
    segments: Mapping[str, Segment]
    paused: frozenset[str]
    _leaves: dict[frozenset[str], frozenset[str]] = field(default_factory=dict, repr=False, compare=False)

    def kept(self, standing: Standing, reported: Reported | None, name: bytes) -> frozenset[str]:
        """What all states of a partition keep (`stored_leaves`). `name`: of all segments in force, in all workspaces.

        Either the partition goes by just these definitions; or it has reported, before its states were seen whole, that
        it goes by a version that is still the newest, and its states have the leaves that this program knows.
        """
        if standing.plan == name:
            return self._leaves_of(frozenset(self.segments))
        if not standing.whole or reported is None or parts_of(standing.plan)[1] != parts_of(name)[1]:
            return frozenset()
        told = reported.definitions
        current = (key for key, one in self.segments.items() if told.get(f"{self.workspace}/{key}") == one.version)
        return self._leaves_of(frozenset(current))

    def _leaves_of(self, keys: frozenset[str]) -> frozenset[str]:
        # Compiling hundreds of segments takes longer than asking hundreds of users.
        found = self._leaves.get(keys)
        if found is None:
            found = self._leaves[keys] = _kept([self.segments[key] for key in sorted(keys)])
        return found


@dataclass
class Definitions:
    """Asks the read model for what is in force. Safe for use by several threads: at worst something is read twice."""

    reader: DefinitionReader
    _at_hand: dict[str, tuple[Any, Running]] = field(default_factory=dict)

    def running(self, workspace: str) -> Running:
        """One workspace's segments; those that this version of the program cannot read are left out, as by the segmenter."""
        found = [one for one in self.reader.definitions(workspace, SEGMENT) if one.status != ARCHIVED]
        signature = [(one.key, one.version, one.status, one.recorded_at_micros) for one in found]
        known = self._at_hand.get(workspace)
        if known is None or known[0] != signature:
            paused = frozenset(one.key for one in found if one.status == PAUSED)
            known = self._at_hand[workspace] = signature, Running(workspace, _parsed(found), paused)
        return known[1]

    def name(self) -> bytes:
        """The name of all that is in force, everywhere."""
        return plan_name(_in_force(self.reader.everywhere(SEGMENT)), LEAVES)


def _in_force(known: Iterable[InForce]) -> Iterable[tuple[str, int, bool]]:
    return ((f"{one.workspace}/{one.key}", one.version, one.status == PAUSED) for one in known if one.status != ARCHIVED)


def _kept(segments: Sequence[Segment]) -> frozenset[str]:
    try:
        return stored_leaves(segments)
    except InvalidPlan:
        return frozenset()  # a segment's base has not been taken over where it has: nothing is known to be kept


def _parsed(definitions: Sequence[Definition]) -> dict[str, Segment]:
    uses = {one.key: used_segments(one.document) for one in definitions}
    parsed: dict[str, Segment] = {}
    for one in definitions:
        others = {key: used for key, used in uses.items() if key != one.key}
        # It was accepted once, so what it mentions is taken as known.
        known = Known(others, used_traits(one.document), lists=used_lists(one.document), accounts=True)
        try:
            parsed[one.key] = replace(parse_segment(one.document, known), version=one.version)
        except DefinitionRefused:
            continue  # the segmenter leaves it out as well
    return parsed
