"""Pure core: the failpoints of audience sync."""

from typing import Final

BEFORE_SEND: Final = "before_send"
AFTER_SEND: Final = "after_send"
BEFORE_COMMIT: Final = "before_commit"
AFTER_COMMIT: Final = "after_commit"
FAILPOINTS: Final = (BEFORE_SEND, AFTER_SEND, BEFORE_COMMIT, AFTER_COMMIT)
"""Before and after each request of a batch; before and after the commit of its offsets."""
