"""Cards of a failed request and of a peak, at most 600 pixels tall where 880 wide; the opening of a dashboard."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from bfcviz.analysis.diagnosis import Diagnosis, failure_headline, request_words
from bfcviz.analysis.failures import diagnose
from bfcviz.analysis.growth_forecast import growth_headline
from bfcviz.analysis.peak_headline import peak_headline
from bfcviz.analysis.short_names import path_end
from bfcviz.events.origin import facts_of, holds_only_states, regions_known
from bfcviz.events.trace import Trace
from bfcviz.figures.colouring import OTHER, colouring
from bfcviz.figures.holder_list import HolderCounts, HolderRowChooser, other_holders_name
from bfcviz.figures.svg import SHOWN, picture
from bfcviz.figures.text import harmless
from bfcviz.figures.theme import LIGHT, following, holder_rules, holder_variables
from bfcviz.figures.view_options import Look
from bfcviz.model import Model
from bfcviz.model.find_steps import first_failure, opening
from bfcviz.units import format_bytes

# ------------------------------------------------------------------------------
# Sizes as bars below each other on one scale, as HTML: what was asked for, what is free, what is wasted.

_UNKNOWN: Final = "unknown"


class SizeBar(NamedTuple):
    """One bar of a size of the heap, in a card or in the header of a dashboard."""

    name: str  # what the size is of
    size: int | None  # bytes; None: unknown
    kind: str  # its colour: `asked`, `free`, `waste`
    parts: Sequence[int] = ()  # bytes of the pieces to draw it in, side by side; empty: one piece


SIZE_BAR_STYLE: Final = """
.bfcviz-bars{display:grid;grid-template-columns:max-content minmax(60px,1fr) max-content;gap:2px 8px;
  align-items:center;font-size:11px;line-height:12px;font-variant-numeric:tabular-nums}
.bfcviz-bars .track{display:flex;height:9px}
.bfcviz-bars .track span{box-sizing:border-box;height:100%;min-width:0;flex:1 1 0}
.bfcviz-bars .free{background:var(--free);border:1px solid var(--free-line)}
.bfcviz-bars .free+.free{border-left-width:0}
.bfcviz-bars .waste{background:var(--waste)}
.bfcviz-bars .asked{border:2px solid var(--text)}
.bfcviz-bars .asked.failed{border-color:var(--oom)}
.bfcviz-bars .value{text-align:right}
"""


def size_bars(bars: Sequence[SizeBar]) -> str:
    """Bars of sizes as HTML; the page must have `SIZE_BAR_STYLE` and the variables of `theme.following`."""
    most = max([bar.size or 0 for bar in bars] + [1])
    return f'<div class="bfcviz-bars">{"".join(_size_bar_row(bar, most) for bar in bars)}</div>'


def _size_bar_row(bar: SizeBar, most: int) -> str:
    """One bar of a size as HTML, between its name and its size."""
    sizes = bar.parts or ([bar.size] if bar.size else [])
    parts = "".join(f'<span class="{bar.kind}" style="flex-grow:{size}"></span>' for size in sizes)
    track = f'<span class="track" style="width:{100 * (bar.size or 0) / most:.2f}%">{parts}</span>'
    value = _UNKNOWN if bar.size is None else format_bytes(bar.size)
    return f'<span>{bar.name}</span><span>{track}</span><span class="value">{value}</span>'


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
.bfcviz-card .bfcviz-bars{margin:8px 0}
.bfcviz-card .two{display:flex;flex-wrap:wrap;gap:0 28px;align-items:flex-start}
.bfcviz-card .bfcviz-bars{flex:3 1 320px}
.bfcviz-card svg{display:block;width:100%;height:auto}
.bfcviz-card table.holders{flex:3 1 290px;border-collapse:collapse;margin:0;font-size:12px;line-height:17px;
  font-variant-numeric:tabular-nums;table-layout:auto;color:inherit;border:0}
.bfcviz-card .holders th{text-align:left;font-weight:600;padding:0;border:0}
.bfcviz-card .holders td{padding:1px 0 1px 12px;border:0;text-align:right;white-space:nowrap;background:none}
.bfcviz-card .holders td:first-child{padding-left:0;text-align:left}
.bfcviz-card .holders .inside td:first-child{padding-left:14px}
.bfcviz-card .holders tr{background:none!important}  /* JupyterLab has stripes */
.bfcviz-card .swatch{display:inline-block;width:10px;height:10px;margin-right:6px}
.bfcviz-card .to-do{margin-top:8px;overflow-wrap:anywhere}
.bfcviz-card .to-do b{margin-right:6px}
"""

