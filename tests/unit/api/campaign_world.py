"""A workspace with segments and targets, as campaigns refer to them."""

from starling_api.definitions.kinds.kinds import SEGMENTS, TARGETS
from tests.unit.api.memory import AUTHOR, World

SMTP = {
    "key": "main-smtp",
    "channel": "email",
    "host": "smtp.example.com",
    "port": 587,
    "tls": "starttls",
    "from": "shop@example.com",
    "password": "s3cret",
}


def world() -> World:
    """Return a workspace with the segments and targets of `campaign_documents`."""
    found = World()
    for key in ("lapsing-vips", "vips", "old"):
        found.commands.define(SEGMENTS, AUTHOR, {"key": key, "name": key, "where": {"everyone": True}})
    found.commands.archive(SEGMENTS, AUTHOR, "old", None)
    texts = {"channel": "sms", "base_url": "https://sms.example.com", "account_sid": "A", "auth_token": "t", "from": "Shop"}
    web = {"channel": "webpush", "subject": "mailto:a@example.com", "private_key": "a"}
    hook = {"channel": "webhook", "url": "https://hooks.example.com"}
    for target in (SMTP, {**SMTP, "key": "old-smtp"}, {"key": "texts", **texts}, {"key": "web", **web}, {"key": "hook", **hook}):
        found.commands.define(TARGETS, AUTHOR, target)
    found.commands.archive(TARGETS, AUTHOR, "old-smtp", None)
    return found
