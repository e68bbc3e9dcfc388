"""Pure core: the kinds of definitions: topic, meaningful fields and validation of each."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from starling_api.definitions.event_types import (
    FIELDS as EVENT_TYPE_FIELDS,
)
from starling_api.definitions.event_types import (
    Statement,
    broken_errors,
    event_type_fields,
    same_types,
    taken_errors,
)
from starling_api.definitions.statements import SQL_FIELDS, is_sql, same_language, sql_fields
from starling_api.definitions.webhook_fields import (
    batch_errors,
    format_errors,
    header_errors,
    rate_errors,
    secrets_of_webhook,
    shown_webhook,
    stored_fields,
    unmasked,
    with_previous_secret,
)
from starling_campaigns import (
    References,
    parse_campaign,
    parse_stored_policy,
    parse_target,
    secrets_of_target,
    shown_target,
    unmasked_target,
)
from starling_campaigns.channels import AUDIENCE, CHANNELS_WITHOUT_CAMPAIGNS, KAFKA
from starling_campaigns.definitions.policy import POLICY_KEY
from starling_campaigns.definitions.targets import CHANNEL_FIELDS, HTTP
from starling_common.cassandra.read_models import CAMPAIGN, COMPUTED_TRAIT, EVENT_TYPE, LIST, POLICY, SEGMENT, TARGET, VIEW, WEBHOOK
from starling_common.http.web_address import parse_web_address
from starling_common.kafka.topics import (
    DELIVERY_DEFINITIONS,
    LAKE_DEFINITIONS,
    LIST_DEFINITIONS,
    SEGMENT_DEFINITIONS,
    TRAIT_DEFINITIONS,
    WEBHOOK_DEFINITIONS,
    load_catalogue,
)
from starling_common.sealing import is_sealed
from starling_policy.campaign import OTHER_FIELDS_OF_CAMPAIGN, POLICY_FIELDS_OF_CAMPAIGN
from starling_policy.document import POLICY_FIELDS
from starling_rules.sql.event_types import KEY_PATTERN as TABLE_KEY_PATTERN
from starling_rules.sql.event_types import EventType, is_key, with_event_types
from starling_segments import DefinitionRefused, FieldError, Known, parse_measure, parse_segment
from starling_segments.language.validation import Location, Validation
from starling_segments.parse.document import KEY_PATTERN, LABELS, MAX_NAME_CHARACTERS, description_errors, read_labels
from starling_segments.parse.windows import WINDOW_FIELDS

Document = dict[str, Any]

READ_ONLY: Final = frozenset({
    "version", "revision", "status", "created_at", "updated_at", "used_by", "as_of", "size", "backfill", "progress", "broadcast",
    "last_run", "next_run_at", "disabled", "disabled_because", "previous_secret_expires_at",
})  # fmt: skip
"""Response fields that only the server writes. They are removed from a body after `refuse_read_only` has compared them."""

WEBHOOK_EVENTS: Final = ("entered", "exited")
_WEBHOOK_FIELDS: Final = frozenset({"key", "url", "secret", "segments", "events", "format", "headers", "batch", "rate"})
MAX_URL_CHARACTERS: Final = 2000
_SECRET_MARK: Final = "whsec_"  # noqa: S105 - the public prefix of every secret
_KEY = re.compile(KEY_PATTERN[:-1] + r"\Z")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of definition. `meaning`: the fields whose change makes a new version. `hidden`: the field that only the response
    to the creation contains, of the documents with `has_hidden`. `read` returns the document to store and raises DefinitionRefused
    with all errors.

    `completed` adds to a body what the stored document has and responses do not show. `followed` adds to a document what it keeps
    of the one before (document, the one before, time in ms). `shown` returns the document of a response. `secrets` returns the path
    of each secret in a document, whose values are texts.
    """

    name: str
    title: str
    topic: str
    meaning: frozenset[str]
    read: Callable[[object, Known], Document]
    hidden: str | None = None
    has_hidden: Callable[[Mapping[str, Any]], bool] = lambda _document: True
    completed: Callable[[Mapping[str, Any], Mapping[str, Any] | None], Document] = lambda document, _before: dict(document)
    followed: Callable[[Document, Mapping[str, Any], int], Document] = lambda document, _before, _now_ms: document
    shown: Callable[[Mapping[str, Any]], Document] = dict
    secrets: Callable[[Mapping[str, Any]], Sequence[tuple[str, ...]]] = lambda _document: ()


