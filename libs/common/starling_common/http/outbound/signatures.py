"""Pure core: the headers of a message that is signed according to Standard Webhooks 1.0."""

from collections.abc import Sequence
from datetime import UTC, datetime

from standardwebhooks.webhooks import Webhook


def signed_headers(secrets: Sequence[str], message_id: str, body: str, now_ms: int) -> dict[str, str]:
    """Return the headers of one attempt, with its time, the id of the message and a signature for each valid secret."""
    now_seconds = now_ms // 1000
    at = datetime.fromtimestamp(now_seconds, UTC)
    return {
        "content-type": "application/json",
        "user-agent": "Starling-Webhooks/1",
        "accept-encoding": "identity",
        "webhook-id": message_id,
        "webhook-timestamp": str(now_seconds),
        "webhook-signature": " ".join(Webhook(secret).sign(message_id, at, body) for secret in secrets),
    }
