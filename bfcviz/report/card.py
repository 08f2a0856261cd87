"""The card of a failed request, and that of a peak: at most 600 pixels tall where it is 880 wide."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.diagnosis import Diagnosis, failure_headline, peak_headline, request_words
from bfcviz.analysis.short_names import path_end
from bfcviz.events.origin import facts_of
from bfcviz.events.row_copy import taken
from bfcviz.figures.region_map.rows import Pieces, Rows, lay_out
from bfcviz.figures.text import harmless
from bfcviz.figures.theme import following, holder_rules, holder_variables
from bfcviz.model import Model
from bfcviz.report.content import ColouredHolder, ColouredHolders, coloured_holders
from bfcviz.report.page import HEIGHT, SIZE_BAR_STYLE, RowChunks, SizeBar, size_bars
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# The style of a card.

_CARD: Final = ".bfcviz-card"

_RULES: Final = """
.bfcviz-card{max-width:1100px;margin:4px 0;padding:2px 0 2px 14px;border-left:5px solid var(--free-line);
  color:var(--jp-ui-font-color1,var(--text));font:13px/1.4 var(--jp-ui-font-family,system-ui,sans-serif)}
.bfcviz-card.bfcviz-failure{border-color:var(--oom)}
.bfcviz-card .headline{font-size:17px;line-height:1.3;font-weight:600;overflow-wrap:anywhere}
.bfcviz-failure .headline{color:var(--oom)}
.bfcviz-card .facts{color:var(--jp-ui-font-color2,var(--muted));font-size:12px;overflow-wrap:anywhere}
.bfcviz-card .bfcviz-bars{margin:8px 0;max-width:760px}
.bfcviz-card .two{display:flex;flex-wrap:wrap;gap:8px 20px;align-items:flex-start}
.bfcviz-card .map{flex:5 1 420px;min-width:0}
.bfcviz-card .plot{position:relative}
.bfcviz-card svg{display:block;width:100%}
.bfcviz-card .plot span{position:absolute;display:flex;align-items:center;justify-content:center;font-size:11px;
  line-height:13px;white-space:nowrap;color:var(--text)}
.bfcviz-card .free-area{fill:var(--free)}
.bfcviz-card .request{fill:none;stroke:var(--oom);stroke-width:2;stroke-dasharray:5 3}
.bfcviz-card .in-the-way{fill:var(--oom)}
.bfcviz-card .key{display:inline-block;width:14px;height:9px;margin:0 5px 0 0;box-sizing:border-box}
.bfcviz-card .key:not(:first-child),.bfcviz-card .scale{margin-left:12px}
.bfcviz-card .key.free{background:var(--free);border:1px solid var(--free-line)}
.bfcviz-card .key.request{border:2px dashed var(--oom)}
.bfcviz-card .key.in-the-way{background:var(--oom);height:3px;vertical-align:middle}
.bfcviz-card table.holders{flex:3 1 290px;border-collapse:collapse;margin:0;font-size:12px;line-height:17px;
  font-variant-numeric:tabular-nums;table-layout:auto;color:inherit;border:0}
