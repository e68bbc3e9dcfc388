"""Pure core: what the API states about the decision of a message, which only the messenger can make."""

from typing import Final

UNKNOWN_DECISION: Final = (
    "unknown: consent changes, suppressions, devices and earlier messages are in the state of the messenger, which this version "
    "does not have; POST /v1/policy/check evaluates given ones"
)
"""Why no answer of the API states whether a message would be sent."""
