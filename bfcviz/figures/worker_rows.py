"""The workers of a cluster, or the ranks of a program: a row each, the worst first, all on one scale.

A row has the bytes in use, the pool and its largest free chunk now, and the bytes in use and the pool over time. The
picture is HTML and SVG and not plotly: it is drawn again twice a second for any number of workers.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.text import harmless
from bfcviz.figures.theme import following
from bfcviz.units import counted, format_bytes

STYLE: Final = (
    following(".bfcviz-workers")
    + """
.bfcviz-workers { color: var(--text); font: 13px/18px var(--jp-ui-font-family, system-ui, sans-serif) }
.bfcviz-workers p { margin: 4px 0 }
.bfcviz-workers .none { color: var(--muted) }
.bfcviz-workers .bad, .bfcviz-workers .state.lost { color: var(--oom) }
.bfcviz-workers .workers { container-type: inline-size }
.bfcviz-workers :is(.head, .row) {
  display: grid; gap: 0 14px; align-items: center; padding: 3px 6px; border-bottom: 1px solid var(--grid);
  grid-template-columns: minmax(90px, 1fr) minmax(190px, 2.4fr) 84px 90px minmax(200px, 4fr);
}
.bfcviz-workers .head { color: var(--muted); font-size: 11px; line-height: 15px }
.bfcviz-workers .head span:nth-child(n+3):nth-child(-n+4), .bfcviz-workers .number { text-align: right }
.bfcviz-workers .row { cursor: pointer; font-variant-numeric: tabular-nums }
.bfcviz-workers .row:hover { background: color-mix(in srgb, var(--in-use) 10%, transparent) }
.bfcviz-workers .row.chosen { box-shadow: inset 3px 0 0 var(--in-use-line) }
.bfcviz-workers .row:focus-visible { outline: 2px solid var(--jp-brand-color1, #1976d2); outline-offset: -2px }
.bfcviz-workers .row small { display: block; color: var(--muted); font-size: 11px; line-height: 14px }
.bfcviz-workers .name { overflow: hidden; text-overflow: ellipsis }
.bfcviz-workers .state { margin-right: 6px }
.bfcviz-workers .state.live { color: var(--free-line) }
.bfcviz-workers .bar { position: relative; display: flex; height: 14px; outline: 1px solid var(--grid) }
.bfcviz-workers .bar i { display: block; height: 100% }
.bfcviz-workers i.in-use { background: var(--in-use) }
.bfcviz-workers i.free { background: var(--free); box-shadow: inset 0 0 0 1px var(--free-line) }
.bfcviz-workers i.pool { background: var(--pool); box-shadow: inset 0 0 0 1px var(--pool-line) }
.bfcviz-workers .bar i.limit {
  position: absolute; top: -2px; bottom: -2px; height: auto; width: 2px; background: var(--text);
}
.bfcviz-workers .keys { color: var(--muted); font-size: 11px }
.bfcviz-workers .keys i:first-child { margin-left: 0 }
.bfcviz-workers .key { display: inline-block; width: 10px; height: 9px; margin: 0 4px 0 8px }
.bfcviz-workers .key.limit { width: 2px; background: var(--text) }
.bfcviz-workers svg { display: block; width: 100%; height: 40px }
.bfcviz-workers path.pool { fill: var(--pool) }
.bfcviz-workers path.in-use { fill: var(--in-use) }
.bfcviz-workers path { vector-effect: non-scaling-stroke }
.bfcviz-workers path.limit { stroke: var(--muted); stroke-dasharray: 5 3; fill: none }
.bfcviz-workers path.end { stroke: var(--muted); stroke-width: 2 }
.bfcviz-workers path.end.lost { stroke: var(--oom) }
@container (max-width: 640px) {
  .bfcviz-workers :is(.head, .row) { grid-template-columns: minmax(70px, 1fr) minmax(120px, 2fr) 70px }
  .bfcviz-workers :is(.head, .row) > :nth-child(n+4) { display: none }
}
"""
)
"""A page needs it once; its colours are those of the page's theme."""

MOST_ROWS: Final = 32
_WIDTH, _HEIGHT = 600, 40  # of a timeline, in its own units
_FAR: Final = 1.6  # a limit this many times above all pools would flatten everything else: it is only told
_ROOM: Final = 1.04


class WorkerRowState(StrEnum):
    """What a worker does, as its row says."""

    LIVE = "live"
    ENDED = "ended"
    LOST = "lost"  # killed, or ended without closing its recording


@dataclass(frozen=True)
class WorkerRow:
    """What a row shows; sizes are bytes."""

    name: str  # of the worker
    state: WorkerRowState  # what it does
    # in_use, pool, free, largest_free: its totals now, or at its end
    in_use: int
    pool: int
    free: int
    largest_free: int
    limit: int | None  # the memory limit of its heap; None: unknown
    failed: int  # number of failed requests
    started_s: float | None  # when its clock began, in seconds of the calendar; None: unknown
    times: NDArray[np.float64]  # shape (n,), seconds of its clock, ascending
    # in_use_most, pool_most: shape (n,), the most bytes in the interval that ends at each time
    in_use_most: NDArray[Any]
    pool_most: NDArray[Any]
    problem: str = ""  # why its recording cannot be read further

    @property
    def head_room(self) -> int:
        """The largest request that fits into a worker's heap: into a free chunk, or by growth up to the limit."""
        growth = 0 if self.limit is None else max(self.limit - self.pool, 0)
        return max(self.largest_free, growth)

    @property
    def fragmentation(self) -> float:
        """External fragmentation of a worker's heap: 1 - largest free chunk / free bytes; 0 for none free."""
        return 1 - self.largest_free / self.free if self.free else 0.0

    @property
    def most(self) -> int:
        """The most bytes that a worker's pool ever had."""
        return int(self.pool_most.max(initial=self.pool))

    @property
    def peak(self) -> int:
        """The most bytes that a worker ever had in use."""
        return int(self.in_use_most.max(initial=self.in_use))


ORDERS: Final[Mapping[str, Callable[[WorkerRow], Any]]] = {
    "least head room": lambda row: (row.head_room / max(row.limit or row.most, 1), row.name),
    "most fragmented": lambda row: (-row.fragmentation, row.name),
    "most in use": lambda row: (-row.in_use, row.name),
    "name": lambda _: (),
}
"""The measures that say which worker is the worst -> a key to sort by. Live workers come before ended ones."""


def ordered_worker_rows(rows: Sequence[WorkerRow], order: str) -> list[WorkerRow]:
    """The rows, the worst first by one of `ORDERS`; with `name` as they are."""
    if order == "name":
        return list(rows)
    key = ORDERS[order]
    return sorted(rows, key=lambda row: (row.state is not WorkerRowState.LIVE, key(row)))


def workers_html(rows: Sequence[WorkerRow], chosen: str | None = None) -> str:
    """The picture of at most `MOST_ROWS` rows; `chosen` is the name of the worker that is shown in detail."""
    if not rows:
        return "<p class='none'>No worker records yet.</p>"
    shown = rows[:MOST_ROWS]
    scale = _WorkerAxes.of(rows)
    lines = "".join(_worker_row_html(row, scale, is_chosen=row.name == chosen) for row in shown)
    more = len(rows) - len(shown)
    rest = f"<p class='none'>{more} more workers: choose one from the menu.</p>" if more else ""
    listed = f"<div class='workers' role='list'>{_worker_rows_head(scale)}{lines}</div>"
    return f"{_workers_headline(rows)}{_KEY}{listed}{rest}"


_KEY: Final = (
    "<p class='keys'><i class='key in-use'></i>in use<i class='key free'></i>largest free chunk"
    "<i class='key pool'></i>rest of the pool<i class='key limit'></i>limit</p>"
)


@dataclass(frozen=True)
class _WorkerAxes:
    """The axes of all rows: bytes up to `top`, seconds of the calendar from `begin` to `end`.

    A worker whose start is unknown begins at `begin`.
    """

    top: float
    begin: float
    end: float

    @classmethod
    def of(cls, rows: Sequence[WorkerRow]) -> "_WorkerAxes":
        most = max(*(row.most for row in rows), 1)
        near = [row.limit for row in rows if row.limit is not None and row.limit <= _FAR * most]
        begin = min((row.started_s for row in rows if row.started_s is not None), default=0.0)
        ends = [cls._start(row, begin) + float(row.times[-1]) for row in rows if len(row.times)]
        return cls(_ROOM * max(most, *near, 0), begin, max(*ends, begin + 1e-3, begin))

    def across(self, row: WorkerRow) -> NDArray[np.float64]:
        """The places of the times in a worker's row, 0.._WIDTH."""
        times = self._start(row, self.begin) + row.times
        found: NDArray[np.float64] = _WIDTH * (times - self.begin) / (self.end - self.begin)
        return found

    @staticmethod
    def _start(row: WorkerRow, begin: float) -> float:
        return begin if row.started_s is None else row.started_s

    def share(self, num_bytes: float) -> float:
        """The part of the workers' scale that some bytes take, 0..1."""
        return min(num_bytes / self.top, 1.0)


def _workers_headline(rows: Sequence[WorkerRow]) -> str:
    """How many workers do what, and which live one has the least room."""
    states = Counter(row.state for row in rows)
    counts = [f"{states[state]} {state}" for state in WorkerRowState if states[state]]
    parts = [f"{len(rows)} worker{'s' * (len(rows) > 1)}: {', '.join(counts)}"]
    if live := [row for row in rows if row.state is WorkerRowState.LIVE]:
        worst = min(live, key=ORDERS["least head room"])
        parts.append(
            f"<b>{harmless(worst.name)}</b> has the least head room: the largest request that fits has "
            f"{format_bytes(worst.head_room)}"
        )
    if failed := sum(row.failed for row in rows):
        (first, *others) = [row.name for row in rows if row.failed]
        where = f"{len(others) + 1} workers" if others else harmless(first)
        parts.append(f"<b class='bad'>{counted(failed, 'failed request')}</b> in {where}")
    return f"<p class='line' role='status'>{'. '.join(parts)}.</p>"


def _worker_rows_head(scale: _WorkerAxes) -> str:
    """The line of titles above the rows."""
    seconds, top = scale.end - scale.begin, format_bytes(scale.top / _ROOM)
    return (
        "<div class='head'><span>worker</span><span>now, 0 to "
        f"{top}</span><span>largest request that fits</span><span>external fragmentation</span>"
        f"<span>over {seconds:,.3g} s, 0 to {top}</span></div>"
    )


def _worker_row_html(row: WorkerRow, scale: _WorkerAxes, *, is_chosen: bool) -> str:
    limit = "" if row.limit is None else f" of at most {format_bytes(row.limit)}"
    hint = (
        f"{row.name}: {format_bytes(row.in_use)} in use, pool {format_bytes(row.pool)}{limit}, largest free chunk "
        f"{format_bytes(row.largest_free)}, {row.failed:,} failed requests. Click to open it"
    )
    badges = f"<span class='state {row.state}'>{row.state}</span>"
    if row.failed:
        badges += f"<span class='state lost'>{row.failed:,} failed</span>"
    if row.problem:
        badges += f"<span class='state lost' title='{harmless(row.problem)}'>unreadable</span>"
    return (
        f"<div class='row{' chosen' * is_chosen}' role='listitem button' tabindex='0' "
        f"data-worker='{escape(row.name)}' title='{harmless(hint, 400)}'>"
        f"<span class='name'><b>{harmless(row.name)}</b><small>{badges}</small></span>"
        f"<span class='now'>{_worker_bar(row, scale)}<small>{format_bytes(row.in_use)} in use, "
        f"peak {format_bytes(row.peak)}</small></span>"
        f"<span class='number'>{format_bytes(row.head_room)}</span>"
        f"<span class='number'>{row.fragmentation:.0%}</span>"
        f"<span class='time'>{_worker_timeline(row, scale)}</span></div>"
    )


def _worker_bar(row: WorkerRow, scale: _WorkerAxes) -> str:
    rest = max(row.free - row.largest_free, 0)
    parts = (("in-use", row.in_use), ("free", row.largest_free), ("pool", rest))
    bars = "".join(
        f"<i class='{kind}' style='width:{scale.share(size):.2%}'></i>" for kind, size in parts if size
    )
    if row.limit is not None and row.limit <= scale.top:
        bars += f"<i class='limit' style='left:{scale.share(row.limit):.2%}'></i>"
    return f"<span class='bar'>{bars}</span>"


def _worker_timeline(row: WorkerRow, scale: _WorkerAxes) -> str:
    x = scale.across(row)
    end = float(_WIDTH if row.state is WorkerRowState.LIVE else x[-1]) if len(x) else 0.0
    paths = [
        _worker_timeline_area("pool", x, row.pool_most / scale.top, end),
        _worker_timeline_area("in-use", x, row.in_use_most / scale.top, end),
    ]
    if row.limit is not None and row.limit <= scale.top:
        y = _HEIGHT * (1 - scale.share(row.limit))
        paths.append(f"<path class='limit' d='M0 {y:.1f}H{_WIDTH}'/>")
    if row.state is not WorkerRowState.LIVE and len(x):
        paths.append(f"<path class='end {row.state}' d='M{end:.1f} 0V{_HEIGHT}'/>")
    return f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' preserveAspectRatio='none' aria-hidden='true'>{''.join(paths)}</svg>"


def _worker_timeline_area(kind: str, x: NDArray[np.float64], shares: NDArray[np.float64], end: float) -> str:
    """The area below the values, each of which holds until the next; the last one until `end`."""
    if not len(x):
        return ""
    y = _HEIGHT * (1 - np.clip(shares, 0, 1))
    steps = "".join(f"H{a:.1f}V{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
    return f"<path class='{kind}' d='M{x[0]:.1f} {_HEIGHT}{steps}H{max(end, x[-1]):.1f}V{_HEIGHT}z'/>"
