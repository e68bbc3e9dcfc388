"""Adapter: how far the broadcaster is with each broadcast, from `broadcasts.progress`. Thread-safe."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starling_common.cassandra.read_models import ARCHIVED
from starling_common.kafka.clients import BrokerUnavailable
from starling_common.kafka.followed_topic import FollowedTopic
from starling_common.kafka.topics import BROADCAST_PROGRESS
from starling_common.wire import Codec, Registry
from starling_messages.broadcast_progress import BroadcastProgress, Written, fold_progress

_ANSWER_SECONDS: Final = 2.0
_NOTHING: Final = Written()

WAITING: Final = "waiting"
WRITING: Final = "writing"
DONE: Final = "done"


class Broadcasts:
    """Follows the broadcaster from `followed.start` on."""

    def __init__(self, brokers: str, registry: Registry) -> None:
        self._registry = registry
        self.followed = FollowedTopic[BroadcastProgress]((brokers, BROADCAST_PROGRESS), self._codec, dict, fold_progress)

    def written(self, workspace: str, keys: Sequence[str]) -> Mapping[str, Written] | None:
        """Return how far broadcasts are written; None if that is not known, because the broker has not answered yet."""
        if not self.followed.is_read():
            try:
                self.followed.refresh(_ANSWER_SECONDS)
            except BrokerUnavailable:
                return None
        progress = self.followed.value()
        return {key: progress.get((workspace, key), _NOTHING) for key in keys}

    def _codec(self) -> Codec:
        return self._registry.codec(BROADCAST_PROGRESS, "BroadcastProgressed")


def shown_broadcast(written: Written, status: str) -> dict[str, Any]:
    """Return the field `broadcast` of a campaign with that status. Nothing more is written of an archived one."""
    begun = WAITING if written == _NOTHING else WRITING
    state = DONE if written.done or status == ARCHIVED else begun
    return {"state": state, "written": written.members}
