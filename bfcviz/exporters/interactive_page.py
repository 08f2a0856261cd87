"""The page without a kernel: the report of a file whose pictures the reader moves through, in one HTML file.

It carries the events of one heap (`packed_heap`), what its labels, holders and colours are, and our figures without
their data; the scripts beside this file replay the events and fill the figures. It asks nothing of a network. The data
and plotly's script are compressed: plain, they would take more than the 3 MB that 100,000 events may have.

The events are columns of small numbers, which `page_heap.js` reads.

::

    {"count": 3, "start": {...}, "columns": {"kind": "eJxj...", "time": "eJwz...", "SPLIT.kept": "eJw7...", ...}}

A column is a base64 text of a zlib stream of numbers: each number is zigzag encoded (0, -1, 1, -2 are 0, 1, 2, 3), then
written as a varint (seven bits a byte, low ones first, the eighth bit says that more follow). Each kind of event has
columns of its own. What the state of the heap implies is left out: an ALLOCATE takes the address and the size of its
free chunk, a FREE has the fields of its chunk, a MERGE those of the absorbed one, and a SPLIT says how many bytes its
chunk keeps. `PoolState` has checked that the events say the same.
"""

import json
import os
import re
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.analysis.heap_settings import Family
from bfcviz.analysis.ranks import RankSet
from bfcviz.analysis.what_grew import first_moment
from bfcviz.analysis.would_fit import fit_of
from bfcviz.errors import BfcvizError
from bfcviz.events.label_table import STACK_DETAILS, Labels
from bfcviz.events.origin import regions_known, requested_bytes_known, unknown_of_chunks
from bfcviz.events.schema import MIN_CHUNK, NUM_BINS, Events, Kind
from bfcviz.events.storage.files import replacing
from bfcviz.events.trace import Trace
from bfcviz.exporters.report import HeapReport, report_of
from bfcviz.exporters.report_page import LivePart, as_html
from bfcviz.figures.bin_histogram import bin_panels, histogram_bins
from bfcviz.figures.colouring import COLOURINGS, OTHER, Colouring, colouring
from bfcviz.figures.fragmentation_timeline import fragmentation_panel
from bfcviz.figures.free_chunk_ladder import ladder_of, ladder_panel
from bfcviz.figures.map_rows import rows_of
from bfcviz.figures.panel import BELOW, Margins, Panel, below_each_other, panels_page
from bfcviz.figures.plotly_script import plotly_script
from bfcviz.figures.region_map import region_panel, row_order
from bfcviz.figures.stats_timeline import stats_panel
from bfcviz.figures.theme import DARK, LIGHT, Theme, holder_variables, variables
from bfcviz.figures.view import HeapData
from bfcviz.figures.view_options import Look
from bfcviz.model import Model
from bfcviz.model.grouping import UNNAMED, grouping
from bfcviz.stack_frames import place_in_code, places_of

Numbers = NDArray[np.int64]

_EXACT: Final = 1 << 53  # whole numbers below are exact in a page, which computes in float64

_FIELDS: Final[dict[Kind, tuple[str, ...]]] = {
    Kind.EXTEND: ("chunk", "address", "size", "region", "flags"),
    Kind.SPLIT: ("chunk", "other", "kept", "flags"),
    Kind.ALLOCATE: ("chunk", "waste", "label", "thread", "stream", "flags"),
    Kind.FREE: ("chunk", "flags"),
    Kind.MERGE: ("chunk", "other"),
    Kind.RELEASE: ("chunk",),
    Kind.OOM: ("address", "size", "requested", "label", "thread", "stream"),
    Kind.MARK: ("size", "label", "thread"),
}
"""The columns of each kind: fields of the event; `kept` and `waste` are differences of bytes."""

_BY_CHUNK_BEFORE: Final = {
    (kind, "chunk") for kind in (Kind.EXTEND, Kind.SPLIT, Kind.ALLOCATE, Kind.MERGE, Kind.RELEASE)
} | {(Kind.MERGE, "other")}
"""Columns whose numbers are differences to `chunk` of the event before: one operation is about one chunk."""

_BY_LAST: Final = {(Kind.EXTEND, "address"), (Kind.SPLIT, "other")}
"""Columns whose numbers are differences to the number before in the same column."""


