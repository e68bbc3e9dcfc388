"""Pure core: what previews and dry runs state about the decision of a message."""

from typing import Final

UNKNOWN_DECISION: Final = "unknown: this call evaluates no policy; POST /v1/policy/check decides about a message to one user"
"""Why no answer of a preview or a dry run states whether a message would be sent."""
