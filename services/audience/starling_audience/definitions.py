"""Pure core: the targets of audience sync and the policies of workspaces, as a fold over `delivery.definitions`."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starling_campaigns import parse_stored_policy, parse_target, secrets_of_target
from starling_campaigns.channels import AUDIENCE
from starling_common.cassandra.read_models import ARCHIVED, DISABLED, POLICY, TARGET
from starling_common.outcome import Done, Outcome, Refused, Skipped
from starling_common.records.definitions import DISABLED_FIELDS, status_after
from starling_common.security.sealing import Sealer, opened
from starling_common.wire import Record
from starling_policy import Policy
from starling_segments import DefinitionRefused

TargetKey = tuple[str, str]
"""Workspace and key."""

_MAPPING_FIELDS: Final = (
    "adapter", "segments", "base_url", "attribute", "site_id", "audiences", "account_id", "account_type", "url",
)  # fmt: skip
"""The fields that decide which users have to be where. Another value of one begins a first sync."""


@dataclass(frozen=True, slots=True)
class AudienceTarget:
    """One target of the channel `audience`. `settings`: with plain secrets; no representation shows them.

    `document`: as stored, with encrypted secrets. `problem`: the reason why its secrets cannot be decrypted, so that nothing is
    sent. `opt_out`: the policy of its workspace adds users who have not stated anything.
    """

    workspace: str
    key: str
    version: int
    settings: Mapping[str, Any]
    document: Mapping[str, Any]
    disabled: bool = False
    problem: str | None = None
    opt_out: bool = False

    @property
    def place(self) -> TargetKey:
        """Return the workspace and the key."""
        return self.workspace, self.key

    @property
    def segments(self) -> frozenset[str]:
        """Return the keys of its segments."""
        return frozenset(self.settings["segments"])

    @property
    def adapter(self) -> str:
        """Return the name of its adapter."""
        return str(self.settings["adapter"])

    @property
    def mapping(self) -> str:
        """Return a digest of what decides which users have to be where. Another digest begins a first sync."""
        facts = [self.opt_out, *(self.settings.get(name) for name in _MAPPING_FIELDS)]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"AudienceTarget({self.workspace}/{self.key}, adapter={self.adapter!r}, version={self.version})"


@dataclass(frozen=True)
class Definitions:
    """The targets, and the workspaces whose policy adds users without a statement. A change makes a new object."""

    sealer: Sealer
    targets: Mapping[TargetKey, AudienceTarget] = field(default_factory=dict)
    opt_out: frozenset[str] = frozenset()

    def wanted(self) -> Mapping[TargetKey, AudienceTarget]:
        """Return the targets to synchronise."""
        return {place: one for place, one in self.targets.items() if not one.disabled and one.problem is None}

    def disabled(self) -> int:
        """Return the number of disabled targets."""
        return sum(one.disabled for one in self.targets.values())

    def problems(self) -> list[str]:
        """Return the reasons why targets cannot be synchronised, of those that are not disabled."""
        return [one.problem for one in self.targets.values() if one.problem is not None and not one.disabled]


def fold_definition(known: Definitions, record: Record) -> Outcome[Definitions]:
    """Return the definitions after one `DefinitionChanged`."""
    place = (record["workspace"], record["key"])
    try:
        if record["kind"] == POLICY:
            return Done(_with_policy(known, record))
        if record["kind"] != TARGET:
            return Skipped(f"a {record['kind']}")
        return Done(_with_target(known, place, record))
    except (DefinitionRefused, ValueError) as error:
        return Refused("definition_refused", f"{record['kind']} {'/'.join(place)} version {record['version']}: {error}")


def _with_target(known: Definitions, place: TargetKey, record: Record) -> Definitions:
    document, status = json.loads(record["document"]), status_after(record["action"])
    others = {other: one for other, one in known.targets.items() if other != place}
    if document.get("channel") != AUDIENCE or status == ARCHIVED:
        return Definitions(known.sealer, others, known.opt_out)
    own = {name: value for name, value in document.items() if name not in DISABLED_FIELDS}
    plain, problem = opened(own, secrets_of_target(own), (place[0], f"{TARGET}/{place[1]}"), known.sealer)
    found = AudienceTarget(
        workspace=place[0],
        key=place[1],
        version=record["version"],
        settings=parse_target(plain).settings,
        document=document,
        disabled=status == DISABLED or bool(document.get("disabled")),
        problem=problem,
        opt_out=place[0] in known.opt_out,
    )
    return Definitions(known.sealer, {**others, place: found}, known.opt_out)


def _with_policy(known: Definitions, record: Record) -> Definitions:
    workspace = record["workspace"]
    policy = Policy()
    if status_after(record["action"]) != ARCHIVED:
        document = json.loads(record["document"])
        policy = parse_stored_policy({name: value for name, value in document.items() if name != "key"})
    is_out = AUDIENCE in policy.opt_out
    opt_out = known.opt_out | {workspace} if is_out else known.opt_out - {workspace}
    targets = {place: _with_opt_out(one, place[0] in opt_out) for place, one in known.targets.items()}
    return Definitions(known.sealer, targets, opt_out)


def _with_opt_out(target: AudienceTarget, opt_out: bool) -> AudienceTarget:
    if target.opt_out == opt_out:
        return target
    return AudienceTarget(
        target.workspace, target.key, target.version, target.settings, target.document, target.disabled, target.problem, opt_out
    )