def packed(values: NDArray[Any]) -> str:
    """A column of an interactive page as text: whole numbers, of int64 or what fits into it."""
    signed = values.astype(np.int64)
    left = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    lengths = np.ones(len(left), np.intp)
    rest = left >> np.uint64(7)
    while rest.any():
        lengths += rest > 0
        rest >>= np.uint64(7)
    ends = np.cumsum(lengths)
    found = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    for nth in range(int(lengths.max(initial=0))):
        mine = lengths > nth
        more = np.where(lengths[mine] > nth + 1, 128, 0)
        bits = (left[mine] >> np.uint64(7 * nth)).astype(np.int64) & 127
        found[(ends - lengths)[mine] + nth] = bits | more
    return compressed(found.tobytes())


def compressed(content: bytes) -> str:
    """Bytes in an interactive page: base64 text of their zlib stream."""
    return b64encode(zlib.compress(content, 9)).decode()


def heap_events(trace: Trace, pool: int, first: int, last: int) -> Events:
    """The events that an interactive page replays: those of one heap in the steps [first, last]."""
    found = [block[block["pool"] == pool] for block in trace.blocks(first, last)]
    return np.concatenate(found) if found else trace.read(first, first)


def packed_heap(model: Model, events: Events, first: int) -> dict[str, Any]:
    """What an interactive page replays: the state of the heap at the step `first`, and its `events` from there.

    Args:
        model: the heap; it stays at its step.
        events: as `heap_events` returns them.
        first: the step before them.

    Raises:
        BfcvizError: an address or a size is too large for a page.
    """
    with model.visiting(first):
        model.stats()  # finds the peaks, which a snapshot has
        snapshot, used = model.table.snapshot(), model.table.requested_bytes_in_use
    rows, regions = snapshot.chunk_rows, snapshot.region_rows
    _check_page_numbers_exact(events, [*regions["address"], *(regions["address"] + regions["size"])])
    handles = np.unique(
        np.concatenate([rows["handle"], events["chunk"], _chunks_created_by_events(events)[1]])
    )
    dense = {name: np.searchsorted(handles, events[name]).astype(np.int64) for name in ("chunk", "other")}
    columns = {
        "handles": packed(np.diff(handles.astype(np.int64), prepend=0)),
        "kind": packed(events["kind"]),
        "seq": packed(np.diff(events["seq"].astype(np.int64), prepend=first - 1) - 1),
        "time": packed(np.diff(events["time"], prepend=0)),
        **dict(_packed_event_columns(events, dense, rows)),
    }
    start = {
        "step": first,
        "chunks": {
            **{name: packed(rows[name]) for name in (*_ROW_FIELDS, "state")},
            "handle": packed(np.searchsorted(handles, rows["handle"])),
        },
        "regions": {
            "slot": packed(snapshot.slots),
            **{name: packed(regions[name]) for name in ("address", "size")},
        },
        "num_allocs": snapshot.num_allocs,
        "ooms": snapshot.ooms,
        "peak_bytes_in_use": snapshot.peak_bytes_in_use,
        "peak_pool_bytes": snapshot.peak_pool_bytes,
        "largest_alloc_size": snapshot.largest_alloc_size,
        "requested_bytes_in_use": used,
    }
    return {
        "count": len(events),
        "handles": len(handles),
        "rows": len(rows),
        "start": start,
        "columns": columns,
    }


_ROW_FIELDS: Final = ("address", "size", "requested", "born", "label", "thread", "stream", "region")


def _check_page_numbers_exact(events: Events, ends: list[Any]) -> None:
    """Refuse addresses and sizes that the script of an interactive page cannot compute exactly."""
    sizes = events[(events["kind"] != Kind.OOM) & (events["kind"] != Kind.MARK)]
    highest = max(
        [int(each) for each in ends] + [int(sizes[name].max(initial=0)) for name in ("address", "size")]
    )
    if highest >= _EXACT:
        raise BfcvizError(
            f"a page without a kernel holds addresses below 2^53, and this file has {highest:#x}; "
            "`bfcviz view FILE` shows it"
        )


def _chunks_created_by_events(
    events: Events,
) -> tuple[NDArray[np.intp], NDArray[np.uint32], NDArray[np.uint64]]:
    """For an interactive page: the places of the events that create a chunk, its handle, and its address."""
    kinds = events["kind"]
    at = np.flatnonzero((kinds == Kind.EXTEND) | (kinds == Kind.SPLIT))
    made = events[at]
    return at, np.where(made["kind"] == Kind.SPLIT, made["other"], made["chunk"]), made["address"]


