"""Templates: the allowed subset, rendering with missing and hostile data, bounds, locales, and the segments of an SMS."""

from typing import Any

import pytest

from starling_campaigns import check_template, parse_campaign, render_message, sms_size
from starling_campaigns.bounds import MAX_ROUNDS, MAX_SMS_SEGMENTS, MAX_SOURCE_BYTES, MAX_TEXT_READ
from starling_campaigns.locales import canonical_locale, fallbacks
from starling_campaigns.rendering import PartFailed
from starling_campaigns.templates.sandbox import render
from starling_campaigns.templates.values import Meter, RenderingFailed
from tests.campaign_documents import REFERENCES, campaign, full_campaign, with_template

DATA: dict[str, Any] = {
    "traits": {
        "name": "<script>alert(1)</script>",
        "n": 3,
        "price": 12.5,
        "whole": 2.0,
        "yes": True,
        "none": None,
        "empty": "",
        "items": ["a", "b", 3],
        "rows": [{"sku": "x", "q": 2}, {"sku": "y", "q": 1}],
        "first name": "Ada",
        "text": "12",
    },
    "event": {"name": "Order Completed", "properties": {"items": [{"sku": "é"}], "values": 1}},
    "user_id": "ada",
}


def rendered(source: str, *, is_html: bool = False, is_header: bool = False) -> tuple[str, list[str]]:
    meter = Meter()
    assert check_template(source) == []
    return render(source, DATA, meter, is_html=is_html, is_header=is_header), list(meter.missing)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("plain", "plain"),
        ("{{ user_id }} {{ traits.n }} {{ traits.price }} {{ traits.whole }} {{ traits.yes }}", "ada 3 12.5 2 true"),
        ("{{ traits.nope|default('you') }}", "you"),
        ("{{ traits.empty|default('you') }}{{ traits.empty|default('you', true) }}", "you"),
        ("{{ traits.none|default('null is missing') }}", "null is missing"),
        ("{{ traits['first name']|upper }} {{ traits.items[2] }} {{ traits.items|join('-') }}", "ADA 3 a-b-3"),
        ("{{ traits.items|first }}{{ traits.items|last }}{{ traits.items|length }}", "a33"),
        ("{% for row in traits.rows if row.q > 1 %}{{ loop.index }}{{ row.sku }}{% endfor %}", "1x"),
        ("{% for row in traits.nope %}x{% else %}none{% endfor %}", "none"),
        ("{% if traits.n == 3 and not traits.nope %}yes{% elif traits.n %}n{% else %}no{% endif %}", "yes"),
        ("{{ 'in' if 'b' in traits.items else 'out' }}{{ 'in' if true in traits.items else 'out' }}", "inout"),
        ("{{ traits.nope.deeper is defined }} {{ traits.n is defined }}", "false true"),
        ("{{ traits.nope > 1 or traits.nope < 1 or traits.nope == 1 }}", "false"),
        (
            "{{ traits.n + 1 - 0.5 }} {{ -traits.n }} {{ traits.text|int + 1 }} {{ traits.price|fixed(2) }} {{ 2.5|round }}",
            "3.5 -3 13 12.50 2",
        ),
        ("{{ event.name }} {{ event.properties.items[0].sku }} {{ event.properties.values }}", "Order Completed é 1"),
        ("{{ 'abcdef'|truncate(4) }} {{ 'a b/ü'|urlencode }} {{ 'aXb'|replace('X', '-')|title }}", "abc… a%20b%2F%C3%BC A-B"),
        ("{{ traits.rows|tojson }}", '[{"sku":"x","q":2},{"sku":"y","q":1}]'),
    ],
)
def test_a_template_is_rendered(source: str, text: str) -> None:
    assert rendered(source) == (text, [])


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("{{ traits.nope }}", ["traits.nope"]),
        ("{{ traits.a.b.c|upper|truncate(3) }}{{ traits.nope }}{{ traits.nope }}", ["traits.a.b.c", "traits.nope"]),
        ("{{ traits.none }}", ["traits.none"]),
        ("{{ traits.n.deeper + 1 }}", ["deeper"]),
        ("{% for x in event.properties.nope %}{{ x }}{% endfor %}", ["event.properties.nope"]),
        ("{% for row in traits.rows %}{{ row.nope }}{% endfor %}", ["traits.rows.0.nope", "traits.rows.1.nope"]),
    ],
)
def test_a_missing_value_is_recorded_with_its_path(source: str, missing: list[str]) -> None:
    assert rendered(source)[1] == missing


