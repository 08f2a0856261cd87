"""OomReport: a failed request, the free memory then, and the neighbours of the largest free chunk."""

from dataclasses import dataclass
from html import escape

import numpy as np

from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.figures import draw
from bfcviz.model.browse.navigation import previous_step
from bfcviz.model.explain.failure.diagnose import diagnose
from bfcviz.model.explain.failure.diagnosis import Diagnosis
from bfcviz.model.explain.text.event import explain
from bfcviz.model.explain.text.short_names import short_address, short_name
from bfcviz.terminal import printable
from bfcviz.units import format_bytes
from bfcviz.watching import notebook


@dataclass(frozen=True)
class OomReport:
    """A failed request and why it failed; a table in a notebook, else text.

    Attributes:
        step: the step just after the request.
        words: why it failed, as text.
        rows: the numbers at that step: name and value.
    """

    step: int
    words: str
    rows: list[tuple[str, str]]

    def show(self, trace: Trace) -> None:
        """Display the report, and below it the heap at that step."""
        notebook.show(self, draw("region_map", trace, self.step))

    def __str__(self) -> str:
        return "\n".join(map(printable, [self.words, *(f"  {name}: {value}" for name, value in self.rows)]))

    def _repr_html_(self) -> str:
        left = "style='text-align: left'"
        rows = [f"<th {left}>{escape(name)}</th><td {left}>{escape(value)}</td>" for name, value in self.rows]
        cells = "".join(f"<tr>{row}</tr>" for row in rows)
        return (
            "<div class='bfcviz-failure'><b>Out of memory.</b> "
            f"{escape(self.words)}<table>{cells}</table>The map shows the heap at step {self.step:,}; "
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
    return OomReport(step, explain(trace, step - 1), _rows(trace, found))


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
