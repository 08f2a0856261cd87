"""Header: the verdict, the totals, and what led to the step shown."""

import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

import ipywidgets as widgets

from bfcviz.analysis.account import ACCOUNT_STYLE, DeviceAccount, account_bar
from bfcviz.analysis.diagnosis import Diagnosis, failure_headline
from bfcviz.analysis.event_text import explain_step, step_line
from bfcviz.analysis.failures import diagnose
from bfcviz.analysis.free_chunk_search import EventSearch, search_words
from bfcviz.analysis.growth_forecast import growth_headline
from bfcviz.analysis.missing_numbers import missing_of_chunks
from bfcviz.analysis.peak_headline import peak_headline
from bfcviz.analysis.pool_growths import growth_explanation, growths
from bfcviz.analysis.what_grew import WhatGrew
from bfcviz.dashboard.layouts import MARGINS
from bfcviz.events.origin import Origin, Status, facts_of, holds_only_states, recorded_failures
from bfcviz.events.trace import Trace
from bfcviz.exporters.heap_cards import SIZE_BAR_STYLE, SizeBar, size_bars
from bfcviz.figures.text import harmless
from bfcviz.figures.theme import following
from bfcviz.figures.view_options import Look
from bfcviz.model import Model
from bfcviz.model.find_steps import failed_steps, peak
from bfcviz.units import counted, format_bytes

# ------------------------------------------------------------------------------
# The style of the header: JupyterLab's colours for text, the themes' colours for sizes; light and dark.

_RULES: Final = """
.bfcviz-header{overflow:visible;color:var(--jp-ui-font-color1,var(--text));
  font-family:var(--jp-ui-font-family,system-ui,sans-serif)}
.bfcviz-header .widget-html,.bfcviz-header .widget-html-content{margin:0;height:auto;line-height:1.35;
  font-size:13px;overflow:visible}
.bfcviz-headline .text{font-size:15px;font-weight:600;line-height:20px;padding:1px 0 1px 10px;
  border-left:4px solid var(--free-line);overflow-wrap:anywhere}
.bfcviz-headline .failed,.bfcviz-headline .grows{border-color:var(--oom)}
.bfcviz-headline .failed{color:var(--oom)}
.bfcviz-growth .text{padding-left:14px;overflow-wrap:anywhere}
.bfcviz-headline a,.bfcviz-growth a{font-weight:400;font-size:13px;white-space:nowrap;margin-left:6px;cursor:pointer;
  color:var(--jp-content-link-color,var(--in-use));text-decoration:underline}
.bfcviz-numbers .all{display:flex;flex-wrap:wrap;gap:4px 20px;align-items:center}
.bfcviz-numbers .tiles{flex:6 1 420px;max-width:900px;display:grid;grid-template-columns:repeat(4,auto);gap:0 12px;
  justify-content:space-between}
.bfcviz-numbers .tile{display:flex;flex-direction:column;line-height:14px;font-size:11px;cursor:help;
  font-variant-numeric:tabular-nums;white-space:nowrap}
.bfcviz-numbers .tile b{font-size:17px;line-height:20px}
.bfcviz-numbers .tile span{color:var(--jp-ui-font-color2,var(--muted))}
.bfcviz-numbers .bfcviz-bars{flex:4 1 280px}
.bfcviz-step-line summary{cursor:pointer;overflow-wrap:anywhere}
.bfcviz-step-line .file,.bfcviz-step-line .more{color:var(--jp-ui-font-color2,var(--muted))}
.bfcviz-step-line .more{text-decoration:underline dotted;margin-left:8px}
.bfcviz-step-line p{margin:2px 0 2px 14px;max-width:110ch;overflow-wrap:anywhere}
.bfcviz-step-line .wrong{font-weight:600;overflow-wrap:anywhere}
.bfcviz-first-line{overflow:visible}
.bfcviz-first-line .bfcviz-headline{flex:1 1 auto;min-width:0}
.bfcviz-notice{flex:0 0 auto;overflow:visible}
.bfcviz-notice summary{cursor:pointer;list-style:none;font-size:12px;text-decoration:underline dotted;
  color:var(--jp-ui-font-color2,var(--muted));white-space:nowrap}
.bfcviz-notice details{position:relative}
.bfcviz-notice details div{position:absolute;right:0;z-index:5;width:max-content;max-width:min(70ch,80vw);
  padding:4px 10px;background:var(--paper);color:var(--text);border:1px solid var(--muted);overflow-wrap:anywhere}
.bfcviz-notice p{margin:2px 0}
.bfcviz-device .bfcviz-account{display:grid;grid-template-columns:max-content minmax(60px,1fr);gap:0 10px;
  align-items:center;font-variant-numeric:tabular-nums}
.bfcviz-device .bfcviz-account-bar{height:10px;margin:0}
"""

