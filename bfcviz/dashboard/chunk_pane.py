"""The pane of the selected chunk: who allocated it, its bytes, its whole stack, when, where, and its neighbours."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Final

import ipywidgets as widgets
import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.chunk_life import (
    Life,
    beginning_words,
    chunk_unchanged_at,
    end_words,
    life_of,
    merge_words,
    next_user,
    next_words,
    source_words,
    span_words,
)
from bfcviz.dashboard.table import (
    NOTHING,
    SIDE_STYLE,
    Column,
    Order,
    Row,
    RowsInView,
    TableConditions,
    TableFilters,
    TableHtml,
    button,
    bytes_cell,
    label_cell,
    list_box,
    row,
    show_all,
    status_html,
    thread_cell,
)
from bfcviz.errors import BfcvizError
from bfcviz.events.label_table import NO_LABEL, STACK_DETAILS
from bfcviz.events.origin import holds_only_states, requested_bytes_known, thread_text, unknown_of_chunks
from bfcviz.events.schema import Kind, bin_of
from bfcviz.events.trace import Trace
from bfcviz.figures.region_map import touched
from bfcviz.figures.text import harmless
from bfcviz.figures.view_options import PLAIN, Look, Selected
from bfcviz.model import CHUNK, Model
from bfcviz.model.filters import ChunkFilter, ChunkOrder, LabelSearch, order_chunks
from bfcviz.model.find_steps import last_event
from bfcviz.model.grouping import HolderChoice, grouping_of, members
from bfcviz.stack_frames import place_in_code, python_and_compiled, telling_lines
from bfcviz.units import exact_bytes, format_bytes
from bfcviz.unwatched import UnwatchedLock

CHUNK_COLUMNS: Final = (
    Column("label", 0, "left", "the operation that allocated it"),
    Column("size", 9, "right", "allocated size, including waste"),
    Column("requested", 11, "right", "the size that the caller requested"),
    Column("waste", 9, "right", "size - requested"),
    Column("state", 9, "left", "in use or free"),
    Column("address", 15, "right", "its first byte"),
    Column("born", 9, "right", "the step at which it was allocated"),
    Column("age", 9, "right", "steps since it was allocated"),
    Column("bin", 4, "right", "its size class; bins hold only free chunks", wide=True),
    Column("region", 7, "right", "number of its region", wide=True),
    Column("thread", 7, "right", "number of the thread that allocated it", wide=True),
    Column("stream", 7, "right", "number of the stream", wide=True),
)


_IN_USE_ONLY: Final = ("requested", "waste", "label", "born", "age", "thread", "stream")
"""Columns that are empty for free chunks, and where the trace does not have their numbers."""

# ------------------------------------------------------------------------------
# The list of chunks at one step: sorted and filtered; it always says what it leaves out.

_LARGEST_FIRST: Final = frozenset({"size", "requested", "waste", "age"})
"""Columns that are sorted in descending order first."""

_TABLE: Final = TableHtml("chunks", CHUNK_COLUMNS, "select this chunk")


class ChunkList:
    """The chunks of one heap at one step; empty before `show`.

    Args:
        trace: the trace of the heap.
        pool: number of the heap.

    Attributes:
        widget: the whole widget.
        listed: the listed chunks, in order.
    """

    def __init__(self, trace: Trace, pool: int = 0) -> None:
        self._lock = UnwatchedLock()  # a kernel with subshells runs callbacks in threads
        self._chunks: NDArray[np.void] = np.zeros(0, CHUNK)
        self._trace, self._labels, self._step = trace, trace.labels, 0
        self._pool_text = _chunk_list_pool_text(trace, pool)
        self._unknown = unknown_of_chunks(trace.origin.details, pool)
        self._look, self._selected = PLAIN, PLAIN.selected
        self._touched: frozenset[int] = frozenset()  # addresses of the chunks of the event before the step
        self._order = Order("size", descending=True)
        self._view, self._view_filter = RowsInView(), TableConditions()
        self._filter, self._search = ChunkFilter(), LabelSearch(self._labels, "")
        self._clearing = False  # `clear` changes several filters, and lists once
        self.listed: ChunkOrder = order_chunks(self._chunks, self._labels, self._filter)
        self._build()
        self._apply_filters()

    # -- step, order and scrolling -----------------------------------------------------------------------------

    def show(self, model: Model, look: Look = PLAIN) -> None:
        """List the heap's chunks at the model's step and mark the selected one; scroll to a new selection."""
        with self._lock:
            self._chunks, self._step = model.chunks(), model.step
            self._pool_text = _chunk_list_pool_text(model.trace, model.pool)
            self._unknown = unknown_of_chunks(model.trace.origin.details, model.pool)
            self._trace = model.trace
            if self._labels is not model.trace.labels:
                self._labels = model.trace.labels
                self._search = LabelSearch(self._labels, self._filter.text)
            new = look.selected != self._selected
            self._look, self._selected = look, look.selected
            spans = touched(last_event(model), self._chunks, model.regions())
            self._touched = frozenset(spans["address"].tolist())
            if self._view_filter.update(model.trace, model.pool, look):
                self._filter = replace(self._filter, also=self._view_filter.conditions)
                new = True
            self._arrange(follow=new)

    def sort(self, by: str) -> None:
        """Sort the list of chunks by a column and show the first rows; if it is sorted by this already, reverse it.

        Raises:
            BfcvizError: there is no such column.
        """
        names = [column.name for column in CHUNK_COLUMNS]
        if by not in names:
            raise BfcvizError(f"chunks have no column {by!r} to sort by; choose one of {', '.join(names)}")
        with self._lock:
            now = self._order
            self._order = Order(by, not now.descending if now.by == by else by in _LARGEST_FIRST)
            self._view.move_to(0)
            self._arrange(follow=False)

    def scroll(self, top: int) -> None:
        """Take in that the list of chunks was scrolled to row `top`."""
        with self._lock:
            if self._view.scrolled_to(top):
                self._draw()

    # -- filters -----------------------------------------------------------------------------------------------

    def _apply_filters(self) -> None:
        if self._clearing:
            return
        with self._lock:
            also = self._view_filter.conditions
            self._filter = ChunkFilter(state=self.state.value, also=also, **self.filters.values())
            if self._filter.text != self._search.text:
                self._search = LabelSearch(self._labels, self._filter.text)
            self._arrange(follow=True)

    def clear(self) -> None:
        """Clear all filters of the list of chunks."""
        self._clearing = True
        self.state.value = "all"
        self.filters.clear()
        self._clearing = False
        self._apply_filters()

    def _arrange(self, *, follow: bool) -> None:
        order = self._order
        self.listed = order_chunks(
            self._chunks,
            self._labels,
            self._filter,
            order.by,
            descending=order.descending,
            search=self._search,
        )
        self._view.set_count(len(self.listed), near=self._selected_place() if follow else None)
        self._draw()

    # -- rows on the page --------------------------------------------------------------------------------------

    def _selected_place(self) -> int | None:
        """The row of the selected chunk; None if it is not listed."""
        if self._selected is None:
            return None
        place = self.listed.place_of(self._selected.address)
        if place is None or not self._is_selected(self.listed.page(place, place + 1)[0]):
            return None
        return place

    def _is_selected(self, chunk: np.void) -> bool:
        return self._selected == Selected.of(chunk)

    def _draw(self) -> None:
        view = self._view
        rows = [self._row(chunk) for chunk in self.listed.page(view.made.start, view.made.stop)]
        self.page.value = _TABLE.draw(rows, view, self._order)
        self.count.value = status_html(self._count(), self._view_filter.links)

    def _row(self, chunk: np.void) -> Row:
        """The row of a chunk, a record of dtype CHUNK."""
        fields = dict(zip(chunk.dtype.names or (), chunk.tolist(), strict=True))
        address, size, in_use = fields["address"], fields["size"], fields["in_use"]
        does = {"do": "select", "address": str(address), "born": fields["born"] if in_use else None}
        used = self._used_cells(fields) if in_use else {}
        cells = dict.fromkeys(_IN_USE_ONLY, NOTHING) | used
        cells |= {
            "address": f"{address:#x}",
            "size": bytes_cell(size),
            "state": "<u class='in-use'></u>in use" if in_use else "<u></u>free",
            "bin": f"{bin_of(size)}",
            "region": f"{fields['region']}",
        }
        row = [cells[column.name] for column in CHUNK_COLUMNS]
        return Row(row, does, address in self._touched, selected=self._is_selected(chunk))

    def _used_cells(self, fields: dict[str, int]) -> dict[str, str]:
        born = fields["born"] + 1  # the step after its ALLOCATE
        hint = f"go to step {born:,}, at which it was allocated"
        cells = {
            "requested": bytes_cell(fields["requested"]),
            "waste": bytes_cell(max(fields["size"] - fields["requested"], 0)),
            "label": label_cell(self._trace.labels, fields["label"], self._look.search or ""),
            "born": button({"do": "step", "step": born}, f"{born:,}", hint),
            "age": f"{self._step - born:,}",
            "thread": thread_cell(self._trace, fields["thread"]),
            "stream": f"{fields['stream']}",
        }
        return {name: cell for name, cell in cells.items() if name not in self._unknown}

    def _count(self) -> str:
        total, reasons = len(self._chunks), self._filter.reasons()
        text = f"All {total:,} chunks{self._pool_text}"
        if reasons:
            text = f"{len(self.listed):,} of {total:,} chunks{self._pool_text}: {', '.join(reasons)}"
        if self._selected is not None and self._selected_place() is None:
            text += "; the selected chunk is not among them"
        return text

    def _build(self) -> None:
        hints = ["free chunks and chunks in use", "allocated chunks", "chunks that can be allocated"]
        self.state = widgets.ToggleButtons(
            options=["all", "in use", "free"], tooltips=hints, style={"button_width": "auto"}
        )
        self.state.observe(lambda _: self._apply_filters(), "value")
        self.filters = TableFilters("chunks", self._apply_filters)
        self.count, self.page = widgets.HTML(), widgets.HTML(layout={"width": "100%"})
        everything = show_all("chunks of every state, label, size and thread", self.clear)
        controls = row([self.state, *self.filters.inputs, everything])
        self.widget = list_box("bfcviz-chunks", [controls], self.count, self.page)


def _chunk_list_pool_text(trace: Trace, pool: int) -> str:
    """In the list of chunks: the name of the heap, if the trace has several; else empty."""
    pools = trace.origin.pools
    return f" of pool '{pools[pool].name}'" if len(pools) > 1 else ""


# ------------------------------------------------------------------------------
# The facts of the selected chunk, and its neighbours

_NEIGHBOURS: Final = ("before", "after")


@dataclass(frozen=True)
class ChunkFacts:
    """The selected chunk, as the pane shows it, seen from a step."""

    life: Life  # when it began and ended
    allocated: np.void | None  # its ALLOCATE; None for a free chunk
    freed: np.void | None  # its FREE; None for a free chunk, and where none was found
    label: int  # number of its label; 0: none, or it is free
    requested: int | None  # requested bytes; None: it is free, or the trace does not have them
    # the chunks before and after it in its region, of CHUNK; empty where the allocation does not exist at this step
    neighbours: dict[str, np.void]
    history: bool  # whether the trace has a history
    unknown: frozenset[str]  # see `unknown_of_chunks`


def _chunk_neighbours(chunks: NDArray[np.void], address: int) -> dict[str, np.void]:
    place = int(np.searchsorted(chunks["address"], np.uint64(address)))
    found = {}
    for name, at in zip(_NEIGHBOURS, (place - 1, place + 1), strict=True):
        if 0 <= at < len(chunks) and chunks["region"][at] == chunks["region"][place]:
            found[name] = chunks[at]
    return found


# ------------------------------------------------------------------------------
# The pane of the selected chunk: who allocated it, its bytes, when, where, and its neighbours.

_NONE: Final = "Click a chunk to see what it is."
_GONE: Final = "The selected chunk does not exist at this step."
_LONGEST_NAME: Final = 300
_LONGEST_NEIGHBOUR: Final = 36
_LONGEST: Final = 600
_MOST_FRAMES: Final = 200
_MOST_LINES: Final = 30  # of a stack in a tooltip
_MOST_SIZES: Final = 4
_FIRST: Final = 5  # facts that are always shown: the pane has room for them

Fact = tuple[str, str]  # a name, and HTML


class ChunkPane:
    """The selected chunk of one heap, or else the chosen holder; empty before `show`.

    Attributes:
        widget: the whole widget.
        text: what it shows, as HTML.
    """

    def __init__(self) -> None:
        self._known: tuple[Trace, int, Selected, Life] | None = None  # the search for its end is made once
        self.text = widgets.HTML()
        self.widget = widgets.VBox([widgets.HTML(SIDE_STYLE, layout={"display": "none"}), self.text])
        self.widget.add_class("bfcviz-chunk")

    def show(self, model: Model, look: Look) -> None:
        """Show in the pane the chunk that `look` selects, seen from the model's step; else the holder that filters."""
        if look.selected is None:
            nothing = f"<div class='none'>{_NONE}</div>"
            self.text.value = nothing if look.holder is None else _chunk_pane_of_holder(model, look.holder)
            return
        facts = self._find(model, look.selected)
        if facts is None:
            self.text.value = f"<div class='none'>{_GONE}</div>"
            return
        size = ("size", _chunk_size_html(facts))
        shown = [size, *_chunk_share_fact(facts, model), *_selected_chunk_facts(facts, model.trace)]
        stack = model.trace.labels[facts.label].details.get("stack", "") if facts.label else ""
        self.text.value = _chunk_pane_html(_selected_chunk_name(facts, model.trace), shown, stack)

    def _find(self, model: Model, selected: Selected) -> ChunkFacts | None:
        """The facts seen from the model's step; None where there is no such allocation or free chunk."""
        life = self._life(model, selected)
        if life is None:
            return None
        details, began = model.trace.origin.details, life.began
        allocated = began if began is not None and began["kind"] == Kind.ALLOCATE else None
        unknown = unknown_of_chunks(details, model.pool)
        is_there = life.in_use or selected.born is None
        return ChunkFacts(
            life,
            allocated,
            freed=None if allocated is None else life.ended,
            label=0 if allocated is None else int(allocated["label"]),
            requested=None if allocated is None or "requested" in unknown else int(allocated["requested"]),
            neighbours=_chunk_neighbours(model.chunks(), selected.address) if is_there else {},
            history=not holds_only_states(details),
            unknown=unknown,
        )

    def _life(self, model: Model, selected: Selected) -> Life | None:
        """The life of a chunk; while it lasts, a step changes only from where it is seen."""
        if self._known is not None:
            trace, pool, known, life = self._known
            same = trace is model.trace and (pool, known) == (model.pool, selected)
            if same and chunk_unchanged_at(life, model.step):
                return replace(life, step=model.step)
        found = life_of(model, selected.address, selected.born)
        self._known = None if found is None else (model.trace, model.pool, selected, found)
        return found


