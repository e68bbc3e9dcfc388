"""Pure core: the content of the variants of a campaign: one template for each part of a message, and for each locale."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starling_campaigns.bounds import MAX_LOCALES
from starling_campaigns.channels import Channel
from starling_campaigns.definitions.references import Fields
from starling_campaigns.locales import EXPECTED, fallbacks, is_locale
from starling_campaigns.templates.sandbox import check_template
from starling_policy.bounds import MAX_VARIANTS
from starling_segments.language.validation import Location, refuse_unknown_fields
from starling_segments.parse.groups import read_object

Parts = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Content:
    """The templates of one variant by part, and those of each locale, which replace them part by part."""

    base: Parts
    locales: Mapping[str, Parts] = field(default_factory=dict)

    def templates(self, locale: str | None) -> dict[str, str]:
        """Return the template of each part: that of the most specific locale which has the part, else the base."""
        found = dict(self.base)
        for one in reversed(fallbacks(locale)):
            found |= self.locales.get(one, {})
        return found


def read_contents(fields: Fields, location: Location, channel: Channel | None) -> dict[str, Content]:
    """Read the content of each variant by its key. The keys and weights have been checked before.

    `channel` None: the channel is unknown, so no part is checked.
    """
    variants = fields.get("variants")
    if variants is None:
        location.refuse("missing_field", "the variants are missing", '"variants": [{"key": "a", "weight": 100, "content": …}]')
        return {}
    found: dict[str, Content] = {}
    for i, variant in enumerate(variants if isinstance(variants, list) and len(variants) <= MAX_VARIANTS else ()):
        if isinstance(variant, dict):
            found[str(variant.get("key"))] = _read_content(variant, location.at("variants", i), channel)
    return found


def _read_content(variant: Fields, location: Location, channel: Channel | None) -> Content:
    if channel is None:
        return Content({})
    names = ", ".join(part.name for part in channel.parts)
    expected = f'"content": an object with {names}'
    if variant.get("content") is None:
        location.refuse("missing_field", "the content is missing", expected)
        return Content({})
    child = location.at("content")
    base = _read_parts(variant["content"], child, channel)
    for part in channel.parts:
        if part.required and part.name not in base and not _was_given(variant["content"], part.name):
            child.refuse("missing_field", f"{part.name!r} is missing", f'"{part.name}": a template')
    if channel.one_of and not any(_was_given(variant["content"], name) for name in channel.one_of):
        child.refuse("missing_field", f"{' and '.join(channel.one_of)} are missing", "at least one of " + ", ".join(channel.one_of))
    return Content(base, _read_locales(variant, location, channel))


def _was_given(content: object, name: str) -> bool:
    """Return whether the part is there, valid or not: an invalid one is reported already."""
    return not isinstance(content, dict) or content.get(name) is not None


def _read_parts(document: object, location: Location, channel: Channel) -> dict[str, str]:
    fields = read_object(document, location, "an object with " + ", ".join(part.name for part in channel.parts))
    if fields is None:
        return {}
    refuse_unknown_fields(fields, frozenset(part.name for part in channel.parts), location)
    found: dict[str, str] = {}
    for part in channel.parts:
        source, child = fields.get(part.name), location.at(part.name)
        if source is None:
            continue
        if not isinstance(source, str):
            child.refuse("wrong_type", "the value is not a template", "a text")
            continue
        for error in check_template(source, is_header=part.is_header):
            child.refuse(*error)
        found[part.name] = source
    return found


def _read_locales(variant: Fields, location: Location, channel: Channel) -> dict[str, Parts]:
    value: Any = variant.get("locales")
    if value is None:
        return {}
    child = location.at("locales")
    fields = read_object(value, child, '{"ja": content}')
    if fields is None:
        return {}
    if len(fields) > MAX_LOCALES:
        child.refuse("too_wide", f"the variant has {len(fields)} locales", f"at most {MAX_LOCALES}")
        return {}
    found: dict[str, Parts] = {}
    for locale, content in fields.items():
        if not is_locale(locale):
            child.at(locale).refuse("bad_locale", f"{locale!r} is not a locale", EXPECTED)
        found[locale] = _read_parts(content, child.at(locale), channel)
    return found