STYLE: Final = f"<style>{following('.bfcviz-header')}{SIZE_BAR_STYLE}{ACCOUNT_STYLE}{_RULES}</style>"
"""A page needs it once, for any number of headers."""


# ------------------------------------------------------------------------------
# The totals at a step: four tiles, bars on one scale, and all of them in one line.

_UNKNOWN: Final = "unknown"

Numbers = Mapping[str, int | None]
"""The totals by the names of `ModelStats`; None: unknown."""


def header_numbers(model: Model, failed: Diagnosis | None = None) -> Numbers:
    """The header's totals at the model's step. A number that the file states counts where it has no history.

    Args:
        model: stands at the step.
        failed: the request that failed at this step: the file may say of it how much was wasted.
    """
    origin = model.trace.origin
    numbers: dict[str, int | None] = asdict(model.stats())
    is_state = holds_only_states(origin.details)
    for name, value in facts_of(origin.details, model.pool).items():
        if name in numbers and (value is None or (is_state and isinstance(value, int))):
            numbers[name] = value
    used = numbers["bytes_in_use"]
    if failed is not None and failed.wasted is not None and used is not None:
        numbers["requested_bytes_in_use"] = used - failed.wasted
    return numbers


def tiles(numbers: Numbers) -> str:
    """The header's tiles: in use, free, largest free chunk and waste, each with a second number and its definition."""
    used, free, largest = numbers["bytes_in_use"], numbers["free_bytes"], numbers["largest_free_chunk"]
    apart = None if free is None or largest is None else free - largest
    wasted = _header_wasted_bytes(numbers)
    in_pool = _header_share_text(used, numbers["pool_bytes"], "of the pool")
    shown = [
        ("in use", used, in_pool, "bytes of all chunks in use"),
        ("free", free, _header_chunk_count(numbers["chunks_free"]), "bytes of all free chunks of the pool"),
        (
            "largest free chunk",
            largest,
            _header_share_text(apart, free, "fragmented"),
            "the largest request that fits now; fragmented (external) = 1 - largest free chunk / free",
        ),
        (
            "waste",
            wasted,
            _header_share_text(wasted, used, "of in use"),
            "bytes of chunks in use that were not requested; the share is 1 - requested / in use",
        ),
    ]
    return "".join(
        f'<div class="tile" title="{meaning}"><span>{name}</span><b>{_header_size(value)}</b><span>{below or "&nbsp;"}'
        "</span></div>"
        for name, value, below, meaning in shown
    )


def bars(numbers: Numbers, asked: int, *, failed: bool) -> str:
    """The header's bars: a request, the largest free chunk, free and wasted bytes on one scale."""
    return size_bars(
        [
            SizeBar("asked", asked, "asked failed" if failed else "asked"),
            SizeBar("largest free", numbers["largest_free_chunk"], "free"),
            SizeBar("free", numbers["free_bytes"], "free"),
            SizeBar("wasted", _header_wasted_bytes(numbers), "waste"),
        ]
    )


def totals_line(numbers: Numbers) -> str:
    """The header's totals in one line, with their definitions; those that the file cannot know are unknown."""
    used, free, largest = numbers["bytes_in_use"], numbers["free_bytes"], numbers["largest_free_chunk"]
    wasted = _header_wasted_bytes(numbers)
    apart = None if free is None or largest is None else free - largest
    fragmentation, waste = _header_ratio_text(apart, free), _header_ratio_text(wasted, used)
    return (
        f"in use {_header_size(used)}{_spaced_chunk_count(numbers['chunks_in_use'])} "
        f"(peak {_header_size(numbers['peak_bytes_in_use'])}) · "
        f"free {_header_size(free)}{_spaced_chunk_count(numbers['chunks_free'])}, "
        f"largest {_header_size(largest)} · "
        f"pool {_header_size(numbers['pool_bytes'])}, limit {_header_size(numbers['bytes_limit'])} · "
        f"external fragmentation {fragmentation} (1 - largest free chunk / free) · "
        f"internal {waste} (1 - requested / in use)"
    )


def _header_ratio_text(part: int | None, whole: int | None) -> str:
    """A ratio in the header, as in `timelines.fragmentation`: 0 of nothing."""
    if part is None or whole is None:
        return _UNKNOWN
    return f"{part / whole if whole else 0.0:.1%}"


def _header_wasted_bytes(numbers: Numbers) -> int | None:
    used, requested = numbers["bytes_in_use"], numbers["requested_bytes_in_use"]
    return None if used is None or requested is None else max(used - requested, 0)


