"""Core: the rendered message of a campaign for one user, and how many members are in each variant and in the holdout."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from starling_api.campaigns.decision import UNKNOWN_DECISION
from starling_api.definitions.kinds import CAMPAIGNS
from starling_api.http.errors import NotFound
from starling_api.http.pagination import PageOf
from starling_api.users.queries import Queries
from starling_campaigns import Campaign, PartFailed, assignment_of, parse_stored_campaign, render_message
from starling_campaigns.definitions.triggers import EventTrigger
from starling_campaigns.locales import EXPECTED, canonical_locale
from starling_segments import DefinitionRefused, FieldError, Known
from starling_segments.language.validation import Location, Validation, finish, refuse_unknown_fields

Document = dict[str, Any]

MAX_USER_BYTES: Final = 512
MAX_COUNTED: Final = 10_000
"""Maximum members that one dry run counts. `next_cursor` continues."""
_PAGE: Final = 1_000
FIELDS: Final = frozenset({"user", "variant", "locale", "event"})
_EVENT_FIELDS: Final = frozenset({"name", "properties"})


@dataclass(frozen=True, slots=True)
class RequestedPreview:
    """A requested preview. None: the user's own variant, the locale of the traits, no event."""

    user: str
    variant: str | None
    locale: str | None
    event: Mapping[str, Any] | None


def requested_preview(document: object) -> RequestedPreview:
    """Return the preview of a body. Raises: DefinitionRefused with all errors."""
    if not isinstance(document, dict):
        raise DefinitionRefused((FieldError("", "wrong_type", "it is not an object", 'an object with "user"'),))
    validation = Validation(Known())
    location = Location(validation)
    refuse_unknown_fields(document, FIELDS, location)
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
    finish(validation)
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


def previewed(queries: Queries, workspace: str, key: str, wanted: RequestedPreview) -> Document:
    """Return the rendered parts of a message. Nothing is sent or stored.

    Raises: NotFound (campaign or user), DefinitionRefused (an unknown variant, or a template that fails with this data).
    """
    campaign = stored_campaign(queries, workspace, key)
    if wanted.variant is not None and wanted.variant not in campaign.contents:
        message, expected = f"there is no variant {wanted.variant!r}", "one of " + ", ".join(campaign.contents)
        raise DefinitionRefused((FieldError("/variant", "unknown_variant", message, expected),))
    profile = queries.profile(workspace, wanted.user)
    assignment = assignment_of(campaign, wanted.user)
    variant = assignment.variant if wanted.variant is None else wanted.variant
    try:
        rendered = render_message(campaign, variant, wanted.user, profile["traits"], wanted.event, wanted.locale)
    except PartFailed as failed:
        expected = "a template and data that fit"
        raise DefinitionRefused(
            (FieldError(f"/{failed.part}" if failed.part else "", failed.code, str(failed), expected),)
        ) from failed
    return {
        **rendered.parts,
        "missing": list(rendered.missing),
        "variant": variant,
        "held_out": assignment.held_out,
        "locale": rendered.locale,
        "sms": None if rendered.sms is None else rendered.sms._asdict(),
        "verdict": None,  # vocabulary: verdict: a field of the contract
        "verdict_reason": UNKNOWN_DECISION,  # vocabulary: verdict: a field of the contract
        "as_of": profile["as_of"],
    }


def dry_run(queries: Queries, workspace: str, key: str, cursor: str | None) -> Document:
    """Return how many of the next members of the campaign's segment are in each variant and in its holdout.

    At most `MAX_COUNTED` members are counted; the counts of all pages add up. Raises: NotFound, BadRequest (a bad cursor),
    DefinitionRefused (the trigger has no segment).
    """
    campaign = stored_campaign(queries, workspace, key)
    segment = _segment_of(campaign)
    counts: Counter[tuple[str, bool]] = Counter()
    size = queries.size(workspace, segment)
    counted, as_of = 0, size["as_of"]
    while counted < MAX_COUNTED:
        page = queries.members(workspace, segment, PageOf(_PAGE, cursor))
        for member in page["items"]:
            counts[assignment_of(campaign, member["user_id"])] += 1
        counted += len(page["items"])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    return {
        "segment": segment,
        "size": size["size"],
        "counted": counted,
        "counts": [
            {"variant": variant, "held_out": held_out, "count": counts[variant, held_out]}
            for variant in campaign.contents
            for held_out in (False, True)
        ],
        "verdict": None,  # vocabulary: verdict: a field of the contract
        "verdict_reason": UNKNOWN_DECISION,  # vocabulary: verdict: a field of the contract
        "next_cursor": cursor,
        "as_of": as_of,
    }


def _segment_of(campaign: Campaign) -> str:
    trigger = campaign.trigger
    segment = trigger.while_segment if isinstance(trigger, EventTrigger) else trigger.segment
    if segment is None:
        message, expected = "the trigger of the campaign names no segment", 'a trigger on a segment, or an event with "while"'
        raise DefinitionRefused((FieldError("/trigger", "no_members", message, expected),))
    return segment
