"""A delivery process whose channel sends nothing: `python -m delivery_parts.noop_process feed|at_most_once|at_least_once [FILE]`.

Everything but the channel is the product's. The settings are those of the product too: `feed` takes the place of the webhook of
feeds, the others that of the channel `email` of campaigns. FILE gets a line `N seconds count` a tenth of a second apart, with the
messages of broadcasts so far, and a line `T seconds user` for each other message. The seconds are monotonic.
"""

import sys
import threading
import time
from typing import Any, Final, TextIO

from starling_delivery.__main__ import main
from starling_delivery.channel import AT_LEAST_ONCE, AT_MOST_ONCE, Answer, Arrival, Delivered, Message, Park
from starling_delivery.channels import CAMPAIGN_CHANNELS, CHANNELS

FEED: Final = "feed"
ARRIVALS: Final = {"at_most_once": AT_MOST_ONCE, "at_least_once": AT_LEAST_ONCE}
BULK_PREFIX: Final = "sale-"
"""The begin of the keys of the benchmark's broadcasts."""
_NOTE_SECONDS: Final = 0.1


class NoOp:
    """A channel that accepts every message at once."""

    def __init__(self, name: str, semantics: Arrival = AT_LEAST_ONCE, notes: TextIO | None = None) -> None:
        self.name = name
        self.semantics = semantics
        self._notes = notes
        self._bulk = 0
        if notes is not None:
            threading.Thread(target=self._note, daemon=True).start()

    async def send(self, message: Message) -> Answer:
        if self._notes is not None:
            if (message.campaign or "").startswith(BULK_PREFIX):
                self._bulk += 1
            else:
                self._notes.write(f"T {time.monotonic()} {message.user_id}\n")
        return Delivered()

    def hold(self, _message: Message) -> Park | None:
        return None

    def unsubscribe_link(self, _message: Message) -> str | None:
        return "https://mail.example.com/u"

    async def close(self) -> None:
        if self._notes is not None:
            self._notes.flush()

    def _note(self) -> None:
        assert self._notes is not None
        while True:
            time.sleep(_NOTE_SECONDS)
            self._notes.write(f"N {time.monotonic()} {self._bulk}\n")
            self._notes.flush()


def replace_channel(kind: str, notes: TextIO | None) -> None:
    """Register the channel in place of the product's."""
    channels: dict[str, Any] = CHANNELS if kind == FEED else CAMPAIGN_CHANNELS  # type: ignore[assignment]
    name = "webhook" if kind == FEED else "email"
    channel = NoOp(name, ARRIVALS.get(kind, AT_LEAST_ONCE), notes)
    channels[name] = lambda *_: channel


if __name__ == "__main__":
    replace_channel(sys.argv[1], open(sys.argv[2], "a") if len(sys.argv) > 2 else None)  # noqa: SIM115, PTH123 - open until the end
    sys.exit(main())
