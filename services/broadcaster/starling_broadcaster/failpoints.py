"""Pure core: the failpoints of the broadcaster."""

from typing import Final

AFTER_START: Final = "after_start"
AFTER_READ: Final = "after_read"
BEFORE_COMMIT: Final = "before_commit"
AFTER_COMMIT: Final = "after_commit"
FAILPOINTS: Final = (AFTER_START, AFTER_READ, BEFORE_COMMIT, AFTER_COMMIT)
"""After the progress is read; after a page of members is read; in and after the transaction that writes it."""