@dataclass(frozen=True)
class Names(Known):
    """The names to which a definition may refer, beyond those of a segment. `targets`: key -> channel.

    `event_types`: those in force; `statements`: those in force that may read their tables.
    """

    targets: Mapping[str, str] = field(default_factory=dict)
    archived_segments: frozenset[str] = frozenset()
    archived_targets: frozenset[str] = frozenset()
    event_types: Sequence[EventType] = ()
    statements: Sequence[Statement] = ()

    def references(self) -> References:
        """Return the names for the parser of campaigns."""
        return References(self, self.targets, self.archived_segments, self.archived_targets, self.taken_keys)


def _event_types(known: Known) -> Sequence[EventType]:
    return known.event_types if isinstance(known, Names) else ()


def read_campaign(document: object, known: Known) -> Document:
    """Return the document of a campaign, without its null fields. Raises: DefinitionRefused."""
    given = _writable(document)
    parse_campaign(given, known.references() if isinstance(known, Names) else References(known))
    return {name: value for name, value in given.items() if value is not None}


def read_target(document: object, known: Known) -> Document:
    """Return the document of a target, secrets included, without its null fields. Raises: DefinitionRefused."""
    given = _writable(document)
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
        **_described(given),
        **target.settings,
        **_labels(given),
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
    given = _writable(document)
    fields = {name: value for name, value in given.items() if name != "key"} if isinstance(given, Mapping) else given
    parse_stored_policy(fields, known.timezone)
    return {"key": POLICY_KEY, **{name: value for name, value in fields.items() if value is not None}}


def read_segment(document: object, known: Known) -> Document:
    """Return the document of a segment with its defaults filled in. Raises: DefinitionRefused."""
    given = _writable(document)
    segment = parse_segment(given, known)
    return {
        "key": segment.key,
        "name": segment.name,
        "description": segment.description,
        "timezone": segment.timezone,
        **_labels(given),
        "where": given["where"],
    }


def read_trait(document: object, known: Known) -> Document:
    """Return the document of a computed trait: `{key, name?, timezone?, event, where?, measure?, a window?}`.

    A ratio has no event of its own. A trait in SQL is `{key, name?, timezone?, sql, schedule, checks?}`. Raises: DefinitionRefused.
    """
    given = {field: value for field, value in _object(document).items() if field == "key" or value is not None}
    errors = _key_errors(given, known) + _name_errors(given)
    errors += _label_errors(given)
    if is_sql(given):
        return _sql_trait(given, known, errors)
    own = {"key", "name"} | LABELS
    present = {field: value for field, value in given.items() if field not in own and value is not None}
    measured = {field: value for field, value in present.items() if field != "timezone"}
    timezone = present.get("timezone") or known.timezone
    try:
        parse_measure(measured, timezone)
    except DefinitionRefused as refused:
        errors += refused.errors
    _finish(errors)
    # An implicit UTC is not stored, so that documents without a time zone stay equal.
    zoned = {} if "timezone" not in present and timezone == "UTC" else {"timezone": timezone}
    return {
        "key": given["key"],
        "name": given.get("name") or given["key"],
        "measure": "count",
        **measured,
        **zoned,
        **_labels(given),
    }


def _sql_trait(given: Document, known: Known, errors: tuple[FieldError, ...]) -> Document:
    fields, more = sql_fields(given, known.timezone, with_event_types(_event_types(known)))
    _finish(errors + more + _unknown_field_errors(given, "computed trait in SQL", SQL_FIELDS | {"key", "name"} | LABELS))
    return {"key": given["key"], "name": given.get("name") or given["key"], **fields, **_labels(given)}


def read_webhook(document: object, known: Known) -> Document:
    """Return the document of a webhook: `{key, url, secret, segments?, events?, format?, headers?, batch?, rate?}`.

    The caller has added a missing secret. Raises: DefinitionRefused.
    """
    given = _object(document)
    errors = _key_errors(given, known) + _url_errors(given) + _secret_errors(given) + _segments_errors(given, known)
    errors += _events_errors(given) + format_errors(given) + header_errors(given) + batch_errors(given)
    errors += rate_errors(given)
    errors += _unknown_field_errors(given, WEBHOOKS.title, _WEBHOOK_FIELDS | LABELS)
    errors += _label_errors(given)
    _finish(errors)
    return {
        "key": given["key"],
        "url": given["url"],
        "secret": given["secret"],
        "segments": given.get("segments"),
        "events": given.get("events") or list(WEBHOOK_EVENTS),
        **stored_fields(given),
        **_labels(given),
    }


