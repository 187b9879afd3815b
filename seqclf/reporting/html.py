"""The shell of a page that needs nothing but itself: style sheet, sections, tables, bars.

Whatever is not `Html` is escaped, so a label or a column name can never become markup.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape

POLICY = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfc; --ink: #1d2126; --soft: #626b76; --line: #e2e5e9;
  --fill: #3f74b5; --faint: #e9ecef; --mark: #b3401f; --alert: #fff5d6; --alert-line: #d39e00; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --ink: #e4e7ea; --soft: #9aa4ae; --line: #2b3138;
  --fill: #78a6e0; --faint: #23282e; --mark: #f0936f; --alert: #2c2610; --alert-line: #b58a10; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1rem 1rem 3rem; max-width: 54rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere; }
h1 { margin: .5rem 0 .25rem; font-size: 1.6rem; line-height: 1.2; }
h2 { margin: 2.25rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); font-size: 1.15rem; }
h3 { margin: 1.25rem 0 .25rem; font-size: 1rem; }
p { margin: .25rem 0 .75rem; max-width: 42rem; }
.soft { color: var(--soft); font-size: .9rem; }
.lead { font-size: 1.1rem; }
.alerts { margin: 1rem 0; padding: .6rem .9rem .6rem 2rem; background: var(--alert); border-radius: 4px;
  border-left: 4px solid var(--alert-line); }
.alerts li { margin: .2rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; line-height: 1.35; }
table.full { width: 100%; }
th, td { padding: .28rem .9rem .28rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th:last-child, td:last-child { padding-right: 0; }
th { color: var(--soft); font-weight: 500; vertical-align: bottom; overflow-wrap: normal; }
td.text { min-width: 5.6rem; max-width: 26rem; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
th.number { white-space: normal; }
td.bar { width: 45%; vertical-align: middle; }
tr.strong td { font-weight: 600; }
.track { display: block; position: relative; height: .7rem; min-width: 4.5rem; background: var(--faint);
  border-radius: 2px; }
.track i { position: absolute; top: 0; bottom: 0; background: var(--fill); border-radius: 2px; min-width: 1px; }
.track b { position: absolute; top: -2px; bottom: -2px; width: 2px; margin-left: -1px; background: var(--mark); }
summary { cursor: pointer; color: var(--soft); font-size: .9rem; margin: .5rem 0; }
.picture { margin: .5rem 0 1rem; }
.picture svg { display: block; width: 100%; height: auto; }
.picture svg text { font-family: inherit !important; }
.picture.narrow { display: none; }
.plot { position: relative; max-width: 34rem; }
.plot i.dot { position: absolute; width: .8rem; height: .8rem; margin: -.4rem 0 0 -.4rem; border-radius: 50%;
  background: var(--mark); }
.slider { margin: .75rem 0; max-width: 34rem; }
.slider input { width: 100%; height: 2rem; margin: 0; accent-color: var(--mark); }
.slider dl { display: grid; grid-template-columns: repeat(4, 1fr); gap: .5rem; margin: .25rem 0; }
.slider dt { color: var(--soft); font-size: .8rem; }
.slider dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
td.cell { text-align: right; padding: .28rem .5rem; font-variant-numeric: tabular-nums; border: 1px solid var(--paper);
  background: color-mix(in srgb, var(--fill) var(--share), transparent); }
pre { overflow-x: auto; font-size: .8rem; background: var(--faint); padding: .6rem; border-radius: 4px; }
@media (max-width: 40rem) {
  body { padding: .75rem .75rem 2rem; }
  table { font-size: .8rem; }
  th, td { padding-right: .45rem; }
  td.bar { width: 25%; }
  .track { min-width: 2.5rem; }
  .stacked thead { display: none; }
  .stacked tr { display: block; padding: .4rem 0; border-bottom: 1px solid var(--line); }
  .stacked td { display: flex; max-width: none; padding: .08rem 0; border: 0; text-align: left; white-space: normal; }
  .stacked td::before { content: attr(data-name); flex: 0 0 6rem; color: var(--soft); }
  .picture.narrow { display: block; }
  .picture.broad { display: none; }
}
"""


