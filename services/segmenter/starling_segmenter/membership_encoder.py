"""Pure core, hot path: the segments that a user is in, as the array of keys that announcements carry."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence

from starling_common.wire import long_bytes, text_bytes
from starling_segments import Change, Membership


class Roll:
    """All segments of a workspace in alphabetical order, each known by its place: numbers sort faster than keys.

    Every array is made of keys that were encoded once.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        """`keys`: of every segment that a membership may name."""
        ordered = sorted(keys)
        self._place = {key: place for place, key in enumerate(ordered)}
        self._texts = [text_bytes(key) for key in ordered]

    def after_each(self, changes: Sequence[Change], memberships: Mapping[str, Membership]) -> list[bytes]:
        """An Avro array of strings for each change: the segments that the user is in after it.

        `memberships` are those after all changes; what was before is found backwards. Raises: KeyError for an unknown key.
        """
        place, array = self._place, self._array
        members = sorted([place[key] for key, membership in memberships.items() if membership.member])
        found = [array(members)]
        for change in changes[:0:-1]:
            if change.status == "ENTERED":
                del members[bisect_left(members, place[change.segment_key])]
            else:
                insort(members, place[change.segment_key])
            found.append(array(members))
        found.reverse()
        return found

    def _array(self, members: list[int]) -> bytes:
        if not members:
            return b"\0"
        texts = self._texts
        return b"".join((long_bytes(len(members)), *[texts[place] for place in members], b"\0"))


class Rolls:
    """The roll of each workspace, made anew when its definitions are others."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Mapping[str, object], Roll]] = {}

    def of(self, workspace: str, definitions: Mapping[str, object]) -> Roll:
        """`definitions`: by segment key, the archived ones too."""
        made = self._made.get(workspace)
        if made is None or made[0] is not definitions:
            made = self._made[workspace] = (definitions, Roll(definitions))
        return made[1]
