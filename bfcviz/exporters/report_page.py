"""The page of a report: verdict and advice, then pictures, holders, settings, and what is known of the file."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from bfcviz.analysis.account import ACCOUNT_STYLE, account_bar, account_table
from bfcviz.analysis.ranks import RankSet
from bfcviz.events.origin import regions_known
from bfcviz.exporters import report as content
from bfcviz.exporters.report import HeapReport, ReportRow, moment_words
from bfcviz.figures.colouring import HolderClasses, colour_path_text, colouring
from bfcviz.figures.svg import SHOWN, picture
from bfcviz.figures.text import harmless
from bfcviz.figures.theme import DARK, FONT, LIGHT, Theme, holder_rules, holder_variables, variables
from bfcviz.figures.view_options import Look
from bfcviz.model.holders import Holders, largest_holder_rows

# ------------------------------------------------------------------------------
# The style of the page: the colours of the figures' themes as variables, for light, dark and paper.


def style() -> str:
    """The rules of style of the page of a report."""
    return (
        f":root{{{_page_colour_rules(LIGHT)}}}"
        f"@media (prefers-color-scheme: dark){{:root{{{_page_colour_rules(DARK)}}}}}"
        f"@media print{{:root{{{_page_colour_rules(LIGHT)}}}}}"
        f"body{{font:16px/1.5 {FONT}}}{_RULES}{SHOWN}{ACCOUNT_STYLE}{holder_rules()}"
    )


def _page_colour_rules(theme: Theme) -> str:
    return variables(theme) + holder_variables(theme)


_RULES: Final = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:1080px;padding:24px 20px 60px;background:var(--paper);color:var(--text);
  print-color-adjust:exact;-webkit-print-color-adjust:exact}
h1{font-size:26px;line-height:1.25;margin:6px 0 8px}
h2{font-size:18px;margin:34px 0 8px}
h3{font-size:15px;margin:20px 0 4px}
p{margin:6px 0;max-width:76ch}
header .file{font-weight:600;overflow-wrap:anywhere}
.muted,header,.note,figcaption{color:var(--muted);font-size:14px}
.verdict{border-left:6px solid var(--mark);padding:2px 0 2px 16px;margin:14px 0 20px}
.numbers{font-size:18px;font-weight:600}
.verdict.calm{border-color:var(--free-line)}
.two{display:grid;grid-template-columns:1fr 1fr;gap:8px 36px}
.two h2{margin-top:14px}
ol{padding-left:22px;margin:6px 0}
li{margin:0 0 8px;max-width:76ch;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
td{border-top:1px solid var(--grid);padding:5px 10px 5px 0;vertical-align:top;overflow-wrap:anywhere}
tr:first-child td{border-top:0}
td.value{text-align:right;white-space:nowrap}
td.share{width:26%;min-width:70px}
td.note{width:30%;overflow-wrap:break-word}
.two td.note{width:24%}
.plain td.value{text-align:left;white-space:normal;width:45%}
.plain td.name{width:25%}
.bar{display:block;height:12px;margin-top:5px;min-width:1px;background:var(--in-use)}
.bar.asked{background:var(--mark)}
.bar.free{background:var(--free);outline:1px solid var(--free-line);outline-offset:-1px}
.bar.pool{background:var(--pool);outline:1px solid var(--pool-line);outline-offset:-1px}
.bar[class*=holder-]{outline:1px solid var(--pool-line);outline-offset:-1px}
.bar.several{background:var(--muted)}
.bar.waste{background:var(--waste)}
svg{display:block;width:100%;height:auto}
figure{margin:6px 0 18px;break-inside:avoid}
@media (max-width:700px){
  body{padding:14px 14px 40px;font-size:15px}
  h1{font-size:21px}
  .two{grid-template-columns:1fr}
  td.note{width:auto}
  table,tbody,tr{display:block}
  tr{border-top:1px solid var(--grid);padding:5px 0;display:flex;flex-wrap:wrap;gap:0 10px;align-items:baseline}
  td{border:0;padding:0}
  td.name{flex:1 1 60%}
  td.share{flex:1 1 100%;order:4}
  td.share:empty,td.note:empty{display:none}
  td.note{flex:1 1 100%;order:3;font-size:13px}
}
@media print{
  body{max-width:none;padding:0;font-size:11pt}
  h2{break-after:avoid}
  tr,li{break-inside:avoid}
}
"""


