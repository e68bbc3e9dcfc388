"""Pure core: the targets of feeds in force, as a fold over `delivery.definitions`."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from starling_campaigns import parse_target, secrets_of_target
from starling_common.cassandra.read_models import ARCHIVED, DISABLED, TARGET
from starling_common.outcome import Done, Outcome, Refused
from starling_common.records.definitions import DISABLED_FIELDS, status_after
from starling_common.security.sealing import Sealer, opened
from starling_common.wire import Record
from starling_segments import DefinitionRefused

TargetPlace: TypeAlias = tuple[str, str]
"""Workspace and key of a target."""


@dataclass(frozen=True, slots=True)
class FeedTarget:
    """One target of a feed. `settings`: the fields of its channel, with plain secrets.

    `recorded_at`: the time of its newest definition, which identifies it, in microseconds. `since_ms`: since when it gets changes:
    its creation, or the end of its last pause, epoch ms. `document`: as stored, with encrypted secrets. `problem`: why nothing can
    be sent.
    """

    workspace: str
    key: str
    channel: str
    version: int
    recorded_at: int
    since_ms: int
    settings: Mapping[str, Any]
    document: Mapping[str, Any]
    disabled: bool = False
    problem: str | None = None

    @property
    def place(self) -> TargetPlace:
        """The workspace and the key."""
        return self.workspace, self.key

    def wants(self, change: Mapping[str, Any]) -> bool:
        """Return whether the target gets a membership change."""
        return change["workspace"] == self.workspace and change["segment_key"] in self.settings["segments"]

    def __repr__(self) -> str:
        return f"FeedTarget({self.workspace}/{self.key}, {self.channel})"


@dataclass
class FeedTargets:
    """The targets of some channels by workspace and key. One thread writes; others read without a lock."""

    channels: Collection[str]
    sealer: Sealer = field(default_factory=Sealer)
    _known: dict[TargetPlace, FeedTarget] = field(default_factory=dict)

    def enabled(self) -> list[FeedTarget]:
        """Return the targets that get changes, sorted by workspace and key."""
        return [target for _, target in sorted(self._known.items()) if not target.disabled]

    def problems(self) -> list[str]:
        """Return the reasons why nothing can be sent to targets."""
        return [target.problem for target in self.enabled() if target.problem is not None]

    def apply(self, record: Record) -> None:
        """Apply one DefinitionChanged record. Raises: DefinitionRefused, ValueError for a document that is no valid target."""
        place, status = (record["workspace"], record["key"]), status_after(record["action"])
        if record["kind"] != TARGET:
            return
        document = json.loads(record["document"])
        if status == ARCHIVED or document.get("channel") not in self.channels:
            self._known.pop(place, None)
            return
        before = self._known.get(place)
        recorded_at = record["recorded_at"]
        goes_on = before is not None and not before.disabled
        settings, problem = self._settings(place, document)
        self._known[place] = FeedTarget(
            *place,
            channel=document["channel"],
            version=record["version"],
            recorded_at=recorded_at,
            since_ms=before.since_ms if before is not None and goes_on else recorded_at // 1000,
            settings=settings,
            document=document,
            disabled=status == DISABLED or bool(document.get("disabled")),
            problem=problem,
        )

    def _settings(self, place: TargetPlace, document: Mapping[str, Any]) -> tuple[Mapping[str, Any], str | None]:
        """Return the settings, with plain secrets, and the reason why these cannot be decrypted."""
        own = {name: document[name] for name in document.keys() - DISABLED_FIELDS}
        plain, problem = opened(own, secrets_of_target(own), (place[0], f"{TARGET}/{place[1]}"), self.sealer)
        return parse_target(plain).settings, problem


def fold_feed_target(targets: FeedTargets, record: Record) -> Outcome[FeedTargets]:
    """Return the targets after one DefinitionChanged record. The API checks documents before it writes them."""
    try:
        targets.apply(record)
    except (DefinitionRefused, ValueError) as error:
        return Refused("definition_refused", f"target {record['workspace']}/{record['key']} version {record['version']}: {error}")
    return Done(targets)
