"""Campaigns for tests, and generated documents: valid ones with a few parts replaced, removed or added."""

import copy
from typing import Any

from hypothesis import strategies as st

from starling_campaigns import References
from starling_segments import Known

Document = dict[str, Any]

REFERENCES = References(
    known=Known(segments={"lapsing-vips": frozenset(), "vips": frozenset()}),
    targets={"main-smtp": "email", "web": "webpush", "texts": "sms", "hook": "webhook"},
    archived_segments=frozenset({"old"}),
    archived_targets=frozenset({"old-smtp"}),
)
CONTENTS: dict[str, Document] = {
    "email": {"subject": "Hello {{ traits.name|default('you') }}", "html": "<p>{{ traits.name }}</p>", "text": "{{ traits.name }}"},
    "push": {"title": "Hello", "body": "{{ traits.name|upper }}", "url": "https://shop.example.com/{{ user_id|urlencode }}"},
    "sms": {"text": "Hello {{ traits.name }}"},
    "webhook": {
        "body": '{"user": {{ user_id|tojson }}, "items": [{% for i in event.properties.items %}{{ i.sku|tojson }}{% endfor %}]}'
    },
}
TARGETS = {"email": "main-smtp", "push": "web", "sms": "texts", "webhook": "hook"}
TRIGGERS: list[Document] = [
    {"enter": "lapsing-vips"},
    {"exit": "vips", "on_definition": True},
    {
        "event": {"event": "Order Completed", "where": {"all": [{"property": "total", "op": "gte", "value": 50}]}},
        "while": "vips",
    },
    {"broadcast": "vips", "at": "2026-12-01T09:00:00Z"},
    {"broadcast": "vips", "local": "2026-12-01T09:00"},
]


def campaign(channel: str = "email", **changed: Any) -> Document:
    """Return the document of a valid campaign. A changed field with None is left out."""
    document = {
        "key": "win-back",
        "name": "Win back",
        "trigger": {"enter": "lapsing-vips"},
        "channel": channel,
        "target": TARGETS.get(channel, "main-smtp"),
        "variants": [{"key": "a", "weight": 100, "content": copy.deepcopy(CONTENTS.get(channel, CONTENTS["email"]))}],
        **changed,
    }
    return {name: value for name, value in document.items() if value is not None}


def with_template(source: str, part: str = "text") -> Document:
    """Return a valid campaign of the channel email with this template."""
    return campaign(variants=[{"key": "a", "weight": 100, "content": {**CONTENTS["email"], part: source}}])


def full_campaign() -> Document:
    """Return a campaign with every field that a membership trigger allows."""
    return campaign(
        description="Brings lapsing customers back",
        tags=["spring"],
        owner="crm team",
        delay="2h",
        cancel={"left": True, "event": {"event": "Order Completed"}},
        reentry={"after": "30d"},
        dedupe_key="win-back",
        priority=50,
        purpose="marketing",
        expires_after="24h",
        quiet="defer",
        caps="drop",
        variants=[
            {
                "key": "a",
                "weight": 50.5,
                "content": CONTENTS["email"],
                "locales": {"pt": {"subject": "Olá"}, "pt-BR": {"text": "Oi"}},
            },
            {"key": "b", "weight": 49.5, "content": {"subject": "B", "text": "B"}},
        ],
        holdout={"percent": 10},
        goal={
            "event": "Order Completed",
            "where": {"property": "total", "op": "gt", "value": 0},
            "within": "7d",
            "value": "revenue",
        },
    )


TEMPLATES = st.sampled_from(
    [
        "{{ traits.name }}",
        "{{ traits.name|default('you')|upper }}",
        "{{ 'a' * 999999999 }}",
        "{{ 2 ** 99 }}",
        "{{ traits.x|nope }}",
        "{% for a in traits.a %}{% for b in a.b %}{{ b }}{% endfor %}{% endfor %}",
        "{% for x in range(9) %}x{% endfor %}",
        "{{",
        "{% for a in b %}",
        "{% include 'x' %}",
        "{{ ().__class__.__mro__ }}",
        "{{ traits.__class__ }}",
        "a\r\nBcc: x@example.com",
        "{{ traits.name\n}}",
        "{% raw %}{{ x }}{% endraw %}",
        "{{ cycler }}",
        "{{ self }}",
        "{{ loop.index }}",
        "{# comment #}",
        "{{ 1/0 }}",
        "{% if traits.a == 1 %}b{% elif traits.b in ['x', 'y'] %}c{% else %}d{% endif %}",
        "{{ traits['first name'] }}",
        "{{ none }}",
        "{{ traits.a[traits.b] }}",
        "{{ -traits.n + 1.5 }}",
        "(" * 400,
        "{{ " + "(" * 300 + "1" + ")" * 300 + " }}",
        "{{ " + "-" * 300 + "1 }}",
        "{% if traits.a %}" * 60 + "x" + "{% endif %}" * 60,
        "{{ traits.a" + ".a" * 200 + " }}",
        "\x00",
        "{{ '\ud83d' }}",
    ]
)
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    TEMPLATES,
    st.sampled_from(TRIGGERS),
    st.sampled_from(
        ["0s", "1s", "90d", "91d", "7d", "8d", "once", "defer", "email", "push", "sms", "old", "old-smtp", "vips", "pt_BR", "pt-BR"]
    ),
    st.sampled_from(
        [[], {}, [{}], {"percent": 10}, {"percent": 10.001}, {"after": "1d"}, {"event": "X"}, {"ja": {"subject": "x"}}, 100, 33.33]
    ),
    st.recursive(
        st.none() | st.integers(0, 9) | st.text(max_size=3),
        lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=3), one, max_size=3),
        max_leaves=6,
    ),
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in parts:
        found += _paths(part, (*path, step))
    return found


@st.composite
def documents(draw: st.DrawFn, most_changes: int = 3) -> Any:
    """Generate a document that is a valid campaign but for a few changes, or anything else."""
    if draw(st.integers(0, 19)) == 0:
        return copy.deepcopy(draw(JUNK))
    channel = draw(st.sampled_from(list(CONTENTS)))
    base = campaign(channel, trigger=draw(st.sampled_from(TRIGGERS))) if draw(st.booleans()) else full_campaign()
    document = copy.deepcopy(base)
    for _ in range(draw(st.integers(0, most_changes))):
        paths = _paths(document)
        if not paths:
            break
        path = draw(st.sampled_from(paths))
        parent: Any = document
        for step in path[:-1]:
            parent = parent[step]
        action = draw(st.integers(0, 5))
        if action == 0:
            del parent[path[-1]]
        elif action == 1 and isinstance(parent, dict):
            parent[draw(st.text(max_size=4) | st.sampled_from([*base, "content", "locales", "left", "at"]))] = copy.deepcopy(
                draw(JUNK)
            )
        else:
            parent[path[-1]] = copy.deepcopy(draw(JUNK))
    return document