def _header_share_text(part: int | None, whole: int | None, what: str) -> str:
    return "" if part is None or not whole else f"{part / whole:.1%} {what}"


def _header_size(value: int | None) -> str:
    return _UNKNOWN if value is None else format_bytes(value)


def _spaced_chunk_count(count: int | None) -> str:
    return f" {_header_chunk_count(count)}" if count is not None else ""


def _header_chunk_count(count: int | None) -> str:
    return "" if count is None else f"in {counted(count, 'chunk')}"


# ------------------------------------------------------------------------------
# HeadlineFinder: what to say first of a heap; each failure is diagnosed once.

_SETTLED: Final = 256
"""Events after an OOM by which it is known whether the heap made room for its request after all."""


@dataclass(frozen=True)
class Headline:
    """The headline: what the header says first."""

    text: str  # one sentence
    step: int | None = None  # the step that it is about; None: the step shown
    # the diagnosis of the failure that it is about; None where nothing failed
    failed: Diagnosis | None = None
    # number, count: the position of the failure among all failures, from 1
    number: int = 0
    count: int = 0
    grows: bool = False  # it is about what grows until a request fails


_GROWTH_SHARE: Final = 0.02
"""Share of the time that may go into the search for what grows in a heap at work."""

_GROWTH_PERIOD_S: Final = 2.0
"""Least seconds between two such searches."""

_MOST_EXPLAINED: Final = 5_000_000
"""Events of a trace whose growth a click explains: that takes some 2 s, in which nothing else is answered."""


class HeadlineFinder:
    """The headlines of one heap of a trace, which may grow."""

    def __init__(self, trace: Trace, pool: int) -> None:
        self.trace, self.pool = trace, pool
        self._failed: list[int] = []
        self._read = trace.first
        self._found: dict[int, Diagnosis] = {}
        self._ended: tuple[int, Headline] | None = None
        self._why: tuple[int, str] | None = None
        self._growing, self._growth_due = "", 0.0
        self.has_ended = False  # a ring is followed as long as arrays live in its heap
        self._bare = {each.event for each in recorded_failures(trace.origin.details) if not each.has_heap}

    def find(self, model: Model) -> Headline:
        """The headline: the failure at or before the model's step; else the first after it; else growth or the peak."""
        self._read_new()
        if self._failed:
            return self._failure(model)
        if self.is_at_work:
            if growing := self._growing_now(model):
                return Headline(growing, grows=True)
            most = format_bytes(model.stats().peak_bytes_in_use)
            return Headline(f"No request failed so far; peak {most} in use")
        if self._ended is None or self._ended[0] != len(self.trace):
            self._ended = len(self.trace), self._at_end(model)
        return self._ended[1]

    def _at_end(self, model: Model) -> Headline:
        """The headline of a trace without a failure, to which no events come."""
        if growing := growth_headline(model, len(self.trace)):
            return Headline(growing, grows=True)
        with model.visiting(peak(self.trace, self.pool)) as there:
            return Headline(peak_headline(there), there.step)

    @property
    def is_at_work(self) -> bool:
        """Whether more events may come, so that the headline says what is known so far."""
        return self.trace.following and not self.has_ended

    def _growing_now(self, model: Model) -> str:
        """For the headline of a heap at work: what grows with every step of its program, and until when; or nothing."""
        if time.monotonic() >= self._growth_due:
            began = time.monotonic()
            self._growing = growth_headline(model, len(self.trace), still_held=True)
            ended = time.monotonic()
            self._growth_due = ended + max(_GROWTH_PERIOD_S, (ended - began) / _GROWTH_SHARE)
        return self._growing

    def why(self) -> str:
        """The headline's reason why the pool grew; empty with a failure, or for a trace that is not whole or too long.

        Reads all events once.
        """
        if not self.explains_growth:
            return ""
        if self._why is None or self._why[0] != len(self.trace):
            self._why = len(self.trace), growth_explanation(growths(self.trace, self.pool))
        return self._why[1]

    @property
    def explains_growth(self) -> bool:
        """Whether the header can say why the pool grew."""
        self._read_new()
        return not self._failed and not self.is_at_work and len(self.trace) <= _MOST_EXPLAINED

    def _failure(self, model: Model) -> Headline:
        step = self._nearest(model.step)
        if step not in self._found:
            self._found[step] = diagnose(self.trace, step - 1, model)
        found = self._found[step]
        number = self._failed.index(step) + 1
        return Headline(failure_headline(found), step, found, number, len(self._failed))

    def _nearest(self, step: int) -> int:
        """For the headline: the last failure at or before a step, else the first with a heap, else the first."""
        before = bisect_right(self._failed, step)
        if before:
            return self._failed[before - 1]
        return next((each for each in self._failed if each - 1 not in self._bare), self._failed[0])

    def _read_new(self) -> None:
        """For the headline: read the failures among the events that came since the last call."""
        first, stop = self.trace.first, len(self.trace)
        if stop == self._read:
            return
        start = max(first, self._read - _SETTLED)
        kept = [step for step in self._failed if first < step <= start]
        self._failed = kept + failed_steps(self.trace, self.pool, start, stop)
        self._read = stop