def read_list(document: object, known: Known) -> Document:
    """Return the document of a list: `{key, name?, description?}`. Members are uploaded separately. Raises: DefinitionRefused."""
    given = _object(document)
    errors = _key_errors(given, known) + _name_errors(given) + _text_errors(given)
    errors += _unknown_field_errors(given, LISTS.title, frozenset({"key", "name", "description"}) | LABELS) + _label_errors(given)
    _finish(errors)
    described = {"description": given.get("description") or ""}
    return {"key": given["key"], "name": given.get("name") or given["key"], **described, **_labels(given)}


def read_event_type(document: object, known: Known) -> Document:
    """Return the document of an event type: `{key, event, description?, properties, checks?, schedule?, timezone?, within?}`.

    Raises: DefinitionRefused.
    """
    given = _object(document)
    fields, more = event_type_fields(given, known.timezone)
    errors = _key_errors(given, known) + more + _label_errors(given)
    _finish(errors + _unknown_field_errors(given, EVENT_TYPES.title, EVENT_TYPE_FIELDS | LABELS))
    statements = known.statements if isinstance(known, Names) else ()
    _finish(taken_errors(fields, _event_types(known)) + broken_errors(fields, _event_types(known), statements))
    return {**fields, **_labels(given)}


def read_view(document: object, known: Known) -> Document:
    """Return the document of a view: `{key, name?, description?, timezone?, sql, schedule, checks?}`. Raises: DefinitionRefused."""
    given = {"sql": None, **_object(document)}
    errors = _key_errors(given, known) + _name_errors(given) + _text_errors(given) + _label_errors(given)
    if isinstance(given.get("key"), str) and not is_key(given["key"]):
        errors += (FieldError("/key", "bad_key", "it is no name of a table", TABLE_KEY_PATTERN),)
    fields, more = sql_fields(given, known.timezone, with_event_types(_event_types(known)), is_view=True)
    _finish(errors + more + _unknown_field_errors(given, VIEWS.title, SQL_FIELDS | {"key", "name", "description"} | LABELS))
    described = {"description": given.get("description") or ""}
    return {"key": given["key"], "name": given.get("name") or given["key"], **described, **fields, **_labels(given)}


def new_secret(random_bytes: bytes) -> str:
    """Return a secret in the format of Standard Webhooks. Shape: 24 to 64 random bytes."""
    return _SECRET_MARK + base64.b64encode(random_bytes).decode()


SEGMENTS: Final = Kind(SEGMENT, "segment", SEGMENT_DEFINITIONS, frozenset({"where", "timezone"}), read_segment)
TRAITS: Final = Kind(
    COMPUTED_TRAIT,
    "computed trait",
    TRAIT_DEFINITIONS,
    frozenset({"event", "where", "measure", "timezone", "sql", "checks"}) | WINDOW_FIELDS,
    read_trait,
    followed=same_language,
)
WEBHOOKS: Final = Kind(
    WEBHOOK,
    "webhook",
    WEBHOOK_DEFINITIONS,
    _WEBHOOK_FIELDS - {"key"},
    read_webhook,
    hidden="secret",
    completed=unmasked,
    followed=with_previous_secret,
    shown=shown_webhook,
    secrets=secrets_of_webhook,
)

CAMPAIGNS: Final = Kind(
    CAMPAIGN,
    "campaign",
    DELIVERY_DEFINITIONS,
    (POLICY_FIELDS_OF_CAMPAIGN | OTHER_FIELDS_OF_CAMPAIGN) - {"key", "name", "description"} - LABELS,
    read_campaign,
)
TARGETS: Final = Kind(
    TARGET,
    "target",
    DELIVERY_DEFINITIONS,
    frozenset({"channel"}).union(*CHANNEL_FIELDS.values()),
    read_target,
    hidden="secret",
    has_hidden=is_signing,
    completed=unmasked_target,
    shown=shown_target,
    secrets=secrets_of_target,
)
POLICIES: Final = Kind(POLICY, "policy", DELIVERY_DEFINITIONS, POLICY_FIELDS, read_policy)

LISTS: Final = Kind(LIST, "list", LIST_DEFINITIONS, frozenset(), read_list)
VIEWS: Final = Kind(VIEW, "view", LAKE_DEFINITIONS, frozenset({"sql", "timezone", "checks"}), read_view)
EVENT_TYPES: Final = Kind(
    EVENT_TYPE,
    "event type",
    LAKE_DEFINITIONS,
    frozenset({"event", "properties", "checks", "timezone", "within"}),
    read_event_type,
    followed=same_types,
)


def _writable(document: object) -> Any:
    if not isinstance(document, Mapping):
        return document
    return {field: value for field, value in document.items() if field not in READ_ONLY}