def _selected_chunk_name(facts: ChunkFacts, trace: Trace) -> str:
    if facts.allocated is None:
        return "in use" if facts.life.in_use else "free chunk"
    return harmless(trace.labels.name(facts.label), _LONGEST_NAME) or NO_LABEL


def _selected_chunk_facts(facts: ChunkFacts, trace: Trace) -> Iterator[Fact]:
    """The facts on the selected chunk, the most important first."""
    life = facts.life
    if facts.history:
        yield from _chunk_time_facts(facts)
    details = trace.labels[facts.label].details if facts.label else {}
    if stack := details.get("stack"):
        frames = "&#10;".join(harmless(line, _LONGEST) for line in telling_lines(stack, _MOST_LINES)[0])
        yield "code", f"<span title='{frames}'>{harmless(place_in_code(stack), _LONGEST)}</span>"
    for name, chunk in facts.neighbours.items():
        yield name, _neighbour_chunk_link(chunk, trace)
    yield "address", f"<code>{life.address:#x}</code>, region {life.region}, bin {bin_of(life.size)}"
    if (event := facts.allocated) is not None:
        thread = harmless(thread_text(trace.origin.details, int(event["thread"])), _LONGEST)
        thread = "unknown" if "thread" in facts.unknown else thread
        stream = "unknown" if "stream" in facts.unknown else event["stream"]
        yield "thread", f"{thread}, stream {stream}"
    for key, value in details.items():
        if key not in STACK_DETAILS:
            yield harmless(key, 20).replace("_", " "), harmless(value, _LONGEST)
    if facts.history:
        yield from _chunk_pane_history(facts, trace)


