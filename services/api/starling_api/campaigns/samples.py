"""Core: test messages of a campaign, which are really sent and counted nowhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starling_api.campaigns.preview import FIELDS, RequestedPreview, fields_of, read_preview, rendered_for, stored_campaign
from starling_api.definitions.definition import Author
from starling_api.definitions.kinds.kinds import CAMPAIGNS, TARGETS
from starling_api.http.errors import Archived
from starling_api.users.queries import Queries
from starling_campaigns.channels import PUSH, WEBHOOK
from starling_common.cassandra.read_models import ARCHIVED
from starling_common.values import deterministic_id
from starling_messages.devices import is_reached
from starling_policy.checks import is_address
from starling_segments import DefinitionRefused, FieldError
from starling_segments.language.validation import finish

Document = dict[str, Any]

MAX_ADDRESSES: Final = 10
_EXPECTED: Final = f"1 to {MAX_ADDRESSES} different addresses"


@dataclass(frozen=True, slots=True)
class RequestedTest:
    """A requested test. `preview`: whose traits are rendered; `to`: where the messages go."""

    preview: RequestedPreview
    to: tuple[str, ...]


def requested_test(document: object) -> RequestedTest:
    """Return the test of a body. Raises: DefinitionRefused with all errors."""
    fields, location = fields_of(document, FIELDS | {"to"}, 'an object with "user" and "to"')
    preview = read_preview({name: value for name, value in fields.items() if name != "to"}, location)
    to = fields.get("to")
    if to is None:
        location.refuse("missing_field", "'to' is missing", f'"to": {_EXPECTED}')
    elif not isinstance(to, list) or not 0 < len(to) <= MAX_ADDRESSES or not all(isinstance(one, str) for one in to):
        location.at("to").refuse("wrong_type", "the value is not a list of addresses", _EXPECTED)
    elif len(set(to)) < len(to):
        location.at("to").refuse("duplicate", "an address occurs twice", _EXPECTED)
    finish(location.validation)
    return RequestedTest(preview, tuple(to or ()))


def test_requests(queries: Queries, author: Author, key: str, wanted: RequestedTest) -> tuple[str, list[Document]]:
    """Return the channel and the requests of test messages, which differ in address and id alone.

    Raises: NotFound (campaign or user), Archived, DefinitionRefused (a bad address, a missing value, or as `rendered_for`).
    """
    workspace = author.workspace
    campaign = stored_campaign(queries, workspace, key)
    definition = queries.reader.definition(workspace, CAMPAIGNS.name, key)
    target = queries.reader.definition(workspace, TARGETS.name, campaign.target)
    if definition is None or definition.status == ARCHIVED or target is None or target.status == ARCHIVED:
        raise Archived(f"the campaign {key!r} or its target {campaign.target!r} is archived: nothing can be sent")
    channel = campaign.rules.channel
    errors = _address_errors(channel, target.document, wanted.to)
    if errors:
        raise DefinitionRefused(tuple(errors))
    preview = wanted.preview
    traits = queries.profile(workspace, preview.user)["traits"]
    variant, rendered = rendered_for(campaign, traits, preview)
    if rendered.missing:
        message = f"values are missing: {', '.join(rendered.missing)}"
        raise DefinitionRefused((FieldError("/user", "template_missing", message, "a user with these values, or a default"),))
    return channel, [
        {
            "user_id": preview.user,
            "delivery_id": deterministic_id("test", workspace, key, author.correlation_id, address),
            "target_key": campaign.target,
            "address": address,
            "campaign": key,
            "version": definition.version,
            "variant": variant,
            "locale": rendered.locale,
            "purpose": campaign.rules.purpose,
            "context": {"traits": traits, "event": preview.event},
        }
        for address in wanted.to
    ]


def _address_errors(channel: str, target: Mapping[str, Any], to: Sequence[str]) -> list[FieldError]:
    """Return an error for each address that the campaign cannot write to. `target`: its document."""
    expected = f"an address of the channel {channel}"
    if channel == PUSH:
        expected = f"a device that the target reaches ({target['channel']})"
    elif channel == WEBHOOK:
        expected = f"the URL of the target: {target['url']}"

    def is_right(address: str) -> bool:
        if channel == PUSH:
            return is_reached(address, str(target["channel"]))
        return address == target["url"] if channel == WEBHOOK else is_address(channel, address)

    return [
        FieldError(f"/to/{i}", "bad_address", "the value is not an address of the channel", expected)
        for i, address in enumerate(to)
        if not is_right(address)
    ]
