"""Pure core: the targets of mails: a server, its keys, and the provider that reports bounces."""

from collections.abc import Mapping
from typing import Final

from starling_campaigns.definitions.targets.field import Kind, TargetField, choice, pattern
from starling_campaigns.definitions.targets.values import ADDRESS, HOST, LINE, NAME, PRIVATE_KEY

SES: Final = "ses"
SENDGRID: Final = "sendgrid"
DSN: Final = "dsn"
"""The providers whose callbacks the tracker takes for mails: Amazon SES by SNS, SendGrid, and delivery status notifications."""

_PORT: Final = Kind(
    lambda value: type(value) is int and 1 <= value <= 65_535,
    {"type": "integer", "minimum": 1, "maximum": 65_535},
    "a whole number from 1 to 65535",
)
_TOPIC_ARN: Final = pattern(
    "^arn:aws(-cn|-us-gov)?:sns:[a-z0-9-]{1,32}:[0-9]{12}:[A-Za-z0-9_-]{1,256}$", 340,
    "the ARN of a topic of SNS, such as arn:aws:sns:eu-central-1:123456789012:mails",
)  # fmt: skip
_SES_NAME: Final = pattern("^[A-Za-z0-9_-]{1,64}$", 64, "1 to 64 letters, digits, _ and -")
_VERIFICATION_KEY: Final = pattern(
    "^MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE[A-Za-z0-9+/]{86}==$", 124,
    "the verification key of the event webhook: 124 characters of base64 that begin with MFkwEwYHKoZIzj0C",
)  # fmt: skip
_SHARED_SECRET: Final = pattern("^[!-~]{16,200}$", 200, "16 to 200 characters of ASCII, without spaces")

FIELDS: Final[Mapping[str, TargetField]] = {
    "host": TargetField(HOST),
    "port": TargetField(_PORT),
    "tls": TargetField(choice("none", "starttls", "tls")),
    "from": TargetField(ADDRESS),
    "username": TargetField(LINE, required=False),
    "password": TargetField(LINE, required=False, secret=True),
    "dkim": TargetField(
        None,
        required=False,
        fields={
            "domain": TargetField(HOST),
            "selector": TargetField(NAME),
            "private_key": TargetField(PRIVATE_KEY, secret=True),
        },
    ),
    "callbacks": TargetField(
        None,
        required=False,
        fields={
            "provider": TargetField(choice(SES, SENDGRID, DSN)),
            "topic_arn": TargetField(_TOPIC_ARN, required=False),
            "configuration_set": TargetField(_SES_NAME, required=False),
            "public_key": TargetField(_VERIFICATION_KEY, required=False),
            "secret": TargetField(_SHARED_SECRET, required=False, secret=True),
        },
        variants={
            SES: {"topic_arn": True, "configuration_set": False},
            SENDGRID: {"public_key": True},
            DSN: {"secret": True},
        },
    ),
}
"""The fields of the channel `email`."""
