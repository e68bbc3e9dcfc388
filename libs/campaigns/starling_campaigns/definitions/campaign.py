"""Pure core: the document of a campaign: reads untrusted JSON, or returns all validation errors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from zoneinfo import ZoneInfo

from starling_campaigns.bounds import DEFAULT_RATE, LONGEST_DELAY, MAX_RATE
from starling_campaigns.channels import CHANNELS, Channel
from starling_campaigns.definitions.content import Content, read_contents
from starling_campaigns.definitions.references import Fields, References, is_no_time, read_heading, read_new_key
from starling_campaigns.definitions.triggers import (
    BY_DEFAULT,
    BroadcastTrigger,
    Cancel,
    Goal,
    Trigger,
    read_cancel,
    read_goal,
    read_trigger,
)
from starling_policy import MessageRules, read_campaign
from starling_policy.fields import KEY, read_duration, read_whole
from starling_segments import Known, check_bounds
from starling_segments.language.validation import FieldError, Location, Validation, finish
from starling_segments.parse.document import KEY_PATTERN
from starling_segments.parse.groups import read_object

REQUIRED_FIELDS: Final = ("key", "name", "trigger", "channel", "target", "variants")
NO_REFERENCES: Final = References()


@dataclass(frozen=True, slots=True)
class Campaign:
    """One campaign. `rules`: what the policy reads. `delay_ms` runs from the trigger. `contents`: by the key of the variant.

    `rate`: maximum messages a second of a broadcast.
    """

    key: str
    name: str
    description: str
    trigger: Trigger
    rules: MessageRules
    target: str
    contents: Mapping[str, Content]
    delay_ms: int = 0
    cancel: Cancel = BY_DEFAULT
    goal: Goal | None = None
    rate: int = DEFAULT_RATE

    @property
    def channel(self) -> Channel:
        """Return the channel of the campaign."""
        return CHANNELS[self.rules.channel]


def parse_campaign(document: object, references: References = NO_REFERENCES) -> Campaign:
    """Return the campaign of a JSON document.

    Raises: DefinitionRefused with all validation errors; those of `check_bounds` alone, if there are any.
    """
    check_bounds(document)
    validation = Validation(references.known)
    validation.zone = ZoneInfo(references.known.timezone)
    location = Location(validation)
    fields = read_object(document, location, "a campaign: an object")
    finish(validation)
    assert fields is not None  # noqa: S101 - anything else is refused
    key = read_new_key(fields, location, references.taken_keys)
    name, description = read_heading(fields, location, name_required=True)
    rules = read_campaign(fields, Location(policy := Validation(references.known)))
    validation.errors.extend(error for error in policy.errors if not _is_of_key(error))
    trigger = read_trigger(fields, location, references)
    channel = _read_channel(fields, location)
    campaign = Campaign(
        key,
        name,
        description,
        trigger or BroadcastTrigger(""),
        rules,
        target=_read_target(fields, location, channel, references),
        contents=read_contents(fields, location, channel),
        delay_ms=_read_delay(fields, location, trigger),
        cancel=read_cancel(fields, location),
        goal=read_goal(fields, location),
        rate=_read_rate(fields, location, trigger),
    )
    finish(validation)
    return campaign


def parse_stored_campaign(document: Mapping[str, Any]) -> Campaign:
    """Return the campaign of a document that was accepted before: what it refers to counts as known.

    Raises: DefinitionRefused if this version cannot parse it.
    """
    trigger = document.get("trigger")
    named = [trigger.get(field) for field in ("enter", "exit", "while", "broadcast")] if isinstance(trigger, dict) else []
    channel = CHANNELS.get(str(document.get("channel")))
    target = document.get("target")
    segments = {key: frozenset[str]() for key in named if isinstance(key, str)}
    targets = {target: channel.targets[0]} if isinstance(target, str) and channel is not None else {}
    return parse_campaign(document, References(Known(segments), targets))


def _is_of_key(error: FieldError) -> bool:
    """Return whether the error is that of the key, which is read here with the keys in use."""
    return error.pointer == "/key" or (error.pointer == "" and error.message.startswith("'key'"))


def _read_channel(fields: Fields, location: Location) -> Channel | None:
    """Return the channel; None after an error. That it is missing or not a key has been reported before."""
    name = fields.get("channel")
    if not isinstance(name, str) or not KEY.match(name):
        return None
    if name not in CHANNELS:
        location.at("channel").refuse("wrong_type", f"there is no channel {name!r}", "one of " + ", ".join(CHANNELS))
    return CHANNELS.get(name)


def _read_target(fields: Fields, location: Location, channel: Channel | None, references: References) -> str:
    target, child = fields.get("target"), location.at("target")
    if target is None:
        location.refuse("missing_field", "the target is missing", '"target": the key of a target')
    elif not isinstance(target, str) or not KEY.match(target):
        child.refuse("bad_key", "the value is not the key of a target", KEY_PATTERN)
    elif target in references.archived_targets:
        child.refuse("unknown_target", f"the target {target!r} is archived", "the key of a target in use")
    elif target not in references.targets:
        child.refuse("unknown_target", f"there is no target {target!r}", "the key of a target: POST /v1/targets makes one")
    elif channel is not None and references.targets[target] not in channel.targets:
        message = f"the target {target!r} sends {references.targets[target]}, not {channel.name}"
        child.refuse("unknown_target", message, "a target of the channel " + " or ".join(channel.targets))
    else:
        return target
    return ""


def _read_delay(fields: Fields, location: Location, trigger: Trigger | None) -> int:
    if fields.get("delay") is None or is_no_time(fields["delay"]):
        return 0
    if isinstance(trigger, BroadcastTrigger):
        location.at("delay").refuse("unknown_field", "a broadcast has its own instant", "no delay")
    return read_duration(fields, "delay", location, LONGEST_DELAY)


def _read_rate(fields: Fields, location: Location, trigger: Trigger | None) -> int:
    if fields.get("rate") is not None and trigger is not None and not isinstance(trigger, BroadcastTrigger):
        location.at("rate").refuse("unknown_field", "a rate limits broadcasts alone", "no rate")
    return read_whole(fields, "rate", location, 1, MAX_RATE, DEFAULT_RATE)