_COLOURS: Final = f"{following(_CARD)}{following(_CARD, holder_variables)}{holder_rules(_CARD)}"

STYLE: Final = f"{_COLOURS}{SIZE_BAR_STYLE}{SHOWN}{_RULES}"
"""The rules of all cards."""


# ------------------------------------------------------------------------------
# The card of a failed request, and that of a peak: at most 600 pixels tall where it is 880 wide.

_LONGEST: Final = 600  # characters of a text

_LONGEST_NAME: Final = 30

_MOST_HOLDERS: Final = 8  # holders that are listed; the rest is one row

_MAP: Final = 240  # pixels of the map at most

_TIMELINE: Final = 165  # pixels of the memory over time: as high as in a dashboard

_PIECES: Final = 40  # free chunks that are drawn each for itself in the bar of free memory


def failure_card(model: Model, found: Diagnosis) -> str:
    """The card of a failed request.

    Args:
        model: stands at the step before the request.
        found: its diagnosis.
    """
    facts = f"{request_words(found)} · {found.pool_name}, step {found.told_step:,}"
    advice = found.advice[0].text if found.advice else ""
    return _heap_card(model, failure_headline(found), [facts], found, advice)


def peak_card(model: Model, says: str = "") -> str:
    """The card of a peak. Where the heap grows up to the end of its trace, the card says so first.

    Args:
        model: stands at the peak.
        says: how the heap was watched, as text.
    """
    return _card_without_failure(model, says).html


class OpeningCard(NamedTuple):
    """The card that a dashboard opens at, as HTML until there are live figures; and its verdict in one line."""

    headline: str
    html: str


def _card_without_failure(model: Model, says: str = "") -> OpeningCard:
    stats, pool = model.stats(), model.trace.origin.pools[model.pool]
    headline, *more = filter(None, [growth_headline(model, len(model.trace)), peak_headline(model)])
    facts = [
        f"{pool.name}, step {model.step:,} of {len(model.trace):,}, {stats.chunks_in_use:,} chunks in use",
        *more,
        says,
    ]
    return OpeningCard(headline, _heap_card(model, headline, [fact for fact in facts if fact], None, ""))


def opening_card(trace: Trace) -> OpeningCard:
    """The card that a dashboard of this trace opens at: of the first failure, else of the peak or the state."""
    pool, step = opening(trace)
    model = Model(trace, pool)
    if first_failure(trace) is None:
        model.seek(step)
        headline, html = _card_without_failure(model)
        return OpeningCard(headline, html + _card_timeline(model))
    model.seek(step - 1)
    found = diagnose(trace, step - 1, model)
    card = failure_card(model, found)
    model.seek(step)
    return OpeningCard(failure_headline(found), card + _card_timeline(model))


def _card_timeline(model: Model) -> str:
    """The memory over all steps on a card, as the dashboard shows it; "" for the state of a moment."""
    details = model.trace.origin.details
    if holds_only_states(details):
        return ""
    name = "stats_timeline" if regions_known(details, model.pool) else "active_memory"
    drawn = picture(name, model, Look(colour="holder"), highest=_TIMELINE)
    return f'<div class="bfcviz-card">{drawn}</div>'


