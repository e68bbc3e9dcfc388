"""A shop whose users the previews count."""

from collections.abc import Mapping
from typing import Any

from starling_api.ports import PartitionProgress, PastEvent
from starling_common.records.message_events import event_name
from starling_common.values import split_key
from starling_segments import encode_state
from tests.unit.api.calls import call
from tests.unit.api.memory import World
from tests.unit.segmenter.segmenting import MemorySegmenter

DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS
BUYERS = {"event": "Buy", "within": "7d"}


class Site:
    """A segmenter and an API that see the same: `show` is what the tier and the projector do."""

    def __init__(self, **segments: Mapping[str, Any]) -> None:
        self.world = World()
        self.segmenter = MemorySegmenter(workspace="acme")
        for key, where in segments.items():
            self.define(key, where)

    def define(self, key: str, where: object) -> None:
        made = call(self.world, "POST", "/v1/segments", json={"key": key, "name": key, "where": where})
        assert made.status_code == 201, made.text
        self.segmenter.define(key, where)

    def track(self, user: str, name: str, at_ms: int, **properties: Any) -> None:
        self.segmenter.track(user, name, at_ms, properties)
        past = self.world.pasts.events.setdefault(user, [])
        past.append(PastEvent(name, at_ms, properties, {}, NOW_MS * 1000 + len(past)))

    def report(self, user: str, outcome: str, wall_ms: int) -> None:
        self.segmenter.report(user, outcome, wall_ms)
        past = self.world.pasts.events.setdefault(user, [])
        past.append(PastEvent(event_name(outcome), wall_ms, {}, {}, wall_ms * 1000, is_outcome=True))

    def show(self, at_ms: int = NOW_MS) -> None:
        self.segmenter.task.advance(at_ms)
        states = {str(split_key(key)[1]): encode_state(state) for key, state in self.segmenter.user_states().items()}
        self.world.states.users_of["acme"] = states
        task = self.segmenter.task
        self.world.states.progress = PartitionProgress(task.stream_time_ms, task.plan, whole=True)

    def ask(self, path: str, where: object, status: int = 200, **more: Any) -> Any:
        answer = call(self.world, "POST", path, json={"where": where, **more}, role="see")
        assert answer.status_code == status, answer.text
        return answer.json()

    def preview(self, where: object, **more: Any) -> Any:
        return self.ask("/v1/segments/preview", where, **more)

    def explain(self, user: str, key: str, status: int = 200) -> Any:
        answer = call(self.world, "GET", f"/v1/users/{user}/explain/{key}", role="see")
        assert answer.status_code == status, answer.text
        return answer.json()


def shop(users: int = 40, **segments: Mapping[str, Any]) -> Site:
    """Every user bought once, every second one twice, one a day back after the other."""
    site = Site(**segments)
    for number in range(users):
        for _ in range(1 + number % 2):
            site.track(f"u{number}", "Buy", NOW_MS - number * DAY_MS, price=number)
    site.show()
    return site