def _chunk_pane_html(name: str, facts: Sequence[Fact], stack: str) -> str:
    """The pane: the name, the first facts, the whole stack, and the other facts behind a fold."""
    lines = [f"<dt>{each}</dt><dd>{value}</dd>" for each, value in facts]
    more = ""
    if rest := "".join(lines[_FIRST:]):
        more = f"<details><summary>more</summary><dl>{rest}</dl></details>"
    return (
        f"<div role='status' aria-live='polite'><div class='name'>{name}</div>"
        f"<dl>{''.join(lines[:_FIRST])}</dl>{_chunk_stack_html(stack)}{more}</div>"
    )


def _chunk_stack_html(stack: str) -> str:
    """All frames of the selected chunk's stack: Python's first, compiled ones behind a fold; a button copies them."""
    if not stack:
        return ""
    python, compiled = python_and_compiled(stack)
    copy = "<button type='button' data-bfcviz-copy title='copy the whole stack'>copy</button>"
    shown = _chunk_stack_frames(python) if python else ""
    if compiled:
        text = f"{len(compiled):,} compiled frame{'s' * (len(compiled) != 1)}"
        is_open = "" if python else " open"
        shown += f"<details{is_open}><summary>{text}</summary>{_chunk_stack_frames(compiled)}</details>"
    return f"<div class='stack'><div class='head'><b>stack</b> {copy}</div>{shown}</div>"