.bfcviz-card .holders th{text-align:left;font-weight:600;padding:0;border:0}
.bfcviz-card .holders td{padding:1px 0 1px 12px;border:0;text-align:right;white-space:nowrap;background:none}
.bfcviz-card .holders td:first-child{padding-left:0;text-align:left}
.bfcviz-card .holders tr{background:none!important}  /* JupyterLab has stripes */
.bfcviz-card .swatch{display:inline-block;width:10px;height:10px;margin-right:6px}
.bfcviz-card .to-do{margin-top:8px;overflow-wrap:anywhere}
.bfcviz-card .to-do b{margin-right:6px}
"""

STYLE: Final = (
    f"{following(_CARD)}{following(_CARD, holder_variables)}{holder_rules(_CARD)}{SIZE_BAR_STYLE}{_RULES}"
)
"""The rules of all cards."""


# ------------------------------------------------------------------------------
# The map of a card: regions as rows, chunks coloured by holder, and the request drawn to scale where it fits best.

_WIDTH: Final = 1000  # units of a row
_ROWS: Final = 7
_GAP: Final = 7  # pixels between two rows: the marks of chunks in the way lie in it
_TALLEST: Final = 280  # pixels of the drawing: with more rows they are thinner
_EXACT: Final = 1500  # chunks that are drawn with their exact ends
_COLUMNS: Final = 500  # of a row, where there are more
_NAMED_FREE: Final = 3  # free chunks with their size
_LEAST_NAMED: Final = 0.11  # of a row: a narrower chunk has no room for its size


class _Request(NamedTuple):
    """Where the request is drawn: its address and its bytes, clipped to the region; and the chunks in the way."""

    address: int
    size: int
    pins: list[tuple[int, int]]


def card_map(model: Model, holders: ColouredHolders, found: Diagnosis | None) -> str:
    """The map with a line of text below it; `found`: the failed request."""
    regions, request = model.regions(), None if found is None else _request(model, found)
    shown = _shown(regions, None if request is None else request.address)
    rows = lay_out(shown, wrapped_rows=max(_ROWS, len(shown)))
    count = min(len(rows), 2 * _ROWS)
    height = count * (HEIGHT + _GAP)
    drawn = min(height, _TALLEST)
    parts = [*_background(rows, count), *_chunks(rows, count, shown, holders)]
    if request is not None:
        parts += _request_shapes(rows, count, request)
    texts = _free_sizes(rows, count, shown, holders.chunks)
    left = len(regions) - len(shown)
    more = f", {left:,} smaller regions not drawn" if left else ""
    key = "".join(f'<span class="key {kind}"></span>{name}' for kind, name in _key(request))
    return (
        f'<div class="map"><div class="plot" style="height:{drawn}px">'
        f'<svg viewBox="0 0 {_WIDTH} {height}" style="height:{drawn}px" preserveAspectRatio="none" role="img" '
        f'aria-label="the chunks by address">{"".join(parts)}</svg>{texts}</div>'
        f'<div class="facts">{key}<span class="scale">a row: {format_bytes(rows.width)}{more}</span></div></div>'
    )


def _key(request: _Request | None) -> list[tuple[str, str]]:
    found = [("free", "free")]
    if request is not None:
        found.append(("request", "the request, to scale"))
        if request.pins:
            found.append(("in-the-way", "in its way"))
    return found


def _request(model: Model, found: Diagnosis) -> _Request | None:
    """The best place for the request, else where the largest free chunk begins; None where nothing is free."""
    if found.pinned_by:
        run = found.runs[0]
        pins = [(pin.address, pin.size) for pin in run.pins]
        address = run.address
    elif found.hole.chunk is not None:
        address, pins = int(found.hole.chunk["address"]), []
    else:
        return None
    regions = model.regions()
    region = regions[int(np.searchsorted(regions["address"], np.uint64(address), "right")) - 1]
    left = int(region["address"]) + int(region["size"]) - address
    return _Request(address, min(found.rounded, left), pins)


def _shown(regions: NDArray[np.void], address: int | None) -> NDArray[np.void]:
    """At most `_ROWS` regions: that of the request, then the largest."""
    if len(regions) <= _ROWS:
        return regions
    sizes = regions["size"].astype(np.float64)
    if address is not None:
        sizes[int(np.searchsorted(regions["address"], np.uint64(address), "right")) - 1] = np.inf
    return taken(regions, np.sort(np.argsort(-sizes, kind="stable")[:_ROWS]))


def _background(rows: Rows, count: int) -> list[str]:
    """The bytes of the regions, in the colour of free chunks."""
    pieces = rows.of_regions()
    scale = _WIDTH / rows.width
    return [
        f'<rect class="free-area" y="{row * (HEIGHT + _GAP)}" width="{right * scale:.2f}" height="{HEIGHT}"/>'
        for row, right in zip(pieces.row.tolist(), pieces.right.tolist(), strict=True)
        if row < count
    ]


def _inside(shown: NDArray[np.void], chunks: NDArray[np.void], wanted: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Which of the wanted chunks lie in the regions shown."""
    return np.flatnonzero(wanted & np.isin(chunks["region"], shown["slot"]))


