"""Every example of the reference of campaigns is accepted, and the page states the bounds and names of the code."""

import json
import re
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from starling_api.campaigns.preview import MAX_COUNTED, requested_preview
from starling_api.campaigns.samples import requested_test
from starling_campaigns import CHANNELS, campaign_schema, check_template, parse_campaign, parse_target, render_message
from starling_campaigns.bounds import (
    MAX_ALL_ROUNDS,
    MAX_OUTPUT_BYTES,
    MAX_PUSH_BYTES,
    MAX_ROUNDS,
    MAX_SMS_SEGMENTS,
    MAX_SOURCE_BYTES,
    MAX_TEMPLATE_COST,
    MAX_TEMPLATE_DEPTH,
    MAX_TEXT_READ,
)
from starling_campaigns.definitions.targets import CHANNEL_FIELDS
from starling_campaigns.templates.filters import FILTERS
from starling_policy.campaign import OTHER_FIELDS_OF_CAMPAIGN, POLICY_FIELDS_OF_CAMPAIGN
from tests.campaign_documents import REFERENCES, campaign

PAGE = (Path(__file__).parents[3] / "docs/reference/campaigns.md").read_text()
EXAMPLES: dict[str, Any] = {
    name: json.loads(text) for name, text in re.findall(r'^```json title="([a-z]+)"\n(.*?)^```', PAGE, re.MULTILINE | re.DOTALL)
}


def test_the_campaign_and_the_triggers_are_accepted() -> None:
    for document in (EXAMPLES["campaign"], *(campaign(trigger=EXAMPLES[name]) for name in ("enter", "event", "broadcast"))):
        parse_campaign(document, REFERENCES)
        Draft202012Validator(campaign_schema()).validate(document)


def test_the_stated_defaults_are_those_of_the_checker() -> None:
    full = parse_campaign(EXAMPLES["campaign"], REFERENCES).rules
    plain = parse_campaign(campaign(), REFERENCES).rules
    same = ("priority", "purpose", "expires_after_ms", "quiet", "caps")
    assert [getattr(full, name) for name in same] == [getattr(plain, name) for name in same]


def test_the_preview_and_the_target_are_accepted() -> None:
    wanted = requested_preview(EXAMPLES["preview"])
    parsed = parse_campaign(EXAMPLES["campaign"], REFERENCES)
    rendered = render_message(parsed, wanted.variant or "", wanted.user, {"name": "Ada"}, wanted.event, wanted.locale)
    assert (rendered.parts["subject"], rendered.parts["html"]) == ("お久しぶりです", "<p>Hello Ada</p>")
    parse_target(EXAMPLES["target"])


def test_the_test_message_is_accepted() -> None:
    wanted = requested_test(EXAMPLES["test"])
    assert (wanted.preview.user, wanted.to) == ("ada", ("marketing@shop.example",))


def test_every_template_is_accepted() -> None:
    assert [check_template(source) for source in EXAMPLES["templates"]] == [[]] * len(EXAMPLES["templates"])


def test_the_page_names_every_field_channel_and_filter() -> None:
    names = [*POLICY_FIELDS_OF_CAMPAIGN, *OTHER_FIELDS_OF_CAMPAIGN, *CHANNELS, *CHANNEL_FIELDS, *FILTERS]
    assert [name for name in names if f"`{name}`" not in PAGE] == []


def test_the_page_states_the_bounds_of_the_code() -> None:
    bounds = (
        MAX_SOURCE_BYTES, MAX_TEMPLATE_COST, MAX_TEMPLATE_DEPTH, MAX_ROUNDS, MAX_ALL_ROUNDS, MAX_TEXT_READ, MAX_OUTPUT_BYTES,
        MAX_PUSH_BYTES,
        MAX_SMS_SEGMENTS, MAX_COUNTED,
    )  # fmt: skip
    assert [bound for bound in bounds if f"{bound:,}" not in PAGE] == []