def _object(document: object) -> Document:
    given = _writable(document)
    if not isinstance(given, dict):
        raise DefinitionRefused((FieldError("", "wrong_type", "it is not an object", "a JSON object"),))
    return given


def _key_errors(given: Document, known: Known) -> tuple[FieldError, ...]:
    key = given.get("key")
    if key is None:
        return (FieldError("", "missing_field", "it has no key", f'"key": {KEY_PATTERN}'),)
    if not isinstance(key, str) or not _KEY.match(key):
        return (FieldError("/key", "bad_key", "it is not a key", KEY_PATTERN),)
    if key in known.taken_keys:
        return (FieldError("/key", "key_taken", f"{key!r} is or was in use", "a key never used before"),)
    return ()


def _described(given: Document) -> Document:
    return {"description": given["description"]} if given.get("description") else {}


def _labels(given: Document) -> Document:
    """Return the non-empty tags and owner."""
    return {field: given[field] for field in ("tags", "owner") if given.get(field)}


def _label_errors(given: Document) -> tuple[FieldError, ...]:
    reading = Validation(Known())
    read_labels(given, Location(reading))
    return tuple(reading.errors)


def _unknown_field_errors(given: Document, title: str, allowed: frozenset[str]) -> tuple[FieldError, ...]:
    expected = "one of " + ", ".join(sorted(allowed))
    return tuple(
        FieldError(f"/{_escaped(field)}", "unknown_field", f"{field!r} is not a field of a {title}", expected)
        for field in given
        if field not in allowed
    )


def _name_errors(given: Document) -> tuple[FieldError, ...]:
    name = given.get("name")
    if name is None or (isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARACTERS):
        return ()
    return (FieldError("/name", "wrong_type", "it is not a name", f"text of 1 to {MAX_NAME_CHARACTERS} characters"),)


def _text_errors(given: Document) -> tuple[FieldError, ...]:
    description = given.get("description")
    if not isinstance(description, str | None):
        return (FieldError("/description", "wrong_type", "it is not a text", "a text, or null"),)
    return () if description is None else description_errors(description)


def _url_errors(given: Document) -> tuple[FieldError, ...]:
    url = given.get("url")
    expected = (
        f"an http or https URL of at most {MAX_URL_CHARACTERS} characters, without user name and password, such as "
        "https://hooks.example.com/starling; labels of the host have 1 to 63 characters that IDNA 2008 allows"
    )
    if url is None:
        return (FieldError("", "missing_field", "it has no url", f'"url": {expected}'),)
    reason = _why_not_callable(url)
    return () if reason is None else (FieldError("/url", "wrong_type", reason, expected),)


def _why_not_callable(url: object) -> str | None:
    if not isinstance(url, str):
        return "it is not a text"
    if len(url) > MAX_URL_CHARACTERS:
        return f"it has {len(url)} characters"
    try:
        address = parse_web_address(url)
    except ValueError as error:
        return str(error)
    return "it contains a user name or a password" if address.has_credentials else None


def _secret_errors(given: Document) -> tuple[FieldError, ...]:
    secret = given.get("secret")
    if is_sealed(secret):
        return ()
    if isinstance(secret, str) and secret.startswith(_SECRET_MARK):
        try:
            if 24 <= len(base64.b64decode(secret.removeprefix(_SECRET_MARK), validate=True)) <= 64:
                return ()
        except (binascii.Error, ValueError):
            pass  # not base64, so not a secret
    return (FieldError("/secret", "wrong_type", "it is not a secret", "whsec_ and the base64 of 24 to 64 random bytes, or null"),)


def _segments_errors(given: Document, known: Known) -> tuple[FieldError, ...]:
    segments = given.get("segments")
    if segments is None:
        return ()
    if not isinstance(segments, list) or not segments:
        return (FieldError("/segments", "wrong_type", "it is not a list of segments", "a list of keys, or null for every segment"),)
    return tuple(
        FieldError(f"/segments/{index}", "unknown_segment", f"there is no segment {key!r}", "the key of a segment")
        for index, key in enumerate(segments)
        if not isinstance(key, str) or key not in known.segments
    )


def _events_errors(given: Document) -> tuple[FieldError, ...]:
    events = given.get("events")
    if events is None or (isinstance(events, list) and events and all(event in WEBHOOK_EVENTS for event in events)):
        return ()
    return (FieldError("/events", "wrong_type", "it is not a list of events", "a list of " + ", ".join(WEBHOOK_EVENTS)),)


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _finish(errors: tuple[FieldError, ...]) -> None:
    if errors:
        raise DefinitionRefused(errors)