def _packed_event_columns(
    events: Events, dense: dict[str, Numbers], rows: NDArray[np.void]
) -> Iterator[tuple[str, str]]:
    """The columns of an interactive page for each kind of event that occurs."""
    before = np.concatenate([[0], dense["chunk"][:-1]])
    for kind, names in _FIELDS.items():
        at = np.flatnonzero(events["kind"] == kind)
        if not len(at):
            continue
        for name in names:
            if name == "kept":
                values = _bytes_kept_by_splits(events, at, rows)
            elif name == "waste":
                values = events["size"][at].astype(np.int64) - events["requested"][at].astype(np.int64)
            elif name in dense:
                values = dense[name][at]
            else:
                values = events[name][at].astype(np.int64)
            if (kind, name) in _BY_CHUNK_BEFORE:
                values = values - before[at]
            elif (kind, name) in _BY_LAST:
                values = np.diff(values, prepend=0)
            yield f"{kind.name}.{name}", packed(values)


def _bytes_kept_by_splits(events: Events, splits: NDArray[np.intp], rows: NDArray[np.void]) -> Numbers:
    """The column `kept` of an interactive page: bytes from the address of a SPLIT's chunk to its remainder."""
    at, handles, addresses = _chunks_created_by_events(events)
    at = np.concatenate([np.full(len(rows), -1), at])
    handles = np.concatenate([rows["handle"], handles]).astype(np.int64)
    addresses = np.concatenate([rows["address"], addresses])
    order = np.lexsort((at, handles))
    # One number for handle and place: the last one below that of a SPLIT created its chunk.
    keys = handles * (len(events) + 1) + at + 1
    asked = events["chunk"][splits].astype(np.int64) * (len(events) + 1) + splits
    found = order[np.searchsorted(keys[order], asked, side="right") - 1]
    kept: Numbers = (events["address"][splits] - addresses[found]).astype(np.int64)
    return kept


MOST_EVENTS: Final = 2_000_000
"""Events of a page, unless it is asked for others: a browser needs about 150 bytes for each."""

_BEFORE: Final = 0.75  # of the events of a page that has not all: before the step shown