# ------------------------------------------------------------------------------
# The page: verdict and advice first, then the pictures, the holders, the settings, and what is known of the file.

_LONGEST: Final = 2000  # characters of a text
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_BARS: Final = {
    "asked for": "asked",
    "pool": "pool",
    "limit": "pool",
    "wasted of that": "waste",
    "free in the pool": "free",
    "largest free chunk": "free",
}


class LivePart(NamedTuple):
    """What the page of a report has besides, if it has a script: HTML below the verdict, style, policy, scripts."""

    body: str = ""
    style: str = ""
    policy: str = _POLICY
    scripts: str = ""


_NO_SCRIPT: Final = LivePart()


def as_html(report: HeapReport, ranks: RankSet | None = None, live: LivePart = _NO_SCRIPT) -> str:
    """A report as one HTML page; of several ranks a table of them first.

    A script replaces the pictures, which are of class `still`.
    """
    name = _page_text(report.origin.source or "a trace")
    model = report.model
    holders = colouring(model.trace, model.pool, "holder", LIGHT, model.chunks()).holders
    sizes = content.sizes(report)
    body = [
        "" if ranks is None else f"<h2>Ranks</h2>{ranks.html}<h2>{_page_text(ranks.worst_heap.name)}</h2>",
        f'<header><span class="file">{name}</span> · {" · ".join(map(_page_text, content.facts(report)))}</header>',
        _verdict_html(report),
        live.body,
        '<div class="two"><section>',
        "<h2>The sizes</h2>",
        _rows_html(sizes, [_BARS.get(row.name, "") for row in sizes]),
        "</section><section>",
        _advice_html(report, holders),
        "</section></div>",
        _device_account_html(report),
        _in_the_way_html(report),
        _growing_html(report),
        f'<div class="still"><h2>Memory map {moment_words(report)}</h2>',
        _region_map_html(report),
        _over_time_html(report),
        "</div>",
        _holders_html(report, holders),
        "<h2>Settings</h2>",
        f'<div class="plain">{_rows_html(content.settings(report))}</div>',
        _titled_table_html("All failed requests", content.other_failures(report)),
        _titled_table_html("All heaps of the file, at the last step", content.other_heaps(report)),
        "<h2>How complete the file is</h2>",
        *(f"<p>{_page_text(text)}</p>" for text in content.completeness(report)),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{live.policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}: {_page_text(content.title(report))}</title><style>{style()}{live.style}</style></head>"
        f"<body>{''.join(body)}{live.scripts}</body></html>\n"
    )


def _page_text(text: str) -> str:
    """A text in the page of a report: no markup, no control characters, and it cannot change the text around it."""
    return harmless(text, _LONGEST)


def _verdict_html(report: HeapReport) -> str:
    calm = "" if report.has_failure else " calm"
    parts = [f"<h1>{_page_text(content.title(report))}</h1>"]
    if text := content.numbers(report):
        parts.append(f'<p class="numbers">{_page_text(text)}</p>')
    parts += [f"<p>{_page_text(text)}</p>" for text in content.paragraphs(report)]
    return f'<div class="verdict{calm}">{"".join(parts)}</div>'


def _advice_html(report: HeapReport, holders: HolderClasses | None) -> str:
    texts = content.advice(report)
    if texts:
        return f"<h2>What would help</h2><ol>{''.join(f'<li>{_page_text(text)}</li>' for text in texts)}</ol>"
    found = report.holders[0] if report.holders else None
    kinds = _page_bar_classes(found, holders) if found else ()
    rows = [
        row._replace(note="")
        for row in (content.holder_rows(found) if found else content.by_size(report))[:6]
    ]
    return f"<h2>Who holds most</h2>{_rows_html(rows, kinds[:6])}" if rows else ""