def test_without_an_event_its_fields_are_missing() -> None:
    meter = Meter()
    assert render("{{ event.properties.total }}", {**DATA, "event": None}, meter) == ""
    assert list(meter.missing) == ["event.properties.total"]


def test_html_is_escaped_and_stays_so_through_filters() -> None:
    assert rendered("<b>{{ traits.name }}</b>", is_html=True)[0] == "<b>&lt;script&gt;alert(1)&lt;/script&gt;</b>"
    assert "<" not in rendered("{{ traits.name|escape|upper }}", is_html=True)[0]
    assert "<" not in rendered("{{ traits.name|escape|replace('&lt;', '<') }}", is_html=True)[0]
    assert "<" not in rendered("{{ traits.name|tojson }}", is_html=True)[0]


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 9 }}",
        "{{ 2 ** 9 }}",
        "{{ 9 % 2 }}",
        "{{ 9 // 2 }}",
        "{{ 'a' ~ 'b' }}",
        "{{ traits.items[1:2] }}",
        "{{ {'a': 1} }}",
        "{{ [1] }}",
        "{% set a = 1 %}",
        "{% macro a() %}{% endmacro %}",
        "{% include 'a' %}",
        "{% import 'a' as b %}",
        "{% extends 'a' %}",
        "{% block a %}{% endblock %}",
        "{% for i in range(9) %}{% endfor %}",
        "{% for i in [1, 2] %}{% endfor %}",
        "{% for i in traits.a|join %}{% endfor %}",
        "{% for a, b in traits.a %}{% endfor %}",
        "{% for a in traits.a recursive %}{% endfor %}",
        "{% for traits in traits.a %}{% endfor %}",
        "{% for a in traits.a %}{% for b in a %}{% for c in b %}{% endfor %}{% endfor %}{% endfor %}",
        "{% for a in traits.a %}{{ loop.cycle }}{% endfor %}",
        "{{ traits.name() }}",
        "{{ name }}",
        "{{ self }}",
        "{{ loop }}",
        "{{ traits|attr('name') }}",
        "{{ traits.name|safe }}",
        "{{ traits.name|default(value=1) }}",
        "{{ traits.a|default }}",
        "{{ traits.a is string }}",
        "{{ traits[user_id] }}",
        "{{ 'a' if traits.b }}",
        "{{ none }}",
        "{{ traits.a",
        "{% if %}",
        "{% filter upper %}a{% endfilter %}",
        "{% with a = 1 %}{% endwith %}",
        "{% call a() %}{% endcall %}",
        "{{ 99999999999999999999 }}",
        "{% autoescape false %}{{ traits.name }}{% endautoescape %}",
        "{{ _meter }}",
        "{{ traits.a|_rounds(true) }}",
        "{{ traits.a|e }}",
    ],
)
def test_what_is_outside_of_the_subset_is_refused(source: str) -> None:
    (error, *_) = check_template(source)
    assert error.code == "bad_template"
    assert error.message.startswith("line 1: ")
    assert error.expected


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("x" * (MAX_SOURCE_BYTES + 1), "too_large"),
        ("{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}", "too_deep"),
        ("{{ " + "not " * 40 + "1 }}", "too_deep"),
        ("{% if traits.a %}" * 40 + "x" + "{% endif %}" * 40, "too_deep"),
        ("{% for a in traits.a %}{% for b in a.b %}" + "{{ b.c }}" * 40 + "{% endfor %}{% endfor %}", "too_costly"),
        ("{{ traits.items|join }}" * 200, "too_costly"),
    ],
)
def test_a_template_that_is_too_much_is_refused(source: str, code: str) -> None:
    assert [error.code for error in check_template(source)] == [code]


def test_attributes_of_python_objects_cannot_be_reached() -> None:
    for path in ("traits.__class__", "traits.name.__class__.__mro__", "user_id.upper", "traits.items.append", "traits.rows.copy"):
        text, missing = rendered(f"{{{{ {path} }}}}")
        assert text == ""
        assert len(missing) == 1


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1 / 0 }}",
        "{{ traits.name + 1 }}",
        "{{ traits.rows }}",
        "{{ 1 < user_id }}",
        "{% for c in user_id %}{% endfor %}",
        "{{ user_id|round }}",
    ],
)
def test_data_that_does_not_fit_fails_the_template(source: str) -> None:
    with pytest.raises(RenderingFailed) as failed:
        rendered(source)
    assert failed.value.code == "template_error"