def interactive_html(report: HeapReport, ranks: RankSet | None = None, most: int = MOST_EVENTS) -> str:
    """A report as one interactive page that replays the heap; of several ranks a table of them, then that of the worst.

    `most`: events of the page; of a longer trace it has those around the step shown, and says so.

    Raises:
        BfcvizError: addresses are too large for a page.
    """
    model = report.model
    if not len(model.trace):
        return as_html(report, ranks)
    scripts = [plotly_script(), f"{page_modules()}\nstart();\n"]
    hashes = " ".join(
        f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    first, last = _page_step_window(report, most)
    data = _page_data(report, first, last)
    live = LivePart(
        body=_page_body(report, first, last),
        style=_STYLE,
        policy=(
            f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
            "base-uri 'none'; form-action 'none'"
        ),
        scripts=(
            f'<script type="text/plain" id="data">{compressed(page_json(data).encode())}</script>'
            f'<script type="text/plain" id="plotly">{_compressed_plotly()}</script>'
            f'<script type="module">{scripts[1]}</script>'
        ),
    )
    return as_html(report, ranks, live)


def save_page(  # noqa: PLR0913  three of them are the steps and the heap
    trace: Trace,
    path: str | os.PathLike[str],
    start: int | None = None,
    stop: int | None = None,
    pool: int | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Write the interactive page of a trace, and return its path; `start`, `stop` and `pool` as for `report_of`.

    Raises:
        FileError: the file cannot be written.
        TraceError: the trace has no such steps or heap.
        BfcvizError: addresses are too large for a page.
    """
    page = interactive_html(report_of(trace, start, stop, pool))
    with replacing(Path(path), overwrite=overwrite) as made:
        made.write_text(page, encoding="utf-8")
    return Path(path)


def _page_step_window(report: HeapReport, most: int) -> tuple[int, int]:
    """The steps of the interactive page: all of the report, or those around the step shown."""
    first, last = report.steps
    if last - first <= most:
        return first, last
    begin = min(max(report.model.step - int(_BEFORE * most), first), last - most)
    return begin, begin + most


# ------------------------------------------------------------------------------
# The scripts.

_MODULES: Final = ("page_heap.js", "page_map.js", "page_view.js")


@cache
def _compressed_plotly() -> str:
    """Plotly's script in the interactive page, a third as long: `page_view.js` adds it; the policy names its hash."""
    return compressed(plotly_script().encode())


@cache
def page_modules(*more: Path) -> str:
    """The scripts of the interactive page, and `more`, as one module: what one imports stands before it."""
    paths = [*(Path(__file__).with_name(name) for name in _MODULES), *more]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    return re.sub(r"^(?:import .* from .*;\n|export )", "", "\n".join(texts), flags=re.MULTILINE)


def page_json(value: object) -> str:
    """What the scripts of the interactive page read, as JSON that cannot end the script element around it."""
    return json.dumps(value, separators=(",", ":"), default=_page_json_value).replace("<", "\\u003c")


def _page_json_value(value: Any) -> Any:
    """A value of NumPy or plotly as it stands in the JSON of the interactive page."""
    if isinstance(value, np.ndarray):
        return [None if isinstance(each, float) and np.isnan(each) else each for each in value.tolist()]
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "to_plotly_json"):
        return value.to_plotly_json()
    raise TypeError(f"{type(value).__name__} is no JSON")


# ------------------------------------------------------------------------------
# The data.


def _page_data(report: HeapReport, first: int, last: int) -> dict[str, Any]:
    """The data of the interactive page, for its scripts."""
    model, pool = report.model, report.pool
    trace = model.trace
    heap, owned = page_heap(model, first, last)
    smallest = fit_of(model, 1).found
    settings = smallest if report.shown.requested == 0 else report.shown
    rounding = smallest.rounded
    return {
        **heap,
        "heap_start_peak": heap["heap"]["start"]["peak_bytes_in_use"],
        "shown_step": model.step,
        "first_moment": max(first_moment(trace, pool), first),
        "shown_name": "failure" if report.has_failure else "peak",
        "rounding": max(int(rounding), 1),
        "apart": {Family.TORCH: "torch", Family.CUPY: "cupy"}.get(settings.settings.family),
        "groupings": list(_page_groupings(trace, pool, owned)),
        "colourings": list(_page_colourings(model, owned)),
        **_page_figures(model, (first, last)),
    }


def page_heap(model: Model, first: int, last: int) -> tuple[dict[str, Any], NDArray[np.void]]:
    """The heap of an interactive page in the steps [first, last], with labels and colours; and its chunks in use.

    Raises:
        BfcvizError: an address or a size is too large for a page.
    """
    trace, pool = model.trace, model.pool
    details = trace.origin.details
    events = heap_events(trace, pool, first, last)
    heap = packed_heap(model, events, first)
    owned = _page_chunks_in_use(model, events, first)
    labels = _label_texts(trace.labels, np.unique(owned["label"]).tolist())
    sent = {
        "heap": heap,
        "heap_rows": heap["rows"],
        "first": first,
        "last": last,
        "limit": trace.origin.pools[pool].limit,
        "free_known": regions_known(details, pool),
        "requested_known": requested_bytes_known(details, pool),
        "unknown": sorted(unknown_of_chunks(details, pool)),
        "labels": compressed(page_json(labels).encode()),
        "themes": {theme.name: _page_canvas_theme(theme) for theme in (LIGHT, DARK)},
    }
    return sent, owned


_OWNED: Final = np.dtype(
    [
        ("size", "<u8"),
        ("requested", "<u8"),
        ("born", "<u8"),
        ("label", "<u4"),
        ("thread", "<u2"),
        ("stream", "<u2"),
    ]
)


def _page_chunks_in_use(model: Model, events: Events, first: int) -> NDArray[np.void]:
    """The chunks an interactive page begins with (free ones as zeros), then those of each ALLOCATE; of `_OWNED`."""
    with model.visiting(first):
        rows = model.table.chunk_rows()
    made = events[events["kind"] == Kind.ALLOCATE]
    found = np.zeros(len(rows) + len(made), _OWNED)
    for name in _OWNED.names or ():
        found[name] = np.concatenate([rows[name], made["seq" if name == "born" else name]])
    return found


_LONGEST: Final = 500  # characters of a text of a label
_MOST_FRAMES: Final = 200


def _label_texts(labels: Labels, used: Sequence[int]) -> dict[str, Any]:
    """The texts of these labels by number, for the interactive page; frames of stacks once each."""
    count = max(used, default=0) + 1
    names, places = [""] * count, [""] * count
    stacks: list[Sequence[int]] = [()] * count
    details: list[Mapping[str, str]] = [{}] * count
    frames: dict[str, int] = {}
    for number in used:
        name, more = labels[number]
        stack = more.get("stack", "")
        names[number], places[number] = _cut_page_text(name), _cut_page_text(place_in_code(stack))
        stacks[number] = [
            frames.setdefault(_cut_page_text(line), len(frames))
            for line in stack.split("\n")[:_MOST_FRAMES]
            if line
        ]
        told = {key: value for key, value in more.items() if value and key not in STACK_DETAILS}
        details[number] = {_cut_page_text(key): _cut_page_text(value) for key, value in told.items()}
    own = [int(any(place.is_python for place in places_of(frame))) for frame in frames]
    return {
        "names": names,
        "places": places,
        "stacks": stacks,
        "details": details,
        "frames": list(frames),
        "own": own,
    }


def _cut_page_text(text: str) -> str:
    """A text of a label in the interactive page: without its middle where it is long."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 3]}…{text[1 - 2 * _LONGEST // 3 :]}"


_GROUPINGS: Final = {
    "size": "size",
    "line": "line of code",
    "op": "label",
    "kind": "kind",
    "phase": "phase",
    "shape": "shape",
    "data_type": "data type",
    "stream": "stream",
    "thread": "thread",
}


def _page_groupings(trace: Trace, pool: int, owned: NDArray[np.void]) -> Iterator[dict[str, Any]]:
    """What holders in the interactive page are found by: the path of each value, and of each chunk its value."""
    names = grouping(trace, pool, "op")
    has_names = any(
        names.text(names.path(code)) != UNNAMED["op"] for code in np.unique(names.codes(owned)).tolist()
    )
    for by, title in _GROUPINGS.items():
        if by == "size" and has_names:
            continue
        how = grouping(trace, pool, by)
        codes = how.codes(owned).astype(np.int64)
        paths = [""] * (int(codes.max(initial=0)) + 1)
        for code in np.unique(codes).tolist():
            paths[code] = how.text(how.path(code))
        told = {path for path in paths if path}
        if by != "op" and not told - {UNNAMED[by]}:
            continue
        if by in {"stream", "thread"} and len(told) < 2:
            continue
        found = {"name": by, "title": title, "unnamed": UNNAMED[by], "paths": paths}
        if by in {"size", "kind", "phase"}:
            yield found | {"of": f"allocation {by}", "codes": packed(codes)}
        else:
            yield found | {"of": by if by in {"stream", "thread"} else "label"}


_COLOURINGS: Final = {
    "holder": "label",
    "kind": "allocation kind",
    "state": "state",
    "size": "bin",
    "stream": "stream",
}
"""Colouring -> what a chunk's class goes by."""


def _page_colourings(model: Model, owned: NDArray[np.void]) -> Iterator[dict[str, Any]]:
    """The colourings of the interactive page: the class of each value, and the colours of the classes."""
    trace, pool = model.trace, model.pool
    for name in _COLOURINGS:
        chunks = model.chunks() if name == "holder" else None
        made: dict[str, Colouring] = {
            theme.name: colouring(trace, pool, name, theme, chunks) for theme in (LIGHT, DARK)
        }
        found = page_colouring(model, owned, made)
        if found is not None:
            yield found


def page_colouring(
    model: Model, owned: NDArray[np.void], made: Mapping[str, Colouring]
) -> dict[str, Any] | None:
    """A colouring as scripts of the interactive page read it; None: they cannot tell its classes, or it has but one.

    Args:
        model: at the step shown.
        owned: the chunks in use that the page may show, as `page_heap` returns them.
        made: the colouring, by the name of the theme whose colours it has.
    """
    first = next(iter(made.values()))
    name = first.name
    of = _COLOURINGS.get(name)
    records = owned
    if of == "bin":
        records = np.zeros(NUM_BINS, _OWNED)
        records["size"] = MIN_CHUNK << np.arange(NUM_BINS)
    if of is None or not len(records):
        return None
    classes = first.classes(records, model.step)
    there = set(classes.tolist())
    listed = [first.lists(number, drawn=number in there) for number in range(len(first.names))]
    found = {
        "name": name,
        "title": "holder" if name == "holder" else COLOURINGS[name],
        "of": of,
        "names": [name * shown for name, shown in zip(first.names, listed, strict=True)],
        "fills": {theme: [paint.fill for paint in each.paints] for theme, each in made.items()},
        "waste": first.shows_waste,
    }
    if name == "kind":
        codes = grouping(model.trace, model.pool, "kind").codes(owned).astype(np.int64)
        return found | {"table": class_table(codes, classes), "codes": packed(codes)} if codes.any() else None
    if of == "stream" and len(np.unique(owned["stream"])) < 2:
        return None
    if of in {"label", "stream"}:
        return found | {"table": class_table(owned[of].astype(np.int64), classes)}
    return found | {"table": classes.tolist() if of == "bin" else [0]}


def class_table(values: NDArray[np.int64], classes: NDArray[np.uint8]) -> list[int]:
    """For a colouring of the interactive page: the class of each value; where it does not occur, the last one."""
    table = np.full(int(values.max(initial=0)) + 1, min(int(classes.max(initial=0)), OTHER), np.intp)
    table[values] = classes
    found: list[int] = table.tolist()
    return found


def _page_canvas_theme(theme: Theme) -> dict[str, str]:
    """The colours that the canvas of the interactive page needs."""
    names = ("paper", "text", "muted", "highlight", "selection", "search", "fit")
    parts = {"free": theme.free.fill, "waste": theme.waste.fill, "pool_line": theme.pool.line}
    return {name: getattr(theme, name) for name in names} | parts


# ------------------------------------------------------------------------------
# The figures without what the script fills in.

_FILLED: Final = ("x", "y", "text", "hovertext", "width", "offset", "meta")
_HEIGHTS: Final = {"map": 400, "stats": 190, "fragmentation": 150, "bins": 130, "ladder": 300}
"""Pixels of a plot."""
_FOOTS: Final = {"bins": 68}
"""Pixels below the last plot, where they are not `BELOW`: slanted ticks need more."""
_KEPT: Final = {"stats": (7, 8, 9, 10, 11)}
"""Traces that no script fills: the limit, the process, marks, phases, and failures."""


def _page_figures(model: Model, steps: tuple[int, int]) -> dict[str, Any]:
    """The figures of the interactive page in both themes; and the bytes of a unit of the timeline's axis."""
    found: dict[str, dict[str, Any]] = {}
    whole = steps == (model.trace.first, len(model.trace))
    divisor = 1.0
    for theme in (LIGHT, DARK):
        look = Look(theme=theme.name, steps=None if whole else steps, colour="holder", legend=False)
        heap = HeapData(model, brief=True)
        history = heap.history(look)
        stats = stats_panel(history, None, look)
        divisor = stats.y_unit
        panels: dict[str, Sequence[Panel]] = {
            "map": [_map_panel(model, look)],
            "stats": [stats],
            "fragmentation": [fragmentation_panel(history, None, look, brief=True)],
            "bins": [
                replace(each, caption="by chunk size; logarithmic")  # they are half as wide as the map
                for each in bin_panels(histogram_bins(heap, look), look)
            ],
            "ladder": [ladder_panel(ladder_of(model, look), model.trace.labels, look)],
        }
        found[theme.name] = {name: _page_figure(name, each, theme) for name, each in panels.items()}
    return {"figures": found, "divisor": divisor}


def _map_panel(model: Model, look: Look) -> Panel:
    """The map of the interactive page, with its axes and nothing in it: the script paints the chunks."""
    nothing: dict[str, Any] = {"type": "scatter", "mode": "none", "x": [0.0], "y": [0.0]}
    nothing |= {"hoverinfo": "skip", "showlegend": False}
    caption = f"{row_order(rows_of(model))}; widths to scale; Ctrl and the wheel zoom"
    return replace(region_panel(model, None, look), traces=[nothing], legend=False, caption=caption)


def _page_figure(name: str, panels: Sequence[Panel], theme: Theme) -> dict[str, Any]:
    """A figure of the interactive page, without the data that its script fills in."""
    margins = Margins(foot=_FOOTS.get(name, BELOW))
    page = panels_page(panels, below_each_other(panels, [_HEIGHTS[name]] * len(panels)), theme, margins)
    data = [
        {
            key: [] if key in _FILLED and number not in _KEPT.get(name, ()) else value
            for key, value in trace.items()
        }
        for number, trace in enumerate(page.data)
    ]
    if name == "bins":
        data = [
            each | {"x": list(range(NUM_BINS))} if number % 6 in {1, 2} else each
            for number, each in enumerate(data)
        ]
    if name == "ladder":
        data = [each | {"offset": 0} if each["type"] == "bar" else each for each in data]
    return {"data": data, "layout": page.layout}


# ------------------------------------------------------------------------------
# The elements that the script fills.


def _page_body(report: HeapReport, first: int, last: int) -> str:
    """The elements of the interactive page, hidden until the script has read the events."""
    known = regions_known(report.origin.details, report.pool)
    bars = _BARS if known else ""
    fragmentation = _page_timeline_element("fragmentation") if known and report.has_history else ""
    note = ""
    if (first, last) != report.steps:
        note = (
            f'<p class="muted">This page has the events of steps {first:,} to {last:,}; the file has '
            f"{report.length:,} events: <code>bfcviz view</code> shows all.</p>"
        )
    heaps = len(report.origin.pools)
    if heaps > 1:
        note += f'<p class="muted">This page shows one of the {heaps:,} heaps of the file: --pool chooses another.</p>'
    stats = _page_timeline_element("stats") + _SLIDER if report.has_history else _SLIDER
    return (
        f'{note}<p id="status" role="status">This part needs a script: the pictures below do not.</p>'
        f'<section id="app" hidden aria-label="the heap, step by step">{_CONTROLS}'
        f'<div class="columns"><div class="pictures">{_MAP}{stats}{bars}{fragmentation}</div>'
        f'<aside>{_ASIDE}</aside></div><p id="told" class="unseen" aria-live="polite"></p></section>'
    )


def _page_timeline_element(name: str) -> str:
    return f'<div class="timeline"><div id="{name}"></div><div class="step-line" hidden></div></div>'


_CONTROLS: Final = """
<div class="controls">
<span class="group" role="group" aria-label="steps">
<button type="button" id="first" title="first step (Home)" aria-label="first step">|◀</button>
<button type="button" id="back" title="one event back (←; with Shift ten)" aria-label="one event back">◀</button>
<input id="step" inputmode="numeric" aria-label="step" size="9">
<button type="button" id="forward" title="one event forward (→; with Shift ten)"
aria-label="one event forward">▶</button>
<button type="button" id="last" title="last step (End)" aria-label="last step">▶|</button>
<button type="button" id="shown" title="the step that the report is about">peak</button></span>
<label>colour <select id="colour"></select></label>
<label>search <input id="search" type="search" placeholder="label, file, 0x…, >100MiB" size="22"></label>
<output id="hits" for="search"></output>
<label>would it fit? <input id="fit" placeholder="512MiB" size="9"></label>
<button type="button" id="theme" title="light or dark">◐</button>
</div>
<p id="answer" aria-live="polite"></p>
<div id="event" class="muted"></div>
<div id="legend"></div>
"""

_MAP: Final = """
<div id="map"><canvas id="canvas" tabindex="0" role="application" aria-label="region map: arrow keys go from chunk to
chunk, Enter chooses one, Escape leaves the map"></canvas>
<div id="map-plot"></div><div id="tip" role="tooltip" hidden></div></div>
"""

_SLIDER: Final = '<input id="slider" type="range" step="1" aria-label="step">'

_BARS: Final = '<div class="bars"><div id="ladder"></div><div id="bins"></div></div>'

_ASIDE: Final = """
<div id="numbers"></div>
<h3>Who holds it <select id="by" aria-label="find holders by"></select>
<button type="button" id="grew" aria-pressed="false" title="what grew between two moments">what grew</button></h3>
<p id="growth" class="muted" aria-live="polite"></p>
<table><tbody id="holders"></tbody></table>
<h3>The chosen chunk</h3>
<div id="pane"></div>
"""

_PAPER: Final = 700
"""CSS pixels that A4 and Letter have at least between their margins, upright."""

_STYLE: Final = f"""
:root[data-theme="light"]{{{variables(LIGHT)}{holder_variables(LIGHT)}}}
:root[data-theme="dark"]{{{variables(DARK)}{holder_variables(DARK)}}}
body{{max-width:1500px}}
[hidden]{{display:none!important}}
#app{{margin:10px 0 24px;font-size:14px;line-height:1.4}}
#app h3{{margin:14px 0 4px}}
.controls{{display:flex;flex-wrap:wrap;gap:6px 16px;align-items:center;padding:8px 0;border-top:1px solid var(--grid)}}
.group{{display:inline-flex;gap:3px;align-items:center}}
#app button,#app input,#app select{{font:inherit;color:inherit;background:var(--paper);border:1px solid var(--muted);
  border-radius:4px;padding:3px 7px;min-height:28px}}
#app select{{max-width:190px}}
#app button{{cursor:pointer}}
#app :focus-visible{{outline:3px solid var(--mark);outline-offset:1px}}
#app .link{{border:0;padding:0;min-height:0;background:none;text-align:left;text-decoration:underline dotted;
  overflow-wrap:anywhere}}
#app .link[aria-pressed=true]{{font-weight:700;text-decoration:underline}}
#event{{min-height:20px;overflow-wrap:anywhere;unicode-bidi:isolate}}
#answer{{font-weight:600;max-width:none;overflow-wrap:anywhere;unicode-bidi:isolate}}
#answer:empty{{display:none}}
#legend{{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12px;margin-top:4px}}
.swatch{{display:inline-block;width:11px;height:11px;margin-right:5px;outline:1px solid var(--pool-line);
  outline-offset:-1px;flex:none}}
.columns{{display:grid;grid-template-columns:minmax(0,1fr) 340px;gap:0 24px}}
.pictures{{min-width:0}}
#map,.timeline{{position:relative}}
#canvas{{position:absolute;pointer-events:none}}
#map-plot{{position:relative}}
#tip{{position:absolute;z-index:2;pointer-events:none;max-width:420px;padding:6px 9px;font-size:12px;
  background:var(--paper);border:1px solid var(--muted);overflow-wrap:anywhere}}
#tip *{{unicode-bidi:isolate}}
.step-line{{position:absolute;left:-1px;width:2px;background:var(--mark);pointer-events:none}}
#app #slider{{display:block;width:100%;padding:0;border:0;accent-color:var(--in-use);margin-bottom:14px}}
.bars{{display:grid;grid-template-columns:1fr 1fr;gap:0 12px}}
.bars>*{{min-width:0}}
aside{{min-width:0;overflow-wrap:anywhere}}
#numbers{{display:grid;grid-template-columns:1fr 1fr;gap:6px 14px}}
#numbers>div{{display:flex;flex-direction:column;font-size:12px;line-height:1.25;font-variant-numeric:tabular-nums}}
#numbers b{{font-size:18px}}
#app td{{padding:2px 6px 2px 0;font-size:13px;border:0}}
#app td:first-child{{width:99%}}
.holder{{display:flex;align-items:baseline}}
#growth{{margin:4px 0;font-size:13px}}
#growth:empty{{display:none}}
#app button[aria-pressed=true]{{font-weight:700}}
#app td.share{{min-width:56px}}
#app .bar{{height:9px;outline:1px solid var(--pool-line);outline-offset:-1px;margin-top:4px}}
#holders td:first-child,#pane h3,#pane dd,#pane li{{unicode-bidi:isolate}}
#pane dl{{display:grid;grid-template-columns:max-content 1fr;gap:2px 10px;margin:0;font-size:13px}}
#pane dt{{color:var(--muted)}}
#pane dd{{margin:0;overflow-wrap:anywhere}}
#pane ol{{padding-left:18px;font:12px/1.35 ui-monospace,monospace;max-height:340px;overflow:auto}}
#pane li{{margin:0 0 2px}}
.unseen{{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}}
@media (max-width:1200px){{.bars{{grid-template-columns:minmax(0,1fr)}}}}
@media (max-width:1000px){{.columns{{grid-template-columns:minmax(0,1fr)}}}}
@media (max-width:700px){{#app table{{display:table}}#app tbody{{display:table-row-group}}#app tr{{display:table-row}}
  #app td{{display:table-cell}}}}
:root[data-paper] body{{width:{_PAPER}px;max-width:none;padding:0}}
:root[data-paper] .columns,:root[data-paper] .bars{{display:block}}
@media print{{.controls,#app #slider{{display:none}}aside{{position:relative;z-index:1}}
  #map,.timeline,.bars>*{{break-inside:avoid;padding-bottom:16px}}}}
"""