def _device_account_html(report: HeapReport) -> str:
    """The part of a report's page on who held the memory of the device, where the file says anything of it."""
    account = report.shown.account
    if account is None:
        return ""
    return (
        f"<h2>Memory of the device {moment_words(report)}</h2>"
        f'<div class="bfcviz-account"><p>{_page_text(account.device)}: {account.short}</p>'
        f"{account_bar(account)}{account_table(account)}</div>"
    )


def _in_the_way_html(report: HeapReport) -> str:
    sentence, rows = content.pins(report)
    if not rows:
        return ""
    return (
        f"<h2>What is in the way</h2><p>{_page_text(sentence)}</p>{_rows_html(rows, ['asked'] * len(rows))}"
    )


def _growing_html(report: HeapReport) -> str:
    rows = content.growing_rows(report)
    return f"<h2>{content.GROWS}</h2>{_rows_html(rows)}" if rows else ""


_MAP: Final = 520  # pixels of the map at most: the page is read, not searched

_TIMELINE: Final = 220  # pixels of a timeline


def _region_map_html(report: HeapReport) -> str:
    if not len(report.model.regions()):
        return "<p>The pool has no region.</p>"
    return f"<figure>{picture('region_map', report.model, Look(colour='holder'), highest=_MAP)}</figure>"


def _over_time_html(report: HeapReport) -> str:
    """Memory and fragmentation over the steps in a report's page; only memory where free memory is unknown."""
    if not len(report.series):
        return '<h2>Over time</h2><p class="muted">The file holds single moments: there is no history to draw.</p>'
    known = regions_known(report.origin.details, report.pool)
    names = ("stats_timeline", "fragmentation_timeline") if known else ("active_memory",)
    look = Look(steps=report.steps, colour="holder")
    drawn = (picture(name, report.model, look, highest=_TIMELINE) for name in names)
    return f"<h2>Over time</h2>{''.join(f'<figure>{each}</figure>' for each in drawn)}"


def _page_bar_classes(found: Holders, holders: HolderClasses | None) -> list[str]:
    """The CSS class of each bar beside `holder_rows`: its colour in the map; `several` where it has more than one."""
    rows = largest_holder_rows(found, content.MOST_ROWS)
    paths = [found.path(row) if found.by == "op" else "" for row in rows]
    return [*(_page_bar_class(path, holders) for path in paths), "several"]


def _page_bar_class(path: str, holders: HolderClasses | None) -> str:
    """The CSS class of the memory of an op's path in one line."""
    number = None
    if holders is not None:
        known = (each for each in holders.tree.nodes if colour_path_text(each) == path)
        number = next(map(holders.of_path, known), None)
    return "several" if number is None else f"holder-{number}"


def _holders_html(report: HeapReport, holders: HolderClasses | None) -> str:
    parts = [f"<h2>Who holds the memory {moment_words(report)}</h2>"]
    parts += [
        f"<h3>By {_page_text(found.by.replace('_', ' '))}</h3>"
        f"{_rows_html(content.holder_rows(found), _page_bar_classes(found, holders))}"
        for found in report.holders
    ]
    if not report.holders:
        parts.append(f'<p class="muted">{content.NO_HOLDERS}</p>{_rows_html(content.by_size(report))}')
    return "".join(parts)


def _titled_table_html(title: str, rows: Sequence[ReportRow]) -> str:
    return f'<h2>{title}</h2><div class="plain">{_rows_html(rows)}</div>' if rows else ""


def _rows_html(rows: Sequence[ReportRow], kinds: Sequence[str] = ()) -> str:
    """A table in the page of a report; `kinds`: the class of the bar of each row, of the first rows at least."""
    has_shares = any(row.share is not None for row in rows)
    has_notes = any(row.note for row in rows)
    lines = []
    for number, row in enumerate(rows):
        cells = [
            f'<td class="name">{_page_text(row.name)}</td><td class="value">{_page_text(row.value)}</td>'
        ]
        if has_shares:
            kind = kinds[number] if number < len(kinds) else ""
            bar = (
                ""
                if row.share is None
                else f'<span class="bar {kind}" style="width:{100 * row.share:.2f}%"></span>'
            )
            cells.append(f'<td class="share">{bar}</td>')
        if has_notes:
            cells.append(f'<td class="note muted">{_page_text(row.note)}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><tbody>{''.join(lines)}</tbody></table>"
