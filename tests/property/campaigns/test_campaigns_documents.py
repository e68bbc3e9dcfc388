"""Generated campaigns: the checker never fails otherwise than by its errors, and the schema refuses nothing that it accepts."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from starling_campaigns import campaign_schema, check_template, parse_campaign, render_message
from starling_campaigns.bounds import MAX_OUTPUT_BYTES, MAX_TEMPLATE_COST
from starling_campaigns.rendering import PartFailed
from starling_campaigns.templates.filters import FILTERS
from starling_campaigns.templates.sandbox import cost_of, render
from starling_campaigns.templates.values import Meter, RenderingFailed
from starling_segments import DefinitionRefused, FieldError
from tests.campaign_documents import REFERENCES, TEMPLATES, documents

EXAMPLES = int(os.environ.get("STARLING_CAMPAIGN_EXAMPLES", "300"))
MAX_CALLS = 4 * MAX_TEMPLATE_COST
"""A call takes about a third of a microsecond."""
SCHEMA = Draft202012Validator(campaign_schema())
TRAITS: dict[str, Any] = {"name": "<b>Ada</b>", "n": 1, "a": [{"b": [1, None, "x"]}], "locale": "pt_BR"}


def require_complete(errors: Sequence[FieldError]) -> None:
    assert errors
    assert all(error.pointer == "" or error.pointer.startswith("/") for error in errors)
    assert all(error.message and error.expected for error in errors)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_an_accepted_campaign_passes_the_schema_and_renders(document: Any) -> None:
    try:
        campaign = parse_campaign(document, REFERENCES)
    except DefinitionRefused as refused:
        event("refused")
        require_complete(refused.errors)
        return
    event("accepted")
    assert [error.message for error in SCHEMA.iter_errors(document)] == []
    for variant in campaign.contents:
        try:
            rendered = render_message(campaign, variant, "ada", TRAITS, {"name": "X", "properties": {"items": [{"sku": "é"}]}})
        except PartFailed as failed:
            event(failed.code)
        else:
            assert set(rendered.parts) == set(campaign.contents[variant].templates("pt-BR"))


@settings(max_examples=EXAMPLES, deadline=None)
@given(TEMPLATES, TEMPLATES)
def test_an_accepted_template_has_a_bounded_number_of_operations(one: str, other: str) -> None:
    source = one + other
    if not check_template(source):
        assert cost_of(source) <= MAX_TEMPLATE_COST


VALUES = ("traits.text", "traits.rows", "traits.numbers", "i.b", "i.n", "i", "loop.index", "traits.nope.nope", "'x'", "1")
FILTERED = st.sampled_from(
    ["", *(f"|{name}" for name in FILTERS), "|join(',')", "|replace('a', 'bb')", "|truncate(9)", "|default('x')", "|int(0)"]
)
BODIES = st.builds(
    lambda value, one, other, shape: shape.replace("@", value + one + other),
    st.sampled_from(VALUES),
    FILTERED,
    FILTERED,
    st.sampled_from(
        [
            "{{ @ }}",
            "{% if @ %}x{% endif %}",
            "{{ 1 if 'a' in traits.numbers else @ }}",
            "{% if @ == traits.text %}{% endif %}",
            "x",
        ]
    ),
)
SHAPES = st.sampled_from(
    [
        ("{% for i in traits.rows %}", "{% endfor %}"),
        ("{% for o in traits.few %}{% for i in o.rows %}", "{% endfor %}{% endfor %}"),
        ("{% for o in traits.rows %}{% for i in o.rows if i.n %}", "{% endfor %}{% endfor %}"),
    ]
)
ROWS = [{"b": "é<&" * 9, "n": i, "rows": [{"b": "x", "n": j} for j in range(200)]} for i in range(200)]
LARGE = {
    "traits": {"rows": ROWS, "few": ROWS[:9], "numbers": list(range(9_000)), "text": "aß<" * 10_000},
    "event": None,
    "user_id": "ada",
}


@settings(max_examples=max(20, EXAMPLES // 10), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SHAPES, st.lists(BODIES, min_size=1, max_size=3), st.sampled_from([1, 4, 16, 64]))
def test_the_function_calls_of_a_rendering_are_bounded_by_its_cost(shape: tuple[str, str], bodies: list[str], times: int) -> None:
    """The calls of Python and C functions are counted: unlike the time they do not depend on the machine."""
    source = shape[0] + "".join(bodies) * times + shape[1]
    if check_template(source):
        return
    calls = 0

    def count(_frame: Any, kind: str, _argument: Any) -> None:
        nonlocal calls
        calls += kind in {"call", "c_call"}

    try:
        render(source, LARGE, Meter(), is_html=True)  # compiled before the calls are counted
    except RenderingFailed as failed:
        event(failed.code)
    sys.setprofile(count)
    try:
        text = render(source, LARGE, Meter(), is_html=True)
    except RenderingFailed:
        text = ""
    finally:
        sys.setprofile(None)
    assert len(text.encode()) <= MAX_OUTPUT_BYTES
    assert calls <= MAX_CALLS
