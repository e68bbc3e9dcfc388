"""Core: the rendered message of a campaign for one user, and what the policy decides about the members of its segment now."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starling_api.campaigns.decision import SEND, TEMPLATE_MISSING, DecisionInputs, Shown, decided_now
from starling_api.definitions.kinds.kinds import CAMPAIGNS, TARGETS
from starling_api.http.errors import NotFound
from starling_api.http.pagination import PageOf
from starling_api.messages.bodies import SUPPRESSED_CHANNELS
from starling_api.messages.people import People
from starling_api.messages.shown import as_of
from starling_api.messages.suppressions import Suppressed
from starling_api.users.queries import Queries
from starling_campaigns import (
    Campaign,
    PartFailed,
    Rendered,
    assignment_of,
    parse_stored_campaign,
    parse_stored_policy,
    render_message,
)
from starling_campaigns.definitions.policy import POLICY_KEY
from starling_campaigns.definitions.triggers import EventTrigger
from starling_campaigns.locales import EXPECTED, canonical_locale
from starling_common.cassandra.read_models import ARCHIVED, POLICY
from starling_messages.campaigns import Workspace
from starling_policy import TRANSACTIONAL, Policy
from starling_segments import DefinitionRefused, FieldError, Known
from starling_segments.language.validation import Location, Validation, finish, refuse_unknown_fields

Document = dict[str, Any]

MAX_USER_BYTES: Final = 512
MAX_COUNTED: Final = 10_000
"""Maximum members that one dry run counts. `next_cursor` continues."""
_PAGE: Final = 1_000
_UNSUBSCRIBE_URL: Final = "https://example.com/unsubscribe"
"""In place of the link of a sent message, which would unsubscribe the person."""
FIELDS: Final = frozenset({"user", "variant", "locale", "event"})
_EVENT_FIELDS: Final = frozenset({"name", "properties"})
_UNKNOWN: Final = Shown(None, None, None)
"""The decision without a messenger."""


@dataclass(frozen=True, slots=True)
class Reads:
    """What previews and dry runs read."""

    queries: Queries
    people: People
    suppressed: Suppressed


@dataclass(frozen=True, slots=True)
class RequestedPreview:
    """A requested preview. None: the user's own variant, the locale of the traits, no event."""

    user: str
    variant: str | None
    locale: str | None
    event: Mapping[str, Any] | None


def requested_preview(document: object) -> RequestedPreview:
    """Return the preview of a body. Raises: DefinitionRefused with all errors."""
    fields, location = fields_of(document, FIELDS, 'an object with "user"')
    found = read_preview(fields, location)
    finish(location.validation)
    return found


def fields_of(document: object, known: frozenset[str], expected: str) -> tuple[Document, Location]:
    """Return the fields of a body, and the place of its errors. Raises: DefinitionRefused if it is no object."""
    if not isinstance(document, dict):
        raise DefinitionRefused((FieldError("", "wrong_type", "it is not an object", expected),))
    location = Location(Validation(Known()))
    refuse_unknown_fields(document, known, location)
    return document, location


def read_preview(document: Document, location: Location) -> RequestedPreview:
    """Read the fields of a preview. Errors are recorded."""
    user, variant, locale, event = (document.get(name) for name in ("user", "variant", "locale", "event"))
    expected = f"a user id of 1 to {MAX_USER_BYTES} bytes"
    if user is None:
        location.refuse("missing_field", "'user' is missing", f'"user": {expected}')
    elif not isinstance(user, str) or not 0 < len(user.encode()) <= MAX_USER_BYTES:
        location.at("user").refuse("wrong_type", "the value is not a user id", expected)
    if variant is not None and not isinstance(variant, str):
        location.at("variant").refuse("wrong_type", "the value is not a variant", "the key of a variant")
    if locale is not None and canonical_locale(locale) is None:
        location.at("locale").refuse("bad_locale", "the value is not a locale", EXPECTED)
    _check_event(event, location)
    return RequestedPreview(str(user), variant, locale, event)


def _check_event(event: object, location: Location) -> None:
    if event is None:
        return
    child, expected = location.at("event"), '{"name": text, "properties": object}'
    if not isinstance(event, dict):
        child.refuse("wrong_type", "the value is not an event", expected)
        return
    refuse_unknown_fields(event, _EVENT_FIELDS, child)
    if not isinstance(event.get("name", ""), str):
        child.at("name").refuse("wrong_type", "the value is not a text", expected)
    if not isinstance(event.get("properties", {}), dict):
        child.at("properties").refuse("wrong_type", "the value is not an object", expected)


def stored_campaign(queries: Queries, workspace: str, key: str) -> Campaign:
    """Return a campaign, also an archived one. Raises: NotFound, DefinitionRefused (this version cannot parse it)."""
    definition = queries.reader.definition(workspace, CAMPAIGNS.name, key)
    if definition is None:
        raise NotFound(CAMPAIGNS.title, key)
    return parse_stored_campaign(definition.document)


def stored_policy(queries: Queries, workspace: str) -> Policy:
    """Return the policy of a workspace; one without restrictions if none is stored."""
    definition = queries.reader.definition(workspace, POLICY, POLICY_KEY)
    fields = {} if definition is None or definition.status == ARCHIVED else definition.document
    return parse_stored_policy({name: value for name, value in fields.items() if name != "key"})


def inputs_for(queries: Queries, suppressed: Suppressed, workspace: str, campaign: Campaign) -> DecisionInputs:
    """Return what a decision about a message of the campaign depends on: policy, channel of the target, and suppressions.

    Raises: BrokerUnavailable if the suppressions cannot be read.
    """
    target = queries.reader.definition(workspace, TARGETS.name, campaign.target)
    targets = {} if target is None else {campaign.target: str(target.document["channel"])}
    definitions = Workspace(policy=stored_policy(queries, workspace), targets=targets)
    has_addresses = campaign.rules.channel in SUPPRESSED_CHANNELS
    return DecisionInputs(workspace, definitions, suppressed(workspace) if has_addresses else _suppresses_none)