# ------------------------------------------------------------------------------
# How complete a trace is: the notice.

_INCOMPLETE: Final = {
    Status.TRUNCATED: "its events are right, but some are missing",
    Status.DEGRADED: "some events are missing or were guessed",
}


def notice(origin: Origin, missing: str = "") -> tuple[str, str]:
    """The notice of the header: what a trace does not have, and why; both empty for a complete history.

    Args:
        origin: of the trace.
        missing: what the file does not say of the heap's chunks, by `missing_of_chunks`.
    """
    sentences, reasons = [], []
    if holds_only_states(origin.details):
        states = "one state of each of its heaps" if len(origin.pools) > 1 else "one state of the heap"
        sentences.append(f"This file holds {states} and no history.")
        reasons += [missing] if missing else []
        reasons.append("the events only build the state, from low to high addresses")
    if origin.status in _INCOMPLETE:
        missing = "some numbers are missing or were guessed" if sentences else _INCOMPLETE[origin.status]
        subject = "It" if sentences else "This trace"
        sentences.append(f"{subject} is {origin.status}: {missing}.")
        reasons += origin.reasons
    return " ".join(sentences), "; ".join(reasons)


# ------------------------------------------------------------------------------
# Header

_LONGEST: Final = 20_000  # characters of a paragraph: labels in it are already cut
_LONGEST_FILE: Final = 40
_MARK: Final = "what this file lacks"
_GROWTH_LINK: Final = (
    '<a role=\'link\' tabindex=\'0\' data-bfcviz=\'{"do":"holders_as","as":"what grew"}\'>show what grew</a>'
)
_WHY_LINK: Final = (
    "<a role='link' tabindex='0' title='why the pool grew' data-bfcviz='{\"do\":\"details\"}'>why</a>"
)