def _chunks(rows: Rows, count: int, shown: NDArray[np.void], holders: ColouredHolders) -> list[str]:
    chunks = holders.chunks
    at = _inside(shown, chunks, chunks["in_use"])
    pieces = rows.pieces(chunks["address"][at], chunks["size"][at])
    kinds = holders.numbers[at][pieces.source]
    scale = _WIDTH / rows.width
    found = []
    for row in range(count):
        mine = pieces.row == row
        drawn = RowChunks(pieces.left[mine] * scale, pieces.right[mine] * scale, kinds[mine], holders.kinds)
        shapes = drawn.exact() if len(pieces) <= _EXACT else drawn.shaded(_WIDTH, _COLUMNS)
        found.append(f'<g transform="translate(0,{row * (HEIGHT + _GAP)})">{"".join(shapes)}</g>')
    return found


def _request_shapes(rows: Rows, count: int, request: _Request) -> list[str]:
    scale, found = _WIDTH / rows.width, []
    for row, left, right in _boxes(_pieces(rows, [(request.address, request.size)]), count):
        found.append(
            f'<rect class="request" x="{left * scale:.2f}" y="{row * (HEIGHT + _GAP) - 1}" '
            f'width="{(right - left) * scale:.2f}" height="{HEIGHT + 2}" vector-effect="non-scaling-stroke"/>'
        )
    for row, left, right in _boxes(_pieces(rows, request.pins), count):
        found.append(
            f'<rect class="in-the-way" x="{left * scale:.2f}" y="{row * (HEIGHT + _GAP) + HEIGHT + 2}" '
            f'width="{max((right - left) * scale, 2):.2f}" height="3"/>'
        )
    return found


def _free_sizes(rows: Rows, count: int, shown: NDArray[np.void], chunks: NDArray[np.void]) -> str:
    """The sizes of the largest free chunks as texts over the map."""
    at = _inside(shown, chunks, ~chunks["in_use"])
    at = at[np.argsort(-chunks["size"][at].astype(np.float64), kind="stable")[:_NAMED_FREE]]
    found, tall = [], 100 * HEIGHT / (HEIGHT + _GAP) / count
    for index in at.tolist():
        size = int(chunks["size"][index])
        boxes = _boxes(_pieces(rows, [(int(chunks["address"][index]), size)]), count)
        row, left, right = max(boxes, key=lambda box: box[2] - box[1], default=(0, 0.0, 0.0))
        if right - left >= _LEAST_NAMED * rows.width:
            place = f"left:{100 * left / rows.width:.2f}%;width:{100 * (right - left) / rows.width:.2f}%"
            found.append(
                f'<span style="top:{100 * row / count:.2f}%;height:{tall:.2f}%;{place}">'
                f"{format_bytes(size)} free</span>"
            )
    return "".join(found)


def _pieces(rows: Rows, spans: list[tuple[int, int]]) -> Pieces:
    inside = [(address, size) for address, size in spans if _is_shown(rows, address)]
    return rows.pieces(
        np.array([address for address, _ in inside], np.uint64),
        np.array([size for _, size in inside], np.uint64),
    )


def _is_shown(rows: Rows, address: int) -> bool:
    at = int(np.searchsorted(rows.address, np.uint64(address), "right")) - 1
    return at >= 0 and address < int(rows.address[at]) + int(rows.size[at])


def _boxes(pieces: Pieces, count: int) -> list[tuple[int, float, float]]:
    """Row, left and right of each piece on the map, in bytes."""
    rows = zip(pieces.row.tolist(), pieces.left.tolist(), pieces.right.tolist(), strict=True)
    return [(row, left, right) for row, left, right in rows if row < count]


# ------------------------------------------------------------------------------
# The card of a failed request, and that of a peak: at most 600 pixels tall where it is 880 wide.

_LONGEST: Final = 600
"""Characters of a text."""

