"""Pure core: what the status of a bounce (RFC 3463) and the words of the receiver's server mean."""

import re
from typing import Final

from starling_tracker.callbacks.report import Effect

_STATUS: Final = re.compile(r"\b([245])\.(\d{1,3})\.(\d{1,3})\b")
_REPLY: Final = re.compile(r"(?:^|[\s;])([245]\d\d)(?=[\s-]|$)")
_MAILBOX: Final = 2
_POLICY: Final = 7
_OF_CONTENT: Final = 6


def effect_of_status(status: str) -> Effect:
    """Return the effect of a failure with that enhanced status, such as 5.1.1.

    5.Y.Z is permanent. X.2.Z is a state of the mailbox, such as a full one, which may end. X.6.Z and X.7.Z refuse the content or
    the sender: the address itself is good. Without a status the failure may end.
    """
    found = _STATUS.search(status)
    if found is None:
        return Effect.SOFT_BOUNCE
    subject = int(found[2])
    if subject in (_OF_CONTENT, _POLICY):
        return Effect.NONE
    return Effect.HARD_BOUNCE if found[1] == "5" and subject != _MAILBOX else Effect.SOFT_BOUNCE


def reply_code(text: str) -> int | None:
    """Return the reply code of a server in a diagnosis such as `smtp; 550 5.1.1 unknown`; None without one."""
    found = _REPLY.search(text)
    return int(found[1]) if found else None
