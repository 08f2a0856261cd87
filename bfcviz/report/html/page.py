"""The page: verdict and advice first, then the pictures, the holders, the settings, and what is known of the file."""

from collections.abc import Sequence
from typing import Final

from bfcviz.events.origin_details import requested_bytes_known
from bfcviz.figures.style.text import harmless
from bfcviz.model.holders.holders import Holders
from bfcviz.report import words
from bfcviz.report.content import HeapReport, largest
from bfcviz.report.holder_colours import ColouredHolders, coloured_holders
from bfcviz.report.html.charts import charts
from bfcviz.report.html.region_bars import region_bars
from bfcviz.report.html.style import style
from bfcviz.report.words import ReportRow

_LONGEST: Final = 2000  # characters of a text
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_BARS: Final = {
    "asked for": "asked",
    "pool": "pool",
    "limit": "pool",
    "wasted of that": "waste",
    "free in the pool": "free",
    "largest free chunk": "free",
}


def as_html(report: HeapReport) -> str:
    """The report as one page."""
    name = _safe(report.origin.source or "a trace")
    holders = coloured_holders(report.model)
    sizes = words.sizes(report)
    body = [
        f'<header><span class="file">{name}</span> · {" · ".join(map(_safe, words.facts(report)))}</header>',
        _verdict(report),
        '<div class="two"><section>',
        "<h2>The sizes</h2>",
        _table(sizes, [_BARS.get(row.name, "") for row in sizes]),
        "</section><section>",
        _advice(report, holders),
        "</section></div>",
        _way(report),
        f"<h2>Memory map {_moment(report)}</h2>",
        _map_key(report, holders),
        f"<figure>{region_bars(report, holders)}</figure>",
        _over_time(report),
        _holders(report, holders),
        "<h2>Settings</h2>",
        f'<div class="plain">{_table(words.settings(report))}</div>',
        _section("All failed requests", words.other_failures(report)),
        _section("All heaps of the file, at the last step", words.other_heaps(report)),
        "<h2>How complete the file is</h2>",
        *(f"<p>{_safe(text)}</p>" for text in words.completeness(report)),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}: {_safe(words.title(report))}</title><style>{style()}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _safe(text: str) -> str:
    """A text from a file: no markup, no control characters, and it cannot change the text around it."""
    return harmless(text, _LONGEST)


def _moment(report: HeapReport) -> str:
    return "at the failure" if report.has_failure else "at the peak" if report.has_history else ""


def _verdict(report: HeapReport) -> str:
    calm = "" if report.has_failure else " calm"
    parts = [f"<h1>{_safe(words.title(report))}</h1>"]
    if text := words.numbers(report):
        parts.append(f'<p class="numbers">{_safe(text)}</p>')
    texts = (words.summary(report), words.explanation(report), words.holder_line(report))
    parts += [f"<p>{_safe(text)}</p>" for text in texts if text]
    return f'<div class="verdict{calm}">{"".join(parts)}</div>'


def _advice(report: HeapReport, holders: ColouredHolders) -> str:
    texts = words.advice(report)
    if texts:
        return f"<h2>What would help</h2><ol>{''.join(f'<li>{_safe(text)}</li>' for text in texts)}</ol>"
    found = report.holders[0] if report.holders else None
    kinds = _kinds(found, holders) if found else ()
    rows = [
        row._replace(note="") for row in (words.holder_rows(found) if found else words.by_size(report))[:6]
    ]
    return f"<h2>Who holds most</h2>{_table(rows, kinds[:6])}" if rows else ""


def _way(report: HeapReport) -> str:
    sentence, rows = words.pins(report)
    if not rows:
        return ""
    return f"<h2>What is in the way</h2><p>{_safe(sentence)}</p>{_table(rows, ['asked'] * len(rows))}"


def _map_key(report: HeapReport, holders: ColouredHolders) -> str:
    key = [("free", "free"), *holders.legend()]
    if report.stats.requested_bytes_in_use < report.stats.bytes_in_use and requested_bytes_known(
        report.origin.details, report.pool
    ):
        key.append(("waste", "waste (size - requested)"))
    if report.shown.pinned_by:
        key.append(("asked", "in the way; the frame is the best place for the request"))
    entries = " ".join(f'<span><span class="key {kind}"></span>{name}</span>' for kind, name in key)
    shades = (
        "Lighter and darker shades of a holder are its largest parts. " if len(holders.legend()) > 1 else ""
    )
    return (
        f'<p class="muted map-key">{entries}</p>'
        f'<p class="muted">{shades}Addresses grow to the right and down.</p>'
    )


def _over_time(report: HeapReport) -> str:
    drawn = charts(report)
    if drawn:
        return f"<h2>Over time</h2>{drawn}"
    return (
        '<h2>Over time</h2><p class="muted">The file holds single moments: there is no history to draw.</p>'
    )


def _kinds(found: Holders, holders: ColouredHolders) -> list[str]:
    """The kind of each row of `words.holder_rows`: its colour in the map; `several` where it has more than one."""
    rows = largest(found, words.MOST_ROWS)
    paths = [found.path(row) if found.by == "op" else "" for row in rows]
    return [*(holders.kind_of(path) or "several" for path in paths), "several"]


def _holders(report: HeapReport, holders: ColouredHolders) -> str:
    parts = [f"<h2>Who holds the memory {_moment(report)}</h2>"]
    parts += [
        f"<h3>By {_safe(found.by.replace('_', ' '))}</h3>{_table(words.holder_rows(found), _kinds(found, holders))}"
        for found in report.holders
    ]
    if not report.holders:
        parts.append(f'<p class="muted">{words.NO_HOLDERS}</p>{_table(words.by_size(report))}')
    return "".join(parts)


def _section(title: str, rows: Sequence[ReportRow]) -> str:
    return f'<h2>{title}</h2><div class="plain">{_table(rows)}</div>' if rows else ""


def _table(rows: Sequence[ReportRow], kinds: Sequence[str] = ()) -> str:
    """A table; `kinds`: the class of the bar of each row, of the first rows at least."""
    has_shares = any(row.share is not None for row in rows)
    has_notes = any(row.note for row in rows)
    lines = []
    for number, row in enumerate(rows):
        cells = [f'<td class="name">{_safe(row.name)}</td><td class="value">{_safe(row.value)}</td>']
        if has_shares:
            kind = kinds[number] if number < len(kinds) else ""
            bar = (
                ""
                if row.share is None
                else f'<span class="bar {kind}" style="width:{100 * row.share:.2f}%"></span>'
            )
            cells.append(f'<td class="share">{bar}</td>')
        if has_notes:
            cells.append(f'<td class="note muted">{_safe(row.note)}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><tbody>{''.join(lines)}</tbody></table>"
