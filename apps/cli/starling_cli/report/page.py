"""Pure core: the audience report -> HTML. All external text is escaped; the page loads nothing."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from starling_cli.report.charts import curve_with_bars
from starling_cli.report.rows import Audience

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c2330;--soft:#66707f;--line:#d8dde5;--paper:#fff;--size:#2f6fdb;--in:#1f9d61;--out:#d1584a}
@media(prefers-color-scheme:dark){:root{--ink:#e8ebf0;--soft:#98a2b3;--line:#333c4a;--paper:#12161d;--size:#6ea2ff}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:820px;margin:2rem auto;padding:0 1rem}
h1{margin-bottom:0}h2{margin:2.2rem 0 .2rem}p{color:var(--soft);margin:.2rem 0 .8rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.25rem .6rem;border-bottom:1px solid var(--line)}
td{text-align:right}th{text-align:left;font-weight:600}thead th+th{text-align:right}
svg{width:100%;height:auto;display:block}svg text{font-size:10px;fill:var(--soft)}
.area{fill:var(--size);opacity:.15}.size{fill:none;stroke:var(--size);stroke-width:1.6}.axis{stroke:var(--line)}
.entries,.exits{fill:none;stroke-width:1.4}.entries{stroke:var(--in)}.exits{stroke:var(--out)}
.scroll{overflow-x:auto}summary{cursor:pointer;color:var(--soft)}.warn{color:var(--out)}
"""


def page(found: Audience) -> str:
    """Return the report as one self-contained HTML document."""
    parts = [
        f"<h1>Audiences</h1><p>As of {escape(found.as_of)}; days of {escape(found.timezone)}.</p>",
        *_warnings(found),
        _summary(found),
        "<h2>Day by day</h2><p>Curve: members at the end of the day. Bars: entries upwards, exits downwards.</p>",
        *[_segment(found, key) for key in found.days],
        _retention(found),
        _overlap(found),
    ]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Audiences</title>'
    return f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head><body>{"".join(parts)}</body></html>\n'


def _warnings(found: Audience) -> Iterable[str]:
    if found.records_missing:
        yield f"<p>{found.records_missing:,} older changes are no longer retained; early days may show too few members.</p>"
    if found.records_unreadable:
        yield f'<p class="warn">{found.records_unreadable:,} records could not be read and are not included.</p>'


def _summary(found: Audience) -> str:
    rows = [
        (key, [f"{days[-1].size:,}", f"{sum(day.entries for day in days):,}", f"{sum(day.exits for day in days):,}", days[0].day])
        for key, days in found.days.items()
    ]
    return _table(["segment", "members", "entries", "exits", "since"], rows)


def _segment(found: Audience, key: str) -> str:
    days = found.days[key]
    chart = curve_with_bars(
        [day.day for day in days], [day.size for day in days], [day.entries for day in days], [day.exits for day in days]
    )
    return f"<h3>{escape(key)}</h3>{chart}{_cohorts(found, key)}"


def _cohorts(found: Audience, key: str) -> str:
    months = sorted({month for segment, month, _ in found.cohorts if segment == key})
    if not months:
        return ""
    rows = [(month, [_share(found.cohorts.get((key, month, later))) for later in found.days_later]) for month in months]
    table = _table(["entered in", *[_days(later) for later in found.days_later]], rows)
    return f"<details><summary>Retention by month of entry</summary>{table}</details>"


def _retention(found: Audience) -> str:
    if not found.retention:
        return ""
    rows = [(key, [_share(found.retention.get((key, later))) for later in found.days_later]) for key in found.days]
    table = _table(["segment", *[_days(later) for later in found.days_later]], rows)
    return f"<h2>Retention</h2><p>Share of the users who entered on a day and are members so many days later.</p>{table}"


def _overlap(found: Audience) -> str:
    keys = [key for key in found.days if (key, key) in found.overlap]
    if not keys:
        return ""
    rows = [(key, [_people(found.overlap.get((key, other), 0), found.overlap[key, key]) for other in keys]) for key in keys]
    return f"<h2>Overlap</h2><p>Users of the row's segment who are in the column's segment as well.</p>{_table(['', *keys], rows)}"


def _table(heads: Sequence[str], rows: Iterable[tuple[str, Sequence[str | tuple[str, float]]]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    lines = [f"<tr><th>{escape(name)}</th>{''.join(map(_cell, cells))}</tr>" for name, cells in rows]
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _cell(content: str | tuple[str, float]) -> str:
    """Return a table cell. Shape: `content` is a text, or a text and its shade from 0 to 1."""
    if isinstance(content, str):
        return f"<td>{escape(content)}</td>"
    text, share = content
    return f'<td style="background:color-mix(in srgb,var(--size) {share * 60:.0f}%,transparent)">{escape(text)}</td>'


def _share(counts: tuple[int, int] | None) -> str | tuple[str, float]:
    if counts is None or not counts[0]:
        return "-"
    share = counts[1] / counts[0]
    return f"{share:.1%}", share


def _people(users: int, of: int) -> tuple[str, float]:
    return f"{users:,} ({users / of:.0%})", users / of


def _days(count: int) -> str:
    return "1 day" if count == 1 else f"{count} days"
