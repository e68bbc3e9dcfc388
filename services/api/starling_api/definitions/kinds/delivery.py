"""Pure core: the documents of campaigns, targets and the policy of a workspace."""

from collections.abc import Mapping
from typing import Any

from starling_api.definitions.kinds.kind import Document, Names
from starling_api.definitions.kinds.reading import described, labels_of, writable
from starling_campaigns import References, parse_campaign, parse_stored_policy, parse_target
from starling_campaigns.channels import AUDIENCE, CHANNELS_WITHOUT_CAMPAIGNS, KAFKA
from starling_campaigns.definitions.policy import POLICY_KEY
from starling_campaigns.definitions.targets import HTTP
from starling_common.kafka.topics import load_catalogue
from starling_segments import DefinitionRefused, FieldError, Known


def read_campaign(document: object, known: Known) -> Document:
    """Return the document of a campaign, without its null fields. Raises: DefinitionRefused."""
    given = writable(document)
    parse_campaign(given, known.references() if isinstance(known, Names) else References(known))
    return {name: value for name, value in given.items() if value is not None}


def read_target(document: object, known: Known) -> Document:
    """Return the document of a target, secrets included, without its null fields. Raises: DefinitionRefused."""
    given = writable(document)
    target = parse_target(given, known.taken_keys, known.references() if isinstance(known, Names) else References(known))
    if target.channel == KAFKA:
        _refuse_own_topic(target.settings["topic"])
    if is_signing({**target.settings, "channel": target.channel}) and "secret" not in target.settings:
        reason = "a target whose requests become signed has no secret"
        raise DefinitionRefused(
            (FieldError("", "missing_field", reason, '"secret": whsec_ and the base64 of 24 to 64 random bytes'),)
        )
    return {
        "key": target.key,
        "name": target.name,
        "channel": target.channel,
        **described(given),
        **target.settings,
        **labels_of(given),
    }


def _refuse_own_topic(topic: str) -> None:
    """Refuse a topic of the platform, also in another cluster: that may be the same one under another address."""
    if topic in load_catalogue().topics or topic.startswith("_"):
        reason = f"{topic!r} is a topic of the platform"
        expected = "a topic of your own, which exists; its name does not begin with _"
        raise DefinitionRefused((FieldError("/topic", "wrong_type", reason, expected),))


def is_feed(target: Mapping[str, Any]) -> bool:
    """Return whether a target gets the changes of its segments, without a campaign: a feed, or audience sync."""
    return target.get("channel") in CHANNELS_WITHOUT_CAMPAIGNS


def is_signing(target: Mapping[str, Any]) -> bool:
    """Return whether the requests of a target are signed: those of a webhook, and of an audience over HTTP.

    The server generates the secret.
    """
    return target.get("channel") == "webhook" or (target.get("channel") == AUDIENCE and target.get("adapter") == HTTP)


def read_policy(document: object, known: Known) -> Document:
    """Return the policy of the workspace with its key, without its null fields. Raises: DefinitionRefused."""
    given = writable(document)
    fields = {name: value for name, value in given.items() if name != "key"} if isinstance(given, Mapping) else given
    parse_stored_policy(fields, known.timezone)
    return {"key": POLICY_KEY, **{name: value for name, value in fields.items() if value is not None}}