_LONGEST_NAME: Final = 30

_PIECES: Final = 40
"""Free chunks that are drawn each for itself in the bar of free memory."""


def failure_card(model: Model, found: Diagnosis) -> str:
    """The card of a failed request.

    Args:
        model: stands at the step before the request.
        found: its diagnosis.
    """
    facts = f"{request_words(found)} · {found.pool_name}, step {found.step + 1:,}"
    advice = found.advice[0].text if found.advice else ""
    return _card(model, failure_headline(found), [facts], found, advice)


def peak_card(model: Model, says: str = "") -> str:
    """The card of a peak.

    Args:
        model: stands at the peak.
        says: how the heap was watched, as text.
    """
    stats, pool = model.stats(), model.trace.origin.pools[model.pool]
    facts = [
        f"{pool.name}, step {model.step:,} of {len(model.trace):,}, {stats.chunks_in_use:,} chunks in use",
        says,
    ]
    return _card(model, peak_headline(model), [fact for fact in facts if fact], None, "")


def _card(model: Model, headline: str, facts: Sequence[str], found: Diagnosis | None, advice: str) -> str:
    kind = "bfcviz-card bfcviz-report" if found is None else "bfcviz-card bfcviz-failure"
    lines = "".join(f'<div class="facts">{_safe(fact)}</div>' for fact in facts)
    holders = coloured_holders(model)
    to_do = f'<div class="to-do"><b>To do</b> {_safe(advice)}</div>' if advice else ""
    body = ""
    if len(model.regions()):
        body = (
            f"{size_bars(_bars(model, found))}"
            f'<div class="two">{card_map(model, holders, found)}{_holders_table(holders)}</div>'
        )
    return (
        f"<style>{STYLE}</style>"
        f'<div class="{kind}"><div class="headline">{_safe(headline)}</div>'
        f"{lines}{body}{to_do}</div>"
    )


def _bars(model: Model, found: Diagnosis | None) -> list[SizeBar]:
    table = model.table
    sizes: dict[str, int | None] = {
        "largest_free_chunk": table.largest_free_chunk,
        "free_bytes": table.free_bytes,
        "wasted": table.bytes_in_use - table.requested_bytes_in_use,
    }
    stated = facts_of(model.trace.origin.details, model.pool)
    sizes |= {name: None for name in sizes if stated.get(name, 0) is None}
    if found is not None:
        sizes["wasted"] = found.wasted
        sizes |= {name: None for name in sizes if name != "wasted" and not found.knows(name)}
    request = [] if found is None else [SizeBar("asked", found.rounded, "asked failed")]
    return [
        *request,
        SizeBar("largest free", sizes["largest_free_chunk"], "free"),
        SizeBar("free", sizes["free_bytes"], "free", _card_pieces(model) if sizes["free_bytes"] else ()),
        SizeBar("wasted", sizes["wasted"], "waste"),
    ]


def _card_pieces(model: Model) -> list[int]:
    """The free chunks from large to small; the smallest together."""
    chunks = model.chunks()
    free = chunks[~chunks["in_use"]]
    sizes = sorted(free["size"].tolist(), reverse=True)
    return [*sizes[:_PIECES], *([sum(sizes[_PIECES:])] if len(sizes) > _PIECES else [])]


def _safe(text: str) -> str:
    return harmless(text, _LONGEST)


def _holders_table(holders: ColouredHolders) -> str:
    """The rows as an HTML table."""
    rows = "".join(_holder(row) for row in holders.rows)
    head = '<thead><tr><th colspan="3">who holds it</th></tr></thead>'
    return f'<table class="holders">{head}<tbody>{rows}</tbody></table>'


def _holder(row: ColouredHolder) -> str:
    name = harmless(path_end(row.name, _LONGEST_NAME), _LONGEST_NAME + 1)
    full = harmless(row.name, _LONGEST)
    return (
        f'<tr title="{full}"><td><span class="swatch {row.kind}"></span>{name}</td>'
        f"<td>{format_bytes(row.size)}</td><td>{row.share:.0%}</td></tr>"
    )