class Html(str):
    """Markup that is escaped already."""


def text(value: object) -> Html:
    """Anything as markup; only what is not yet `Html` is escaped."""
    return value if isinstance(value, Html) else Html(escape(str(value)))


def joined(parts: Iterable[object]) -> Html:
    return Html("\n".join(text(part) for part in parts))


def page(title: object, summary: object, parts: Iterable[object], script: str = "") -> str:
    """A whole document; it loads nothing and runs nothing but `script`, which the page's policy names by its hash."""
    policy, running = POLICY, ""
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = policy.replace("inline'\"", f"inline'; script-src 'sha256-{digest}'\"")
        running = f"<script>{script}</script>\n"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{policy}
<title>{text(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{text(title)}</h1>
<p class="lead">{text(summary)}</p>
{joined(parts)}
{running}</body>
</html>
"""


def section(heading: object, *parts: object) -> Html:
    return Html(f"<section>\n<h2>{text(heading)}</h2>\n{joined(parts)}\n</section>")


def heading(value: object) -> Html:
    return Html(f"<h3>{text(value)}</h3>")


def paragraph(value: object, soft: bool = False) -> Html:
    opening = '<p class="soft">' if soft else "<p>"
    return Html(f"{opening}{text(value)}</p>")


def alerts(lines: Iterable[object]) -> Html:
    """A box with a line for each thing to look at."""
    return Html(f'<ul class="alerts">\n{joined(Html(f"<li>{text(line)}</li>") for line in lines)}\n</ul>')


def table(
    columns: Mapping[str, str], rows: Iterable[Sequence[object]], strong: int | None = None, stacked: bool = False
) -> Html:
    """`columns`: heading → "text", "number" or "bar", whose cells are made by `bar` or `span`; `strong`: a row to
    stress; `stacked`: on phones the cells of a row stand below each other.

    A row with fewer cells than columns ends with an empty one.
    """
    kinds = list(columns.values())
    head = "".join(f'<th class="{kind}" scope="col">{text(name)}</th>' for name, kind in columns.items())
    names = [f' data-name="{escape(name)}"' if stacked else "" for name in columns]
    body = []
    for place, row in enumerate(rows):
        cells = [
            f'<td class="{kind}"{name}>{text(cell)}</td>' for kind, name, cell in zip(kinds, names, row, strict=False)
        ]
        if len(row) < len(kinds):
            cells.append(f'<td colspan="{len(kinds) - len(row)}"></td>')
        opening = '<tr class="strong">' if place == strong else "<tr>"
        body.append(f"{opening}{''.join(cells)}</tr>")
    style = " ".join(["full"] * ("bar" in kinds) + ["stacked"] * stacked)
    content = "\n".join([f"<thead><tr>{head}</tr></thead>", "<tbody>", *body, "</tbody>"])
    return Html(f'<div class="wide"><table class="{style}">\n{content}\n</table></div>')


def folded(title: object, part: object) -> Html:
    """Something long that opens when its title is touched."""
    return Html(f"<details><summary>{text(title)}</summary>\n{text(part)}\n</details>")


def bar(share: float) -> Html:
    """A bar that fills this share of its cell; the number belongs in a cell of its own."""
    return span(0.0, share)


def span(start: float, end: float, mark: float | None = None) -> Html:
    """A bar from one share of the cell to another, with a mark at a third."""
    low, high = (100 * min(1.0, max(0.0, place)) for place in (start, end))
    tick = "" if mark is None else f'<b style="left:{100 * min(1.0, max(0.0, mark)):.1f}%"></b>'
    return Html(
        f'<span class="track" aria-hidden="true"><i style="left:{low:.1f}%;width:{max(0.0, high - low):.1f}%"></i>'
        f"{tick}</span>"
    )


def picture(narrow: Html, broad: Html, told: object) -> Html:
    """One picture for phones and one for wide windows; `told` says in words what is to be seen."""
    label = escape(str(told))
    return Html(
        f'<div class="picture narrow" role="img" aria-label="{label}">{narrow}</div>\n'
        f'<div class="picture broad" role="img" aria-label="{label}">{broad}</div>'
    )
