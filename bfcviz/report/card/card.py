"""The card of a failed request, and that of a peak: at most 600 pixels tall where it is 880 wide."""

from collections.abc import Sequence
from typing import Final

from bfcviz.events.origin_details import facts_of
from bfcviz.figures.style.text import harmless
from bfcviz.model import Model
from bfcviz.model.explain.failure.diagnosis import Diagnosis
from bfcviz.model.explain.text.headline import failure_headline, peak_headline
from bfcviz.model.explain.text.short_names import path_end
from bfcviz.report.card.card_map import card_map
from bfcviz.report.card.style import STYLE
from bfcviz.report.holder_colours import ColouredHolder, ColouredHolders, coloured_holders
from bfcviz.report.html.size_bars import SizeBar, size_bars
from bfcviz.units import format_bytes

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
    who = path_end(found.label, _LONGEST) or "an unnamed request"
    facts = f"{who} failed to allocate {format_bytes(found.requested)} · {found.pool_name}, step {found.step + 1:,}"
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
        SizeBar("free", sizes["free_bytes"], "free", _pieces(model) if sizes["free_bytes"] else ()),
        SizeBar("wasted", sizes["wasted"], "waste"),
    ]


def _pieces(model: Model) -> list[int]:
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
