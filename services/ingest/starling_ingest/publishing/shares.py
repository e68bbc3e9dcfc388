"""Pure core: each workspace's share of the queue of records that wait for the broker.

The shares are dynamic thresholds, as switches use them for a shared packet buffer (Choudhury and Hahne, "Dynamic Queue Length
Thresholds for Shared-Memory Packet Switches", 1998): a workspace may use as much as is still free. One busy workspace therefore
gets half of the queue, two get a third each, and so on; some of the queue is always free for a workspace that begins to send.
"""

from dataclasses import dataclass


@dataclass
class Share:
    """The unacknowledged records and bytes of one workspace."""

    records: int = 0
    bytes: int = 0


class Shares:
    """The queue, bounded in records and in bytes. The write keys bound the number of workspaces."""

    def __init__(self, most_records: int, most_bytes: int) -> None:
        self.records = 0
        self._bytes = 0
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._by_workspace: dict[str, Share] = {}

    def take(self, workspace: str, records: int, size_bytes: int) -> Share | None:
        """Add a request to the workspace's share and return the share; None, with nothing added, if the share is used up."""
        share = self._by_workspace.get(workspace)
        if share is None:
            share = self._by_workspace[workspace] = Share()
        if share.records + records > self._most_records - self.records or share.bytes + size_bytes > self._most_bytes - self._bytes:
            return None
        share.records += records
        share.bytes += size_bytes
        self.records += records
        self._bytes += size_bytes
        return share

    def give_back(self, share: Share, records: int, size_bytes: int) -> None:
        """Remove a request from its share."""
        share.records -= records
        share.bytes -= size_bytes
        self.records -= records
        self._bytes -= size_bytes
