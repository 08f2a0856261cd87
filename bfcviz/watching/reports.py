"""Reports of a watched heap: its peak and the labels that held the memory (Report), a failed request (OomReport)."""

from dataclasses import dataclass
from html import escape
from typing import Final, NamedTuple

import numpy as np

from bfcviz.dashboard import notebook
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.figures import draw
from bfcviz.model import Model
from bfcviz.model.browse.navigation import peak, previous_step
from bfcviz.model.explain.failure.diagnose import diagnose
from bfcviz.model.explain.failure.diagnosis import Diagnosis
from bfcviz.model.explain.text.event import explain
from bfcviz.model.explain.text.short_names import short_address, short_name
from bfcviz.model.holders.holder_paths import place_in_code
from bfcviz.model.state.views import ModelStats
from bfcviz.model.timelines.fragmentation import external, internal, reserved_not_in_use
from bfcviz.terminal import printable
from bfcviz.units import format_bytes

_MAX_HOLDERS: Final = 12
"""The report names this many holders and adds up the others."""


class Holder(NamedTuple):
    """A label that held chunks in use.

    Attributes:
        name: the label, and the place in the code where a stack was recorded: `forward, train.py:41 step`.
        chunks: how many chunks it held.
        num_bytes: their sizes added up.
        share: of all bytes in use, 0..1.
    """

    name: str
    chunks: int
    num_bytes: int
    share: float


@dataclass(frozen=True)
class Report:
    """One heap at its peak; a table in a notebook, else text.

    Attributes:
        says: how the framework was watched, as text.
        heap: the name of the heap.
        step: the first step with the most bytes in use.
        stats: the totals at that step.
        holders: the labels that held the bytes in use, the largest first.
    """

    says: str
    heap: str
    step: int
    stats: ModelStats
    holders: list[Holder]

    @property
    def words(self) -> list[str]:
        """How it was watched, the peak, and the fragmentation there: one sentence each."""
        stats = self.stats
        if not stats.bytes_in_use:
            return [self.says, f"No allocation on the heap of {self.heap}."]
        used, pool = format_bytes(stats.bytes_in_use), format_bytes(stats.pool_bytes)
        free, largest = format_bytes(stats.free_bytes), format_bytes(stats.largest_free_chunk)
        peak = f"Peak of {self.heap}: {used} in use at step {self.step:,}, of a pool of {pool}."
        count = stats.chunks_free
        chunks = "1 chunk" if count == 1 else f"{count:,} chunks, the largest {largest}"
        rest = f"Free then: {free} in {chunks}."
        fragmented = (
            f"External fragmentation (1 - largest free chunk / free bytes) {external(stats):.0%}, internal (1 - "
            f"requested / in use) {internal(stats):.1%}, reserved-not-in-use (1 - in use / pool) "
            f"{reserved_not_in_use(stats):.0%}."
        )
        return [self.says, peak, rest, fragmented]

    def __str__(self) -> str:
        lines = [
            f"{format_bytes(each.num_bytes):>12} {each.share:6.1%} {each.chunks:8,} chunks  {each.name}"
            for each in self.holders
        ]
        return "\n".join(map(printable, [*self.words, *lines]))

    def _repr_html_(self) -> str:
        words = "".join(f"<div>{escape(line)}</div>" for line in self.words)
        if not self.holders:
            return f"<div class='bfcviz-report'>{words}</div>"
        names = ("held at the peak by", "bytes", "share", "chunks")
        head = "".join(f"<th>{name}</th>" for name in names)
        rows = "".join(
            f"<tr><td style='text-align: left'>{escape(each.name)}</td><td>{format_bytes(each.num_bytes)}</td>"
            f"<td>{each.share:.1%}</td><td>{each.chunks:,}</td></tr>"
            for each in self.holders
        )
        return f"<div class='bfcviz-report'>{words}<table><tr>{head}</tr>{rows}</table></div>"


def report(trace: Trace, pool: int = 0, says: str = "") -> Report:
    """The report of one heap of a trace, over the steps that are still kept."""
    model = Model(trace, pool)
    model.seek(peak(trace, pool))
    return Report(says, trace.origin.pools[pool].name, model.step, model.stats(), _holders(model))


