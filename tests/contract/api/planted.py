"""Targets of every channel and adapter whose credentials all contain a mark."""

from collections.abc import Iterator, Mapping
from typing import Any

from starling_campaigns import secrets_of_target
from starling_campaigns.definitions.targets import CHANNEL_FIELDS, TargetField

Document = dict[str, Any]


def planted_targets(mark: str, address: str) -> list[Document]:
    """Return targets for a segment `vip`. `mark`: 39 letters and digits; `address`: host and port at which nothing listens."""
    pem = f"-----BEGIN PRIVATE KEY-----\n{mark}\n-----END PRIVATE KEY-----"
    url, hook = f"http://{address}", f"whsec_{mark}A"
    audience = {"channel": "audience", "segments": ["vip"]}
    security = {"protocol": "sasl_plaintext", "mechanism": "PLAIN", "username": "shop", "password": f"{mark}-kafka"}
    callbacks = {"provider": "dsn", "secret": f"{mark}{mark}"}
    mail = {"channel": "email", "host": "127.0.0.1", "port": 25, "tls": "none", "from": "a@example.com"}
    google = {"client_email": "sync@project.iam.gserviceaccount.com", "account_id": "123", "audiences": {"vip": "777"}}
    found: list[Document] = [
        {**mail, "key": "mail-dsn", "password": f"{mark}-mail", "callbacks": callbacks,
         "dkim": {"domain": "example.com", "selector": "s", "private_key": pem}},
        {"key": "web", "channel": "webpush", "subject": "mailto:push@shop.example", "private_key": f"{mark}AAAA"},
        {"key": "fcm", "channel": "fcm", "project_id": "shop", "client_email": "push@shop.example", "private_key": pem},
        {"key": "apns", "channel": "apns", "team_id": "T", "key_id": "K", "topic": "t", "environment": "sandbox",
         "private_key": pem},
        {"key": "sms", "channel": "sms", "base_url": url, "account_sid": "AC1", "auth_token": f"{mark}-sms", "from": "Shop"},
        {"key": "post", "channel": "webhook", "url": url, "secret": hook},
        {"key": "teams", "channel": "teams", "url": f"{url}/{mark}-teams", "segments": ["vip"], "interval_seconds": 10},
        {"key": "slack", "channel": "slack", "url": f"{url}/{mark}-slack", "segments": ["vip"], "interval_seconds": 10},
        {"key": "kafka", "channel": "kafka", "topic": "changes", "segments": ["vip"], "bootstrap_servers": address,
         "security": security},
        {**audience, "key": "braze", "adapter": "braze", "base_url": url, "api_key": f"{mark}-braze"},
        {**audience, "key": "customerio", "adapter": "customerio", "base_url": url, "site_id": "site",
         "api_key": f"{mark}-customerio"},
        {**audience, "key": "meta", "adapter": "meta", "base_url": url, "token": f"{mark}-meta", "audiences": {"vip": "11"}},
        {**audience, **google, "key": "google", "adapter": "google", "base_url": url, "token_url": f"{url}/token",
         "private_key": pem},
        {**audience, "key": "http", "adapter": "http", "url": url, "secret": hook, "headers": {"X-Token": f"{mark}-header"}},
    ]  # fmt: skip
    planted = {
        (str(one["channel"]), path[0] if "headers" in path else path[-1]) for one in found for path in secrets_of_target(one)
    }
    missing = {(channel, name) for channel, fields in CHANNEL_FIELDS.items() for name in _secret_names(fields)} - planted
    assert missing == set(), "a secret that no target here has"
    return found


def _secret_names(fields: Mapping[str, TargetField]) -> Iterator[str]:
    for name, field in fields.items():
        if field.secret or (field.each is not None and field.each.secret):
            yield name
        yield from _secret_names(field.fields or {})
