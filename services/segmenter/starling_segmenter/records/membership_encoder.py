"""Pure core, hot path: encodes the `memberships` of a membership record, the keys of the segments that a user is in."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence

from starling_common.wire import long_bytes, text_bytes
from starling_segments import Change, Membership


class MembershipEncoder:
    """Encodes the segments of one workspace. It sorts their positions in alphabetical order, which is faster than sorting keys.

    Each key is encoded once.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        """`keys`: of all segments that a membership may refer to."""
        ordered = sorted(keys)
        self._position = {key: position for position, key in enumerate(ordered)}
        self._texts = [text_bytes(key) for key in ordered]

    def after_each(self, changes: Sequence[Change], memberships: Mapping[str, Membership]) -> list[bytes]:
        """Return an Avro array of strings for each change: the segments that the user is in after it.

        `memberships` are those after all changes; the earlier arrays are derived backwards. Raises: KeyError for an unknown key.
        """
        position, array = self._position, self._array
        members = sorted([position[key] for key, membership in memberships.items() if membership.member])
        found = [array(members)]
        for change in changes[:0:-1]:
            if change.status == "ENTERED":
                del members[bisect_left(members, position[change.segment_key])]
            else:
                insort(members, position[change.segment_key])
            found.append(array(members))
        found.reverse()
        return found

    def _array(self, members: list[int]) -> bytes:
        if not members:
            return b"\0"
        texts = self._texts
        return b"".join((long_bytes(len(members)), *[texts[position] for position in members], b"\0"))


class MembershipEncoders:
    """The encoder of each workspace; a change of definitions replaces it."""

    def __init__(self) -> None:
        self._encoders: dict[str, tuple[Mapping[str, object], MembershipEncoder]] = {}

    def of(self, workspace: str, definitions: Mapping[str, object]) -> MembershipEncoder:
        """Return the encoder. `definitions`: by segment key, with the archived ones."""
        found = self._encoders.get(workspace)
        if found is None or found[0] is not definitions:
            found = self._encoders[workspace] = (definitions, MembershipEncoder(definitions))
        return found[1]