def _heap_card(
    model: Model, headline: str, facts: Sequence[str], found: Diagnosis | None, advice: str
) -> str:
    kind = "bfcviz-card bfcviz-report" if found is None else "bfcviz-card bfcviz-failure"
    lines = "".join(f'<div class="facts">{_card_html_text(fact)}</div>' for fact in facts)
    to_do = f'<div class="to-do"><b>To do</b> {_card_html_text(advice)}</div>' if advice else ""
    body = ""
    if len(model.regions()):
        body = (
            f'<div class="two">{size_bars(_card_size_bars(model, found))}{_card_holders_table(model)}</div>'
            f"{_card_region_map(model, found)}"
        )
    return (
        f"<style>{STYLE}</style>"
        f'<div class="{kind}"><div class="headline">{_card_html_text(headline)}</div>'
        f"{lines}{body}{to_do}</div>"
    )


def _card_region_map(model: Model, found: Diagnosis | None) -> str:
    """The region map of a card; a failed request is marked at its own step. The table beside it names the holders."""
    step = model.step
    model.seek(step if found is None else found.step + 1)
    drawn = picture("region_map", model, Look(colour="holder", legend=False), highest=_MAP)
    model.seek(step)
    return drawn


def _card_size_bars(model: Model, found: Diagnosis | None) -> list[SizeBar]:
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
    request = [] if found is None else [SizeBar("asked", found.requested, "asked failed")]
    return [
        *request,
        SizeBar("largest free", sizes["largest_free_chunk"], "free"),
        SizeBar("free", sizes["free_bytes"], "free", _card_free_sizes(model) if sizes["free_bytes"] else ()),
        SizeBar("wasted", sizes["wasted"], "waste"),
    ]


def _card_free_sizes(model: Model) -> list[int]:
    """The free chunks on a card, from large to small; the smallest together."""
    chunks = model.chunks()
    free = chunks[~chunks["in_use"]]
    sizes = sorted(free["size"].tolist(), reverse=True)
    return [*sizes[:_PIECES], *([sum(sizes[_PIECES:])] if len(sizes) > _PIECES else [])]


def _card_html_text(text: str) -> str:
    return harmless(text, _LONGEST)


class CardHolder(NamedTuple):
    """A row of a card: a holder as in the list of a dashboard."""

    name: str
    path: str  # the whole name
    depth: int  # 1: it is a part of the row of depth 0 above
    kind: str  # the CSS class of the colour of most of its bytes in the map
    size: int  # bytes
    share: float  # of all in use, 0..1


def card_holders(model: Model) -> list[CardHolder]:
    """The first rows of a dashboard's list of holders at the model's step; all others are one row."""
    colours = colouring(model.trace, model.pool, "holder", LIGHT, model.chunks())
    found = HolderCounts(model.trace, model.pool).count(model, None, colours, growth_wanted=False)
    listed = HolderRowChooser(found.index, found.amounts, found.keys("bytes")).rows()
    shown = [row for row in listed if row.node >= 0][:_MOST_HOLDERS]
    sizes = found.amounts.bytes
    rows = [
        CardHolder(
            row.name,
            found.index.how.text(found.index.path(row.node)),
            row.depth,
            f"holder-{OTHER if found.classes[row.node] < 0 else found.classes[row.node]}",
            int(sizes[row.node]),
            found.share(int(sizes[row.node])),
        )
        for row in shown
    ]
    rest = found.total - sum(row.size for row in rows if not row.depth)
    if not rest:
        return rows
    holders = sum(row.holders for row in listed if not row.depth and row not in shown)
    others = other_holders_name(holders)
    return [*rows, CardHolder(others, others, 0, f"holder-{OTHER}", rest, found.share(rest))]


def _card_holders_table(model: Model) -> str:
    """The holders as an HTML table."""
    rows = "".join(_card_holder_row(row) for row in card_holders(model))
    head = '<thead><tr><th colspan="3">who holds it</th></tr></thead>'
    return f'<table class="holders">{head}<tbody>{rows}</tbody></table>'


def _card_holder_row(row: CardHolder) -> str:
    name = harmless(path_end(row.name, _LONGEST_NAME), _LONGEST_NAME + 1)
    full = harmless(row.path, _LONGEST)
    inside = ' class="inside"' if row.depth else ""
    return (
        f'<tr title="{full}"{inside}><td><span class="swatch {row.kind}"></span>{name}</td>'
        f"<td>{format_bytes(row.size)}</td><td>{row.share:.0%}</td></tr>"
    )