def _suppresses_none(_channel: str, _digest: str) -> str | None:
    return None


def rendered_for(campaign: Campaign, traits: Mapping[str, Any], wanted: RequestedPreview) -> tuple[str, Rendered]:
    """Return the variant and the rendered message.

    Raises: DefinitionRefused (an unknown variant, or a template that fails with this data).
    """
    if wanted.variant is not None and wanted.variant not in campaign.contents:
        message, expected = f"there is no variant {wanted.variant!r}", "one of " + ", ".join(campaign.contents)
        raise DefinitionRefused((FieldError("/variant", "unknown_variant", message, expected),))
    variant = assignment_of(campaign, wanted.user).variant if wanted.variant is None else wanted.variant
    try:
        unsubscribe_url = None if campaign.rules.purpose == TRANSACTIONAL else _UNSUBSCRIBE_URL
        return variant, render_message(
            campaign, variant, wanted.user, traits, wanted.event, wanted.locale, unsubscribe_url=unsubscribe_url
        )
    except PartFailed as failed:
        expected = "a template and data that fit"
        raise DefinitionRefused(
            (FieldError(f"/{failed.part}" if failed.part else "", failed.code, str(failed), expected),)
        ) from failed


def previewed(reads: Reads, workspace: str, key: str, wanted: RequestedPreview) -> Document:
    """Return the rendered parts of a message, and what the policy decides about it. Nothing is sent or stored.

    Raises: NotFound (campaign or user), DefinitionRefused as `rendered_for`, BrokerUnavailable.
    """
    queries = reads.queries
    campaign = stored_campaign(queries, workspace, key)
    profile = queries.profile(workspace, wanted.user)
    variant, rendered = rendered_for(campaign, profile["traits"], wanted)
    known, decided = reads.people.person(workspace, wanted.user), _UNKNOWN
    if known is not None:
        decided = decided_now(campaign, inputs_for(queries, reads.suppressed, workspace, campaign), wanted.user, known)
    if decided.action == SEND and rendered.missing:
        decided = Shown("drop", TEMPLATE_MISSING, variant)
    return {
        **rendered.parts,
        "missing": list(rendered.missing),
        "variant": variant,
        "held_out": assignment_of(campaign, wanted.user).held_out,
        "locale": rendered.locale,
        "sms": None if rendered.sms is None else rendered.sms._asdict(),
        **decided.fields(),
        "as_of": profile["as_of"],
    }


def dry_run(reads: Reads, workspace: str, key: str, cursor: str | None) -> Document:
    """Return what the policy decides now about the next members of the campaign's segment. Nothing is sent or stored.

    Without a messenger only the variants are counted. At most `MAX_COUNTED` members are counted; the counts of all pages add up.
    Raises: NotFound, BadRequest (a bad cursor), DefinitionRefused (the trigger has no segment), BrokerUnavailable.
    """
    queries = reads.queries
    campaign = stored_campaign(queries, workspace, key)
    segment = _segment_of(campaign)
    size = queries.size(workspace, segment)
    tally = _Tally(reads, workspace, campaign, size["as_of"])
    while tally.counted < MAX_COUNTED:
        page = queries.members(workspace, segment, PageOf(_PAGE, cursor))
        tally.add([member["user_id"] for member in page["items"]])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    return {
        "segment": segment,
        "size": size["size"],
        "counted": tally.counted,
        "counts": tally.shown(),
        "next_cursor": cursor,
        "as_of": tally.as_of,
    }


class _Tally:
    """The decisions about the members of one dry run, counted."""

    def __init__(self, reads: Reads, workspace: str, campaign: Campaign, size_as_of: str | None) -> None:
        self.counted = 0
        self.as_of = size_as_of
        self._reads = reads
        self._workspace = workspace
        self._campaign = campaign
        self._inputs: DecisionInputs | None = None  # read once a messenger has answered
        self._counts: Counter[Shown] = Counter()

    def add(self, users: Sequence[str]) -> None:
        """Count what is decided about these users. Raises: BrokerUnavailable."""
        self.counted += len(users)
        known = self._reads.people.people(self._workspace, users)
        if known is None:
            self._counts.update(Shown(None, None, assignment_of(self._campaign, user).variant) for user in users)
            return
        if self._inputs is None:
            self._inputs = inputs_for(self._reads.queries, self._reads.suppressed, self._workspace, self._campaign)
        for user in users:
            self.as_of = as_of(known[user]) or self.as_of
            self._counts[decided_now(self._campaign, self._inputs, user, known[user])._replace(until=None)] += 1

    def shown(self) -> list[Document]:
        """Return the counts as in the response, in the order of decision, reason and variant."""
        return [
            {
                "verdict": shown.action,  # vocabulary: verdict: a field of the contract
                "reason": shown.reason,
                "variant": shown.variant,
                "count": count,
            }
            for shown, count in sorted(self._counts.items(), key=lambda one: [part or "" for part in one[0][:3]])
        ]


def _segment_of(campaign: Campaign) -> str:
    trigger = campaign.trigger
    segment = trigger.while_segment if isinstance(trigger, EventTrigger) else trigger.segment
    if segment is None:
        message, expected = "the trigger of the campaign names no segment", 'a trigger on a segment, or an event with "while"'
        raise DefinitionRefused((FieldError("/trigger", "no_members", message, expected),))
    return segment
