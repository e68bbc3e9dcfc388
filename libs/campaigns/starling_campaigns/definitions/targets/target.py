"""Pure core: the targets: where and as whom messages and feeds are sent. A document is parsed whole, or refused with all errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starling_campaigns.definitions.references import Fields, References, read_heading, read_new_key, read_segment_key
from starling_campaigns.definitions.targets.audience import AUDIENCE_ID
from starling_campaigns.definitions.targets.feeds import BROKERS
from starling_campaigns.definitions.targets.field import MASK, SEALED, TargetField
from starling_campaigns.definitions.targets.table import CHANNEL_FIELDS, COMMON_FIELDS, of_channel
from starling_campaigns.definitions.targets.values import is_segments
from starling_segments import Known, check_bounds
from starling_segments.language.validation import Location, Validation, finish, refuse_unknown_fields
from starling_segments.parse.groups import read_object


@dataclass(frozen=True, slots=True)
class Target:
    """One target. `settings`: the fields of its channel, secrets included; no representation shows them."""

    key: str
    name: str
    channel: str
    settings: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Target(key={self.key!r}, channel={self.channel!r})"


def parse_target(document: object, taken_keys: frozenset[str] = frozenset(), references: References | None = None) -> Target:
    """Return the target of a JSON document, whose masked secrets are completed. Raises: DefinitionRefused with all errors.

    `references`: the names to which the segments of a feed are compared; None for a stored document.
    """
    check_bounds(document)
    validation = Validation(Known())
    location = Location(validation)
    fields = read_object(document, location, "a target: an object")
    finish(validation)
    assert fields is not None  # noqa: S101 - anything else is refused
    key = read_new_key(fields, location, taken_keys)
    name, _ = read_heading(fields, location, name_required=False)
    channel = fields.get("channel")
    if channel is None:
        location.refuse("missing_field", "the channel is missing", '"channel": one of ' + ", ".join(CHANNEL_FIELDS))
    elif not isinstance(channel, str) or channel not in CHANNEL_FIELDS:
        location.at("channel").refuse("wrong_type", "the value is not a channel", "one of " + ", ".join(CHANNEL_FIELDS))
    else:
        table = CHANNEL_FIELDS[channel]
        refuse_unknown_fields(fields, COMMON_FIELDS | table.keys(), location)
        _check(fields, table, location)
        _check_variant(fields, of_channel(channel), location)
        _check_feed(fields, table, location, references)
    finish(validation)
    settings = {name: fields[name] for name in CHANNEL_FIELDS[str(channel)] if fields.get(name) is not None}
    return Target(key, name, str(channel), settings)


def _check(fields: Fields, table: Mapping[str, TargetField], location: Location) -> None:
    for name, field in table.items():
        value, child = fields.get(name), location.at(name)
        expected = "an object" if field.kind is None else field.kind.expected
        if value is None:
            if field.required:
                location.refuse("missing_field", f"{name!r} is missing", f'"{name}": {expected}')
        elif field.fields is not None:
            inner = read_object(value, child, "an object with " + ", ".join(field.fields))
            if inner is not None:
                refuse_unknown_fields(inner, frozenset(field.fields), child)
                _check(inner, field.fields, child)
                _check_variant(inner, field, child)
        elif field.each is not None:
            inner = read_object(value, child, expected)
            if inner is not None and field.kind is not None and not field.kind.is_valid(inner):
                child.refuse("wrong_type", f"the names are not valid for {name!r}", expected)
            elif inner is not None:
                _check(inner, dict.fromkeys(inner, field.each), child)
        elif field.secret and value == MASK:
            child.refuse("wrong_type", f"{MASK} stands for a stored value, and there is none", expected)
        elif field.secret and isinstance(value, str) and value.startswith(SEALED):
            continue
        elif field.kind is not None and not field.kind.is_valid(value):
            child.refuse("wrong_type", f"the value is not valid for {name!r}", expected)


def _check_feed(fields: Fields, table: Mapping[str, TargetField], location: Location, references: References | None) -> None:
    """Refuse unknown or archived segments, audiences that are not those of the segments, and the security of no cluster."""
    segments = fields.get("segments")
    if "segments" in table and is_segments(segments):
        keys: list[str] = list(segments or ())
        if references is not None:
            for index, key in enumerate(keys):
                read_segment_key({str(index): key}, str(index), location.at("segments"), references)
        _check_audiences(fields.get("audiences"), keys, location)
    if "bootstrap_servers" in table and fields.get("security") is not None and fields.get("bootstrap_servers") is None:
        expected = '"bootstrap_servers": ' + BROKERS.expected
        location.refuse("missing_field", "'security' belongs to 'bootstrap_servers', which is missing", expected)


def _check_audiences(audiences: object, segments: Sequence[str], location: Location) -> None:
    """Refuse audiences that are not those of the segments."""
    if not isinstance(audiences, Mapping):
        return
    for key in segments:
        if key not in audiences:
            what = f"the segment {key!r} has no audience"
            location.at("audiences").refuse("missing_field", what, f'"{key}": {AUDIENCE_ID.expected}')
    for key in audiences:
        if key not in segments:
            location.at("audiences").at(key).refuse("unknown_field", f"{key!r} is none of the segments", "a key of segments")


def _check_variant(fields: Fields, field: TargetField, location: Location) -> None:
    """Refuse the fields that do not go with the selected variant, and those of it that are missing."""
    selector, variants, table = field.selector, field.variants, field.fields
    if selector is None or variants is None or table is None:
        return
    selected = fields.get(selector)
    allowed = variants.get(selected) if isinstance(selected, str) else None
    if allowed is None:
        return  # refused already
    for name, one in table.items():
        is_given = fields.get(name) is not None
        if is_given and name != selector and name not in allowed:
            location.at(name).refuse("wrong_type", f"{name!r} does not go with {selected}", "only " + ", ".join(allowed))
        elif not is_given and allowed.get(name):
            expected = "" if one.kind is None else one.kind.expected
            location.refuse("missing_field", f"{name!r} is missing for {selected}", f'"{name}": {expected}')