def _holders(model: Model) -> list[Holder]:
    used = model.in_use()
    labels, at, chunks = np.unique(used["label"], return_inverse=True, return_counts=True)
    held = np.zeros(len(labels), np.uint64)
    np.add.at(held, at, used["size"])
    total = int(held.sum())
    order = np.argsort(held)[::-1]
    rows = [(_holder_name(model.trace, int(labels[i])), int(chunks[i]), int(held[i])) for i in order]
    if len(rows) > _MAX_HOLDERS + 1:
        others = rows[_MAX_HOLDERS:]
        name = f"{len(others)} others"
        rows = [*rows[:_MAX_HOLDERS], (name, sum(row[1] for row in others), sum(row[2] for row in others))]
    return [Holder(name, count, size, size / total) for name, count, size in rows]


def _holder_name(trace: Trace, label: int) -> str:
    """The short name of a label, and its place in the code if that is known and not the name."""
    name, place = short_name(trace, label), place_in_code(trace.labels[label].details.get("stack", ""))
    return name if place in ("", trace.labels.name(label)) else f"{name}, {place}"


@dataclass(frozen=True)
class OomReport:
    """A failed request and why it failed; a table in a notebook, else text.

    Attributes:
        step: the step just after the request.
        words: why it failed, as text.
        rows: the numbers at that step: name and value.
        advice: what would have helped, as sentences.
    """

    step: int
    words: str
    rows: list[tuple[str, str]]
    advice: list[str]

    def show(self, trace: Trace) -> None:
        """Display the report, and below it the heap at that step."""
        notebook.show(self, draw("region_map", trace, self.step))

    def __str__(self) -> str:
        rows = [f"  {name}: {value}" for name, value in self.rows]
        return "\n".join(map(printable, [self.words, *rows, *(f"  - {text}" for text in self.advice)]))

    def _repr_html_(self) -> str:
        left = "style='text-align: left'"
        rows = [f"<th {left}>{escape(name)}</th><td {left}>{escape(value)}</td>" for name, value in self.rows]
        cells = "".join(f"<tr>{row}</tr>" for row in rows)
        items = "".join(f"<li>{escape(text)}</li>" for text in self.advice)
        advice = f"What would help:<ul>{items}</ul>" if items else ""
        return (
            "<div class='bfcviz-failure'><b>Out of memory.</b> "
            f"{escape(self.words)}<table>{cells}</table>{advice}"
            f"The map shows the heap at step {self.step:,}; "
            "the largest free chunk is outlined.</div>"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a framework raises this error when memory runs out."""
    # PyTorch raises RuntimeErrors: one has this name, another this text.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "out of memory" in str(error)


def last_failure(trace: Trace) -> OomReport | None:
    """The last request that failed; None where none failed, or its event is no longer kept."""
    end = len(trace)
    if end == trace.first:
        return None
    is_last = trace.read(end - 1, end)[0]["kind"] == Kind.OOM
    step = end if is_last else previous_step(trace, end, [Kind.OOM])
    if step is None:
        return None
    found = diagnose(trace, step - 1)
    return OomReport(
        step, explain(trace, step - 1), _rows(trace, found), [each.text for each in found.advice]
    )


def _rows(trace: Trace, found: Diagnosis) -> list[tuple[str, str]]:
    limit = "" if found.bytes_limit is None else f" of at most {format_bytes(found.bytes_limit)}"
    rows = [
        ("requested", f"{format_bytes(found.requested)} ({found.rounded:,} bytes when rounded up)"),
        ("pool", f"{format_bytes(found.pool_bytes)}{limit}"),
        ("free", f"{format_bytes(found.free_bytes)} in {found.free_chunks:,} chunks"),
    ]
    if found.hole.chunk is None:
        return rows
    return [
        *rows,
        ("largest free chunk", _chunk(found.hole.chunk)),
        ("before it", _neighbour(trace, found.hole.before, "the region begins")),
        ("after it", _neighbour(trace, found.hole.after, "the region ends")),
    ]


def _neighbour(trace: Trace, chunk: np.void | None, edge: str) -> str:
    if chunk is None:
        return edge
    holder = short_name(trace, int(chunk["label"])) if chunk["in_use"] else "free, not merged"
    return f"{_chunk(chunk)}, {holder}"


def _chunk(chunk: np.void) -> str:
    return f"{format_bytes(int(chunk['size']))} at {short_address(int(chunk['address']))}"
