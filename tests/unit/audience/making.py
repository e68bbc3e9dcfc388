"""Changes, records and targets of audience sync."""

import json
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from starling_audience.adapters.adapter import AudienceRequest
from starling_audience.changes import Change
from starling_audience.definitions import AudienceTarget, Definitions, fold_definition
from starling_common.outcome import Done
from starling_common.security.sealing import Sealer

SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
BRAZE: Mapping[str, Any] = {
    "channel": "audience", "adapter": "braze", "segments": ["vip", "new"], "base_url": "https://rest.example.com/", "api_key": "k",
}  # fmt: skip
CUSTOMERIO: Mapping[str, Any] = {
    "channel": "audience", "adapter": "customerio", "segments": ["vip", "new"], "site_id": "site", "api_key": "k",
}  # fmt: skip
META: Mapping[str, Any] = {
    "channel": "audience", "adapter": "meta", "segments": ["vip", "new"], "token": "t", "audiences": {"vip": "11", "new": "22"},
}  # fmt: skip
GOOGLE: Mapping[str, Any] = {
    "channel": "audience", "adapter": "google", "segments": ["vip"], "account_id": "123", "login_account_id": "99",
    "client_email": "sync@project.iam.gserviceaccount.com", "audiences": {"vip": "777"},
    "private_key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
}  # fmt: skip
HTTP: Mapping[str, Any] = {
    "channel": "audience", "adapter": "http", "segments": ["vip"], "url": "https://crm.example.com/a", "secret": SECRET,
    "headers": {"X-Token": "t"},
}  # fmt: skip
EVERY = (BRAZE, CUSTOMERIO, META, GOOGLE, HTTP)


def private_key() -> str:
    """The key of a service account."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def change(user: str, segment: str = "vip", *, member: bool = True, sequence: int = 1, **more: Any) -> Change:
    return Change(user, segment, member, sequence, **more)


def definition(document: Mapping[str, Any], *, action: str = "DEFINED", kind: str = "target", version: int = 1) -> dict[str, Any]:
    """A record of `delivery.definitions`."""
    found = {"key": "ads", **document}
    return {
        "recorded_at": 1, "event_id": "e", "workspace": "acme", "kind": kind, "key": found["key"], "version": version,
        "action": action, "document": json.dumps(found), "actor": "test", "correlation_id": "c",
    }  # fmt: skip


def definitions(*records: Mapping[str, Any], sealer: Sealer | None = None) -> Definitions:
    """What the records fold to. A refused record fails the test; a skipped one changes nothing."""
    found = Definitions(sealer or Sealer())
    for record in records:
        outcome = fold_definition(found, record)
        found = outcome.value if isinstance(outcome, Done) else found
    return found


def target(document: Mapping[str, Any]) -> AudienceTarget:
    return definitions(definition(document)).targets["acme", "ads"]


def body_of(request: AudienceRequest) -> Any:
    return json.loads(request.body)