def _chunk_stack_frames(lines: Sequence[str]) -> str:
    shown = [harmless(line, _LONGEST) for line in lines[:_MOST_FRAMES]]
    left = len(lines) - len(shown)
    return f"<pre>{chr(10).join(shown)}{f'{chr(10)}… {left:,} more' if left else ''}</pre>"


def _chunk_share_fact(facts: ChunkFacts, model: Model) -> Iterator[Fact]:
    """The selected chunk's part of all bytes in use, and what else has its label, with a link that finds it."""
    if facts.allocated is None or not facts.life.in_use:
        return
    used = model.in_use()
    total = int(used["size"].sum())
    share = f"{facts.life.size / total:.1%} of all bytes in use" if total else ""
    labels = model.trace.labels
    name = labels.name(facts.label) if facts.label else ""
    alike = [number for number in np.unique(used["label"]).tolist() if number and labels.name(number) == name]
    mine = used[np.isin(used["label"], alike)]
    if len(mine) > 1 and name:
        amount = f"{len(mine):,} chunks, {format_bytes(int(mine['size'].sum()))}"
        link = _chunk_pane_link({"do": "search", "text": name}, amount, "find all of them")
        share += f"; of this name {link}"
    yield "share", share


def _chunk_pane_of_holder(model: Model, choice: HolderChoice) -> str:
    """The holder that filters every view: what it holds at the step, in chunks of which sizes, since when."""
    trace, used = model.trace, model.in_use()
    how = grouping_of(trace, model.pool, choice.by)
    mine = used[members(how, choice)(used)]
    name = harmless(how.text(choice.path) or "all memory in use", _LONGEST_NAME)
    if not len(mine):
        return _chunk_pane_html(name, [("size", "nothing in use at this step")], "")
    size, total = int(mine["size"].sum()), int(used["size"].sum())
    share = f"{size / total:.1%} of all bytes in use"
    facts = [
        ("size", f"<b title='{exact_bytes(size)}'>{format_bytes(size)}</b>, {share}"),
        ("chunks", _chunk_pane_sizes(mine)),
    ]
    if requested_bytes_known(trace.origin.details, model.pool):
        waste = size - int(mine["requested"].sum())
        facts.append(("waste", f"{format_bytes(waste)} ({waste / size:.1%})"))
    if not holds_only_states(trace.origin.details):
        ends = sorted({int(mine["born"].min()), int(mine["born"].max())})
        links = [_chunk_pane_step_link(trace.read(born, born + 1)[0]) for born in ends]
        facts.append(("allocated", " to ".join(links)))
    stacks = {trace.labels[number].details.get("stack", "") for number in np.unique(mine["label"]).tolist()}
    if len(stacks) > 1:
        facts.append(("stacks", f"{len(stacks):,} different ones: click a chunk to see its own"))
    return _chunk_pane_html(name, facts, stacks.pop() if len(stacks) == 1 else "")