class Header:
    """The header of a dashboard, answers first: why a request failed, or the peak; then the totals; then the step.

    Attributes:
        widget: the whole widget.
        headline, notice, growth, numbers, device, step_line: its parts, as HTML.
    """

    def __init__(self) -> None:
        names = ("headline", "notice", "growth", "numbers", "device", "step-line")
        parts = {name: widgets.HTML() for name in names}
        for name, part in parts.items():
            part.add_class(f"bfcviz-{name}")
        self.headline, self.notice, self.growth, self.numbers, self.device, self.step_line = parts.values()
        for hidden in (self.notice, self.growth, self.device):
            hidden.layout.display = "none"
        style = widgets.HTML(STYLE, layout={"display": "none"})
        first = widgets.HBox([self.headline, self.notice])
        first.add_class("bfcviz-first-line")
        below = [self.growth, self.numbers, self.device, self.step_line]
        ends = f"0 {MARGINS.right}px 0 0"  # with the figure below it
        self.widget = widgets.VBox([style, first, *below], layout={"grid_gap": "2px", "padding": ends})
        self.widget.add_class("bfcviz-header")
        self._finder: HeadlineFinder | None = None
        self._missing: tuple[Trace, int, str] | None = None
        self._shown: tuple[Model, EventSearch | None, Numbers] | None = None
        self._is_open = False
        self._error = ""

    def show(self, model: Model, look: Look, search: EventSearch | None, *, has_ended: bool = False) -> None:
        """Show the model's step in the header; `has_ended`: no more events come, whatever the trace says."""
        self._show_notice(*notice(model.trace.origin, self._missing_of(model)))
        headline = self._headline_of(model, has_ended=has_ended)
        explains = self._finder is not None and self._finder.explains_growth
        self.headline.value = _header_headline_html(headline, model.step, _WHY_LINK if explains else "")
        failed = headline.failed if headline.step == model.step else None
        asked = look.wanted if failed is None or not failed.requested else failed.requested
        numbers = header_numbers(model, failed)
        compared = "" if asked is None else bars(numbers, asked, failed=failed is not None)
        self._shown = (model, search, numbers)
        self.numbers.value = f'<div class="all"><div class="tiles">{tiles(numbers)}</div>{compared}</div>'
        self._show_step_line()

    def show_growth(self, found: WhatGrew | None, *, is_shown: bool) -> None:
        """Show in the header what grew most between two moments; None: none are compared.

        Args:
            found: what grew.
            is_shown: whether the views show it; else a link does it.
        """
        self.growth.layout.display = "none" if found is None else None
        link = "" if is_shown else _GROWTH_LINK
        text = "" if found is None else f"{harmless(found.headline, _LONGEST)}{link}"
        self.growth.value = f'<div class="text" role="status">{text}</div>' if text else ""

    def show_device(self, account: DeviceAccount | None) -> None:
        """Show in the header who holds the memory of the heap's device now; None: nothing is known."""
        self.device.layout.display = "none" if account is None else None
        self.device.value = "" if account is None else _header_account_html(account)

    def show_error(self, sentence: str) -> None:
        """Show in the header an action that failed, and why, until `hide_error`."""
        self._error = harmless(sentence, _LONGEST)
        self._show_step_line()

    def hide_error(self) -> None:
        """Remove the error from the header, if one is shown."""
        if self._error:
            self._error = ""
            self._show_step_line()

    def toggle_details(self) -> None:
        """Open or close the header's long text on the step."""
        self._is_open = not self._is_open
        self._show_step_line()

    def _headline_of(self, model: Model, *, has_ended: bool) -> Headline:
        finder = self._finder
        if finder is None or finder.trace is not model.trace or finder.pool != model.pool:
            self._finder = finder = HeadlineFinder(model.trace, model.pool)
        finder.has_ended = has_ended
        return finder.find(model)

    def _missing_of(self, model: Model) -> str:
        """What the file does not say of the heap's chunks; found once for a heap."""
        trace, pool = model.trace, model.pool
        if self._missing is None or self._missing[:2] != (trace, pool):
            self._missing = trace, pool, missing_of_chunks(trace, pool)
        return self._missing[2]

    def _show_notice(self, sentence: str, reasons: str) -> None:
        self.notice.layout.display = None if sentence else "none"
        line, why = harmless(sentence, _LONGEST), harmless(reasons, _LONGEST)
        # The page opens it by itself: it changes only with the trace.
        summary = f'<summary title="{line}">{_MARK}</summary>'
        self.notice.value = f'<details role="note">{summary}<div><p>{line}</p><p>{why}</p></div></details>'

    def _show_step_line(self) -> None:
        error = f'<div class="wrong" role="alert">{self._error}</div>' if self._error else ""
        why = self._finder.why() if self._is_open and self._finder else ""
        self.step_line.value = error + (
            _step_line_html(*self._shown, self._is_open, why) if self._shown else ""
        )


def _header_headline_html(found: Headline, step: int, more: str) -> str:
    kind = "text grows" if found.grows else "text" if found.failed is None else "text failed"
    link = ""
    if found.step is not None and found.step != step:
        message = f'{{"do":"step","step":{found.step}}}'
        link = f"<a role='link' tabindex='0' data-bfcviz='{message}'>at step {found.step:,}</a>"
    if found.count > 1:
        link += f'<a style="all:unset;font-size:13px"> ({found.number:,} of {found.count:,} failures)</a>'
    return f'<div class="{kind}" role="status">{harmless(found.text, _LONGEST)}{link}{more}</div>'


def _header_account_html(account: DeviceAccount) -> str:
    title = harmless(account.sentence, _LONGEST)
    words = harmless(f"{account.device}: {account.short}", _LONGEST)
    return f'<div class="bfcviz-account" title="{title}"><span>{words}</span>{account_bar(account)}</div>'


def _step_line_html(
    model: Model,
    search: EventSearch | None,
    numbers: Numbers,
    is_open: bool,  # noqa: FBT001
    why: str,
) -> str:
    trace = model.trace
    line = harmless(step_line(trace, model.step, model.pool), _LONGEST)
    long = []
    if is_open:  # bins, addresses and formulas
        found = [] if search is None else [search_words(search)]
        long = [why, explain_step(model), *found, totals_line(numbers)]
    paragraphs = "".join(f"<p>{harmless(text, _LONGEST)}</p>" for text in long if text)
    return (
        f'<details{" open" * is_open}><summary data-bfcviz=\'{{"do":"details"}}\'>'
        f'<b data-bfcviz-step="{model.step}" data-bfcviz-last="{len(trace)}">'
        f"step {model.step:,} of {len(trace):,}</b>: {line} "
        f'<span class="file">· {harmless(trace.place, _LONGEST_FILE)}</span>'
        f'<span class="more">{"less" if is_open else "details"}</span></summary>{paragraphs}</details>'
    )
