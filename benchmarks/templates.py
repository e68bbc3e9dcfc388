"""How long the most expensive templates that are accepted take to check and to render. The bound of a rendering is 50 ms.

`python benchmarks/templates.py`: the fastest of four renderings of each, in milliseconds, with the data that costs most.
"""

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from starling_campaigns.bounds import MAX_SOURCE_BYTES, MAX_TEMPLATE_COST
from starling_campaigns.templates.sandbox import check_template, cost_of, render
from starling_campaigns.templates.values import Meter, RenderingFailed

BOUND_MS = 50.0
_FILTERS = (
    "upper",
    "title",
    "trim",
    "urlencode",
    "escape",
    'replace("a", "bb")',
    "truncate(9)",
    "length",
    'join(",")',
    "tojson",
    "first",
    "int(0)",
    "float(0)",
    "fixed",
    "round",
    'default("x")',
)
_VALUES = ("i.b", "i.n", "traits.text", "traits.numbers", "traits.deep", "i.missing.more", "loop.index")
_TESTS = ("i.b in traits.numbers", "traits.text == traits.text", '"zz" in traits.text', "i.n < 3 and not i.b", "i.b is defined")


def data() -> dict[str, Any]:
    rows = [{"b": "é<&" * 9, "n": i, "rows": [{"b": "x", "n": j} for j in range(500)]} for i in range(500)]
    numbers: list[Any] = list(range(8_000))
    return {
        "traits": {
            "rows": rows,
            "few": rows[:9],
            "numbers": numbers,
            "text": "aß<" * 10_000,
            "deep": {"a": [{"b": numbers[:900]}] * 9},
        },
        "event": {"name": "Order Completed", "properties": {"rows": rows}},
        "user_id": "ada",
    }


def bodies() -> Iterator[str]:
    for value in _VALUES:
        yield f"{{{{ {value} }}}}"
        yield from (f"{{{{ {value}|{name} }}}}" for name in _FILTERS)
        yield f"{{{{ {value} if {value} else 1 }}}}"
    for test in _TESTS:
        yield f"{{% if {test} %}}x{{% endif %}}"
    yield "{{ i.n + i.n - i.n / 3 }}"
    yield "x"


def largest(body: str, before: str, after: str) -> str | None:
    """Return the longest accepted template that repeats the body; None if one body is refused already."""
    one = cost_of(before + body * 2 + after) - cost_of(before + body + after)
    times = min(
        (MAX_TEMPLATE_COST - cost_of(before + after)) // max(one, 1), (MAX_SOURCE_BYTES - len(before + after)) // len(body.encode())
    )
    source = before + body * times + after
    return source if times and not check_template(source) else None


def candidates() -> Iterator[str]:
    for body in bodies():
        flat = (
            body.replace("loop.index", "user_id").replace("i.", "traits.").replace(" i ", " user_id ").replace(" i|", " user_id|")
        )
        for before, after, inner in (
            ("", "", flat),
            ("{% for i in traits.rows %}", "{% endfor %}", body),
            ("{% for o in traits.few %}{% for i in o.rows if i.n < 99 %}", "{% endfor %}{% endfor %}", body),
        ):
            found = largest(inner, before, after)
            if found is not None:
                yield found


def measured(source: str, values: dict[str, Any], *, is_html: bool) -> tuple[float, str]:
    """Return the time of the fastest of four renderings in ms, and their outcome."""
    best, outcome = float("inf"), ""
    for _ in range(4):
        started = time.perf_counter()
        try:
            outcome = f"{len(render(source, values, Meter(), is_html=is_html))} characters"
        except RenderingFailed as error:
            outcome = error.code
        best = min(best, (time.perf_counter() - started) * 1000)
    return best, outcome


def main() -> int:
    values = data()
    rows = []
    for source in candidates():
        taken_ms, outcome = measured(source, values, is_html=True)
        rows.append((taken_ms, outcome, len(source), source[:110]))
    rows.sort(reverse=True)
    for taken_ms, outcome, size, source in rows[:15]:
        print(f"{taken_ms:7.1f} ms  {outcome:20}  {size:6} bytes  {source}")
    started = time.perf_counter()
    check_template("{{ traits.a|default('b') }}" * (MAX_SOURCE_BYTES // 27))
    print(
        json.dumps(
            {
                "templates": len(rows),
                "worst_ms": round(rows[0][0], 1),
                "check_64_kib_ms": round((time.perf_counter() - started) * 1000, 1),
            }
        )
    )
    return 0 if rows[0][0] <= BOUND_MS else 1


if __name__ == "__main__":
    sys.exit(main())