def _chunk_pane_sizes(chunks: NDArray[np.void]) -> str:
    """How many chunks of each size, those with the most bytes first: `291: 97 x 100.0 MiB, 194 x 16.0 MiB`."""
    sizes, counts = np.unique(chunks["size"], return_counts=True)
    order = np.argsort(-(sizes * counts.astype(np.uint64)).astype(np.float64), kind="stable")
    named = [f"{counts[at]:,} x {format_bytes(int(sizes[at]))}" for at in order[:_MOST_SIZES].tolist()]
    rest = len(chunks) - int(counts[order[:_MOST_SIZES]].sum())
    return f"{len(chunks):,}: {', '.join([*named, *([f'{rest:,} others'] if rest else [])])}"


def _chunk_size_html(facts: ChunkFacts) -> str:
    size, requested = facts.life.size, facts.requested
    text = f"<b title='{exact_bytes(size)}'>{format_bytes(size)}</b>"
    if facts.allocated is None:
        return f"{text} {'in use' if facts.life.in_use else 'free'}"
    text += " in use" if facts.life.in_use else " (not in use at this step)"
    if requested is None:
        return text
    waste = max(size - requested, 0)
    text += f", <span title='{exact_bytes(requested)}'>{format_bytes(requested)}</span> requested"
    return f"{text}, <em>{format_bytes(waste)} wasted ({waste / size:.0%})</em>" if waste else text


