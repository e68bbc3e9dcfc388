"""Pure core: the broadcasts that are not written yet."""

from dataclasses import dataclass

from starling_campaigns.definitions.triggers import BroadcastTrigger
from starling_common.cassandra.read_models import ARCHIVED
from starling_messages.broadcast_progress import BroadcastProgress
from starling_messages.broadcasts import listed_at
from starling_messages.campaigns import Campaigns, InForce


@dataclass(frozen=True, slots=True)
class Broadcast:
    """One broadcast. `listed_at`: the instant whose members are listed, epoch ms. `rate`: members a second."""

    workspace: str
    campaign: str
    segment: str
    channel: str
    listed_at: int
    rate: int
    paused: bool

    @property
    def place(self) -> tuple[str, str]:
        """Return the workspace and the key of the campaign."""
        return self.workspace, self.campaign


def unwritten(campaigns: Campaigns, progress: BroadcastProgress) -> list[Broadcast]:
    """Return the broadcasts of activated campaigns that are neither archived nor written whole, the earliest first."""
    found = [
        _broadcast(workspace, one, one.campaign.trigger)
        for workspace, known in campaigns.workspaces.items()
        for key, one in known.campaigns.items()
        if isinstance(one.campaign.trigger, BroadcastTrigger) and one.status != ARCHIVED and not _is_done(progress, workspace, key)
    ]
    return sorted(found, key=lambda one: (one.listed_at, one.place))


def _is_done(progress: BroadcastProgress, workspace: str, key: str) -> bool:
    written = progress.get((workspace, key))
    return written is not None and written.done


def _broadcast(workspace: str, found: InForce, trigger: BroadcastTrigger) -> Broadcast:
    campaign = found.campaign
    return Broadcast(
        workspace, campaign.key, trigger.segment, campaign.rules.channel, listed_at(trigger), campaign.rate, found.paused
    )
