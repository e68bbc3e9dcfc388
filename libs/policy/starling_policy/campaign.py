"""Pure core: the fields of a campaign that the policy reads."""

from dataclasses import dataclass
from typing import Final

from starling_policy.bounds import DAY_MS, MAX_DEDUPE_KEY_CHARACTERS, MAX_PRIORITY, MAX_VARIANTS
from starling_policy.fields import Fields, read_choice, read_duration, read_key, read_percent, read_whole
from starling_policy.shares import WHOLE, Variant
from starling_segments import Known, check_bounds
from starling_segments.language.validation import Location, Validation, finish, refuse_unknown_fields
from starling_segments.parse.groups import read_object

DEFER: Final = "defer"
DROP: Final = "drop"
MODES: Final = (DEFER, DROP)
MARKETING: Final = "marketing"
TRANSACTIONAL: Final = "transactional"
"""The purpose that needs no consent and ignores quiet hours, caps, holdout and complaints."""
DEFAULT_PRIORITY: Final = 50
LONGEST_EXPIRES_AFTER: Final = "7d"
LONGEST_REENTRY: Final = "1095d"

POLICY_FIELDS_OF_CAMPAIGN: Final = frozenset({
    "key", "channel", "purpose", "priority", "expires_after", "quiet", "caps", "reentry", "dedupe_key", "holdout", "variants",
})  # fmt: skip
OTHER_FIELDS_OF_CAMPAIGN: Final = frozenset(
    {"name", "description", "trigger", "delay", "cancel", "target", "goal", "rate", "tags", "owner"}
)
"""The fields of a campaign that have no effect on the policy. They are not read."""
_VARIANT: Final = '{"key": "a", "weight": 50}'
_REENTRY: Final = 'always, once, or {"after": a duration}'


@dataclass(frozen=True, slots=True)
class MessageRules:
    """The rules of the messages of one campaign, or of a message without a campaign (`campaign` None).

    `reentry_ms`: 0 allows re-entry always, None never. `holdout_share`: in hundredths of a percent.
    """

    channel: str
    campaign: str | None = None
    purpose: str = MARKETING
    priority: int = DEFAULT_PRIORITY
    expires_after_ms: int = DAY_MS
    quiet: str = DEFER
    caps: str = DEFER
    reentry_ms: int | None = 0
    dedupe_key: str | None = None
    holdout_share: int = 0
    variants: tuple[Variant, ...] = ()

    @property
    def transactional(self) -> bool:
        """Return whether the purpose skips consent, quiet hours, caps, holdout and complaints."""
        return self.purpose == TRANSACTIONAL


def parse_campaign(document: object) -> MessageRules:
    """Return the rules of a campaign's JSON document. Fields without an effect on the policy are not read.

    Raises: DefinitionRefused with all validation errors; those of `check_bounds` alone, if there are any.
    """
    check_bounds(document)
    validation = Validation(Known())
    rules = read_campaign(document, Location(validation))
    finish(validation)
    return rules


def read_campaign(document: object, location: Location) -> MessageRules:
    """Read a campaign below `location`. Errors are recorded there."""
    fields = read_object(document, location, "a campaign: an object")
    if fields is None:
        return MessageRules("")
    refuse_unknown_fields(fields, POLICY_FIELDS_OF_CAMPAIGN | OTHER_FIELDS_OF_CAMPAIGN, location)
    return MessageRules(
        campaign=read_key(fields, "key", location),
        channel=read_key(fields, "channel", location),
        purpose=read_key(fields, "purpose", location, MARKETING),
        priority=read_whole(fields, "priority", location, 0, MAX_PRIORITY, DEFAULT_PRIORITY),
        expires_after_ms=read_duration(fields, "expires_after", location, LONGEST_EXPIRES_AFTER, DAY_MS),
        quiet=read_choice(fields, "quiet", location, MODES),
        caps=read_choice(fields, "caps", location, MODES),
        reentry_ms=_read_reentry(fields, location),
        dedupe_key=_read_dedupe_key(fields, location),
        holdout_share=_read_holdout(fields, location),
        variants=_read_variants(fields, location),
    )


def _read_reentry(fields: Fields, location: Location) -> int | None:
    value = fields.get("reentry")
    if value is None or value == "always":
        return 0
    if value == "once":
        return None
    child = location.at("reentry")
    inner = read_object(value, child, _REENTRY)
    if inner is None:
        return 0
    refuse_unknown_fields(inner, frozenset({"after"}), child)
    return read_duration(inner, "after", child, LONGEST_REENTRY)


def _read_dedupe_key(fields: Fields, location: Location) -> str | None:
    value = fields.get("dedupe_key")
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= MAX_DEDUPE_KEY_CHARACTERS:
        expected = f"a text of 1 to {MAX_DEDUPE_KEY_CHARACTERS} characters"
        location.at("dedupe_key").refuse("wrong_type", "the value is not a valid dedupe_key", expected)
        return None
    return value


def _read_holdout(fields: Fields, location: Location) -> int:
    if fields.get("holdout") is None:
        return 0
    child = location.at("holdout")
    inner = read_object(fields["holdout"], child, '{"percent": 10}')
    if inner is None:
        return 0
    refuse_unknown_fields(inner, frozenset({"percent"}), child)
    return read_percent(inner, "percent", child)


def _read_variants(fields: Fields, location: Location) -> tuple[Variant, ...]:
    value = fields.get("variants")
    if value is None:
        return ()
    child, expected = location.at("variants"), f"a list of 1 to {MAX_VARIANTS} variants: {_VARIANT}"
    if not isinstance(value, list) or not value:
        child.refuse("wrong_type", "the value is not a list of variants", expected)
        return ()
    if len(value) > MAX_VARIANTS:
        child.refuse("too_wide", f"the campaign has {len(value)} variants", expected)
        return ()
    errors = len(location.validation.errors)
    variants = tuple(_read_variant(one, child.at(i)) for i, one in enumerate(value))
    if len(location.validation.errors) > errors:
        return variants
    first: dict[str, int] = {}
    for i, variant in enumerate(variants):
        if first.setdefault(variant.key, i) != i:
            message = f"the key {variant.key!r} is that of variant {first[variant.key]} too"
            child.at(i, "key").refuse("key_taken", message, "a key for each variant")
    total = sum(variant.share for variant in variants)
    if total != WHOLE:
        child.refuse("out_of_range", f"the weights sum to {total / 100:g}", "weights that sum to 100")
    return variants


def _read_variant(document: object, location: Location) -> Variant:
    fields = read_object(document, location, _VARIANT)
    if fields is None:
        return Variant("", 0)
    refuse_unknown_fields(fields, frozenset({"key", "weight", "content", "locales"}), location)
    return Variant(read_key(fields, "key", location), read_percent(fields, "weight", location))