def _chunk_time_facts(facts: ChunkFacts) -> Iterator[Fact]:
    """When the selected chunk began and ended; each with a link to the step."""
    life, began = facts.life, facts.life.began
    if facts.allocated is None:
        if began is not None:
            words = harmless(beginning_words(life, began), _LONGEST)
            yield "free since", f"{_chunk_pane_step_link(began)}: {words}"
        yield "then", harmless(next_words(life), _LONGEST)
        return
    age = f", {span_words(life, facts.allocated, None)} ago" if life.in_use else ""
    yield "allocated", _chunk_pane_step_link(facts.allocated) + age
    if facts.freed is None:
        yield "freed", harmless(end_words(life, "freed"), _LONGEST)
    else:
        span = span_words(life, facts.allocated, facts.freed)
        yield "freed", f"{_chunk_pane_step_link(facts.freed)}, after {span}"


def _chunk_pane_history(facts: ChunkFacts, trace: Trace) -> Iterator[Fact]:
    """Where the selected chunk of an allocation came from, what became of it, and who uses its address afterwards."""
    if facts.allocated is None:
        return
    yield "from", harmless(source_words(facts.life), _LONGEST)
    if facts.freed is not None:
        yield "then", harmless(merge_words(facts.life, facts.freed), _LONGEST)
    if (event := next_user(facts.life)) is not None:
        name = harmless(trace.labels.name(int(event["label"])) or NO_LABEL, _LONGEST_NEIGHBOUR)
        yield "next here", f"{name}, {format_bytes(int(event['size']))}, at {_chunk_pane_step_link(event)}"


def _chunk_pane_step_link(event: np.void) -> str:
    """A link of the pane to the step of an event."""
    step = int(event["seq"]) + 1
    return _chunk_pane_link({"do": "step", "step": step}, f"step {step:,}", "go to this step")


def _neighbour_chunk_link(chunk: np.void, trace: Trace) -> str:
    in_use, label = bool(chunk["in_use"]), int(chunk["label"])
    name = (trace.labels.name(label) or NO_LABEL) if in_use else "free"
    born = int(chunk["born"]) if in_use else None
    does = {"do": "select", "address": str(chunk["address"]), "born": born}
    size = format_bytes(int(chunk["size"]))
    return f"{size}, {_chunk_pane_link(does, harmless(name, _LONGEST_NEIGHBOUR), f'select {harmless(name)}')}"


def _chunk_pane_link(message: dict[str, Any], text: str, hint: str) -> str:
    """A link of the pane that sends a message."""
    does = escape(json.dumps(message, separators=(",", ":")))
    return f"<a role='button' tabindex='0' data-bfcviz='{does}' title='{hint}'>{text}</a>"
