"""Pure core: the bounds of campaigns, templates and targets. The cost of checking and of rendering depends on them alone."""

from typing import Final

LONGEST_DELAY: Final = "90d"
LONGEST_GOAL: Final = "30d"
MAX_RATE: Final = 100_000
"""Maximum messages a second of a broadcast."""
DEFAULT_RATE: Final = 2_000
MAX_LOCALES: Final = 64
"""Maximum number of locales of one variant."""

MAX_SOURCE_BYTES: Final = 65_536
"""Maximum size of the source of one template, UTF-8."""
MAX_OUTPUT_BYTES: Final = 262_144
"""Maximum size of all rendered parts of a message, UTF-8."""
MAX_PUSH_BYTES: Final = 3_072
MAX_SMS_SEGMENTS: Final = 10
MAX_HEADER_CHARACTERS: Final = 998
"""Maximum length of a rendered header: the longest line of RFC 5322."""

MAX_ROUNDS: Final = 100
"""Maximum number of rounds of a loop: it visits the first elements."""
MAX_ALL_ROUNDS: Final = 1_000
"""Maximum number of rounds of all loops of one rendering. A loop in a loop could need 10,000."""
MAX_LOOPS_DEEP: Final = 2
MAX_TEMPLATE_DEPTH: Final = 32
"""Maximum nesting of the syntax tree. The compiler of Python refuses trees of about three times that depth."""
MAX_TEMPLATE_COST: Final = 40_000
"""Maximum worst-case number of operations of one template: each node of the syntax tree, times the rounds of its loops."""
MAX_TEXT_READ: Final = 1_048_576
"""Maximum number of characters that one rendering reads from the data, filters included. A text that is read twice counts twice."""

MAX_URL_CHARACTERS: Final = 2_000
MAX_TARGET_TEXT_CHARACTERS: Final = 1_000
MAX_PRIVATE_KEY_CHARACTERS: Final = 16_384
MAX_CERTIFICATES_CHARACTERS: Final = 65_536
MAX_HEADERS: Final = 10

MAX_FEED_SEGMENTS: Final = 100
"""Maximum number of segments of one target of a feed, or of audience sync."""
MAX_DIGEST_TITLE_CHARACTERS: Final = 150
"""Maximum length of the title of a digest: that of a header of Slack."""
SHORTEST_DIGEST_SECONDS: Final = 10
LONGEST_DIGEST_SECONDS: Final = 3_600
DEFAULT_DIGEST_SECONDS: Final = 60
