"""Pure core: the failpoints of a channel of campaigns."""

from typing import Final

FAILPOINTS: Final = ("after_sending", "in_send", "after_send", "before_outcome")
"""After the transaction of SENDING; before the content of a mail is sent; after the server has taken it; before its outcome."""
