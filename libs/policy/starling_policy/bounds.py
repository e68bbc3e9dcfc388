"""Pure core: the bounds of every input. The cost of a decision is bounded by them, whatever the input."""

from typing import Final

MAX_CAPS: Final = 16
MAX_CAP_LIMIT: Final = 100
MAX_NAMES: Final = 32
"""Maximum number of channels or purposes in a list, and of channels in `consent`."""
MAX_VARIANTS: Final = 32
MAX_PRIORITY: Final = 100
MAX_DEDUPE_KEY_CHARACTERS: Final = 200

MAX_MESSAGES: Final = 2_048
"""Maximum number of past messages of a person. Caps need at most `MAX_CAPS * MAX_CAP_LIMIT` of them."""
MAX_CONSENT_CHANGES: Final = 256
MAX_SUPPRESSIONS: Final = 64
MAX_DEVICES: Final = 10
"""Maximum number of devices of a person in one channel."""
MAX_CANCELLATIONS: Final = 256
"""Maximum number of exits, and of cancelling events, of one message."""
MAX_PENDING: Final = 100
"""Maximum number of messages of a person that wait."""

DAY_MS: Final = 86_400_000
DEDUPE_MS: Final = DAY_MS
"""A `dedupe_key` counts as seen for 24 hours."""
