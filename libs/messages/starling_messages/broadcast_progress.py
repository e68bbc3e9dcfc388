"""Pure core: how far each broadcast is written, as a fold over `broadcasts.progress`."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from starling_common.outcome import Done, Outcome, Skipped
from starling_common.wire import Record

WRITING: Final = "WRITING"
DONE: Final = "DONE"


class Written(NamedTuple):
    """How far a broadcast is written. `members`: the written ones. `bucket`, `user_id`: the last member that was read."""

    members: int = 0
    bucket: int = 0
    user_id: str = ""
    done: bool = False

    @property
    def state(self) -> str:
        """Return the value of the field `state` of `BroadcastProgressed`: `WRITING` or `DONE`."""
        return DONE if self.done else WRITING


BroadcastProgress = Mapping[tuple[str, str], Written]
"""(workspace, campaign) -> how far its broadcast is written; absent before its first member."""


def fold_progress(progress: BroadcastProgress, _key: bytes, record: Record | None) -> Outcome[BroadcastProgress]:
    """Return the progress after one `BroadcastProgressed`."""
    if record is None:
        return Skipped("a tombstone")
    written = Written(record["written"], record["bucket"], record["user_id"], record["state"] == DONE)
    return Done({**progress, (record["workspace"], record["campaign"]): written})