def test_a_loop_visits_the_first_elements() -> None:
    data = {"traits": {"items": list(range(500))}, "event": None, "user_id": "ada"}
    assert render("{% for i in traits.items %}x{% endfor %}", data, Meter()) == "x" * MAX_ROUNDS


def test_all_loops_of_a_rendering_have_a_bound() -> None:
    source = "{% for a in traits.rows %}{% for b in a %}{{ b }}{% endfor %}{% endfor %}"
    data = {"traits": {"rows": [[0] * 9] * 100}, "event": None, "user_id": "ada"}
    assert check_template(source) == []
    assert render(source, data, Meter()) == "0" * 900
    with pytest.raises(RenderingFailed, match="rounds"):
        render(source, {**data, "traits": {"rows": [[0] * 10] * 100}}, Meter())


def test_a_rendering_reads_a_bounded_amount_of_data() -> None:
    data = {"traits": {"text": "a" * 30_000, "items": ["b" * 30_000] * 100}, "event": None, "user_id": "ada"}
    for source in ("{{ traits.items|join }}" * 2, "{{ traits.text|replace('a', 'bbbbbbbbb') }}" * 9, "{{ traits.items|tojson }}"):
        with pytest.raises(RenderingFailed) as failed:
            render(source, data, Meter())
        assert failed.value.code == "template_too_large"
    meter = Meter()
    meter.read(MAX_TEXT_READ)
    with pytest.raises(RenderingFailed):
        meter.read(1)


def test_a_line_break_in_a_header_is_refused_when_written_and_when_rendered() -> None:
    assert [error.code for error in check_template("a\r\nBcc: b", is_header=True)] == ["bad_template"]
    assert check_template("a\nb") == []
    parsed = parse_campaign(with_template("Hi {{ traits.name }}", "subject"), REFERENCES)
    for name in ("a\r\nBcc: b", "a\x0bb", "a\u2028b", "a\x00b"):
        with pytest.raises(PartFailed) as failed:
            render_message(parsed, "a", "ada", {"name": name}, None)
        assert (failed.value.part, failed.value.code) == ("subject", "header_line_break")


def test_a_locale_falls_back_part_by_part() -> None:
    parsed = parse_campaign(full_campaign(), REFERENCES)
    brazil = render_message(parsed, "a", "ada", {"name": "Ada", "locale": "pt_br"}, None)
    assert (brazil.locale, brazil.parts["subject"], brazil.parts["text"], brazil.parts["html"]) == (
        "pt-BR",
        "Olá",
        "Oi",
        "<p>Ada</p>",
    )
    portugal = render_message(parsed, "a", "ada", {"name": "Ada"}, None, locale="pt-PT")
    assert (portugal.parts["subject"], portugal.parts["text"]) == ("Olá", "Ada")
    assert render_message(parsed, "a", "ada", {"name": "Ada", "locale": 7}, None).parts["subject"] == "Hello Ada"
    assert fallbacks("zh-Hant-TW") == ("zh-Hant-TW", "zh-Hant", "zh")
    assert [canonical_locale(one) for one in ("zh_hant_tw", "EN", "english", "", None)] == ["zh-Hant-TW", "en", None, None, None]


def test_a_channel_bounds_its_message() -> None:
    sms = parse_campaign(campaign("sms"), REFERENCES)
    with pytest.raises(PartFailed, match="segments"):
        render_message(sms, "a", "ada", {"name": "x" * 153 * MAX_SMS_SEGMENTS}, None)
    push = parse_campaign(campaign("push"), REFERENCES)
    with pytest.raises(PartFailed, match="bytes"):
        render_message(push, "a", "ada", {"name": "x" * 3_100}, None)
    size = render_message(sms, "a", "ada", {"name": "Ada"}, None).sms
    assert size == ("GSM-7", 9, 1)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", ("GSM-7", 0, 1)),
        ("a" * 160, ("GSM-7", 160, 1)),
        ("a" * 161, ("GSM-7", 161, 2)),
        ("€" * 80, ("GSM-7", 160, 1)),
        ("a" * 152 + "€" + "a" * 152, ("GSM-7", 306, 3)),
        ("ж" * 70, ("UCS-2", 70, 1)),
        ("ж" * 71, ("UCS-2", 71, 2)),
        ("😀" * 35, ("UCS-2", 70, 1)),
        ("😀" * 67, ("UCS-2", 134, 3)),
    ],
)
def test_the_segments_of_an_sms(text: str, size: tuple[str, int, int]) -> None:
    assert sms_size(text) == size
