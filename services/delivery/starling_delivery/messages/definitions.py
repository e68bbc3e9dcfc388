"""Pure core: the campaigns and targets in force, as a fold over `delivery.definitions`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from starling_campaigns import Campaign, Target, parse_stored_campaign, parse_target, secrets_of_target
from starling_campaigns.channels import CHANNELS_WITHOUT_CAMPAIGNS
from starling_campaigns.definitions.triggers import BroadcastTrigger
from starling_common.cassandra.read_models import ARCHIVED, CAMPAIGN, DISABLED, TARGET
from starling_common.outcome import Done, Outcome, Refused
from starling_common.records.definitions import DISABLED_FIELDS, status_after
from starling_common.security.sealing import Sealer, opened
from starling_common.wire import Record
from starling_delivery.targets import Batching
from starling_segments import DefinitionRefused

_VERSIONS: Final = 8
"""How many versions of a campaign are kept. A message of an older one is rendered with the newest."""


@dataclass(frozen=True, slots=True)
class KnownCampaign:
    """One campaign. `versions`: version -> its parsed document, of the newest versions."""

    status: str
    version: int
    versions: Mapping[int, Campaign]

    def at(self, version: int) -> Campaign:
        """Return the campaign of that version; the newest one in place of a version that is not kept."""
        return self.versions.get(version) or self.versions[self.version]

    @property
    def target(self) -> str:
        """The key of its target."""
        return self.versions[self.version].target

    @property
    def is_broadcast(self) -> bool:
        """Whether its messages go to all members of a segment at one time."""
        return isinstance(self.versions[self.version].trigger, BroadcastTrigger)


@dataclass(frozen=True, slots=True)
class KnownTarget:
    """One target. `target` None: it is archived, or its definition has not been read yet (version 0).

    `problem`: the reason why its credentials cannot be decrypted, so that nothing is sent. `document`: as stored, JSON text with
    encrypted credentials.
    """

    workspace: str
    key: str
    version: int = 0
    target: Target | None = None
    disabled: bool = False
    batching: Batching | None = None
    problem: str | None = None
    rate: float | None = None
    document: str = "{}"


@dataclass
class Definitions:
    """All campaigns and targets by workspace and key. One thread writes; others read without a lock, one look-up each.

    `sealer` decrypts credentials; by default only plain ones can be read.
    """

    sealer: Sealer = field(default_factory=Sealer)
    campaigns: dict[tuple[str, str], KnownCampaign] = field(default_factory=dict)
    targets: dict[tuple[str, str], KnownTarget] = field(default_factory=dict)

    def campaign(self, workspace: str, key: str) -> KnownCampaign | None:
        """Return one campaign; None if its definition has not been read yet."""
        return self.campaigns.get((workspace, key))

    def problems(self) -> list[str]:
        """Return the reasons why targets cannot send."""
        return [one.problem for one in list(self.targets.values()) if one.problem is not None and not one.disabled]

    def find(self, workspace: str, key: str) -> KnownTarget:
        """Return one target. An unknown one has no settings: the last look decides about its messages."""
        return self.targets.get((workspace, key)) or KnownTarget(workspace, key)

    def disable(self, workspace: str, key: str) -> None:
        """Send nothing more to a target, until its definition is read again."""
        self.targets[workspace, key] = replace(self.find(workspace, key), disabled=True)


def fold_definition(known: Definitions, record: Record) -> Outcome[Definitions]:
    """Return the definitions after one DefinitionChanged record. Other kinds than campaigns and targets change nothing."""
    place = (record["workspace"], record["key"])
    try:
        if record["kind"] == CAMPAIGN:
            known.campaigns[place] = _campaign(known.campaigns.get(place), record)
        elif record["kind"] == TARGET:
            known.targets[place] = _target(record, known.sealer)
    except (DefinitionRefused, ValueError) as error:
        return Refused("definition_refused", f"{record['kind']} {'/'.join(place)} version {record['version']}: {error}")
    return Done(known)


def _campaign(before: KnownCampaign | None, record: Record) -> KnownCampaign:
    status, version = status_after(record["action"]), record["version"]
    if status == ARCHIVED and before is not None:
        return replace(before, status=status)
    versions = dict(before.versions) if before is not None else {}
    versions[version] = parse_stored_campaign(json.loads(record["document"]))
    kept = {number: versions[number] for number in sorted(versions)[-_VERSIONS:]}
    return KnownCampaign(status, version, kept)


def _target(record: Record, sealer: Sealer) -> KnownTarget:
    workspace, key, version = record["workspace"], record["key"], record["version"]
    if status_after(record["action"]) == ARCHIVED:
        return KnownTarget(workspace, key, version)
    document = json.loads(record["document"])
    if document.get("channel") in CHANNELS_WITHOUT_CAMPAIGNS:  # no campaign can have it
        return KnownTarget(workspace, key, version)
    disabled = status_after(record["action"]) == DISABLED or bool(document.get("disabled"))
    for name in DISABLED_FIELDS:
        document.pop(name, None)
    # The rest of a document is checked too; nothing is sent with what is still encrypted.
    plain, problem = opened(document, secrets_of_target(document), (workspace, f"{TARGET}/{key}"), sealer)
    target = parse_target(plain)
    return KnownTarget(workspace, key, version, target, disabled, problem=problem, document=record["document"])
