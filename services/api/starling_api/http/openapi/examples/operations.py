"""Pure core: one example of each operation, for `/openapi.json`. A test validates them against the schemas."""

from typing import Final

from starling_api.http.openapi.examples import access, delivery, lake, segments, users
from starling_api.http.openapi.examples.example import Example

EXAMPLES: Final[dict[str, Example]] = {
    **segments.EXAMPLES,
    **lake.EXAMPLES,
    **delivery.EXAMPLES,
    **users.EXAMPLES,
    **access.EXAMPLES,
}
"""Operation id -> example. Operations without a response body, or that are not available yet, have none."""
