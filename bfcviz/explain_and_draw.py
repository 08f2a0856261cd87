"""`explain`, `why`, `peak`, `worst_fragmentation` and `draw` for any source: a path, a trace, or a live heap.

The functions in `model` and `figures` that they call take a `Trace`. May import everything but cli.
"""

import os
from typing import TYPE_CHECKING, Any

from bfcviz.errors import TraceError
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.browse import navigation
from bfcviz.model.explain.failure.diagnose import diagnose, failed_steps, without_failure, would_fit
from bfcviz.model.explain.failure.diagnosis import Diagnosis
from bfcviz.model.explain.text import event as event_text
from bfcviz.model.trace_from_source import trace_of
from bfcviz.units import parse_bytes

if TYPE_CHECKING:
    from bfcviz.figures import Picture


def explain(source: Any, event: int | None = None) -> str:
    """Explain in a sentence what one event did, or why a request failed.

    Args:
        source: a path that `bfcviz.open` reads, a Trace, a Recording, an EventLog, a live heap, or the result of
            `bfcviz.watch` or of a `serve_...` function.
        event: its index, 0..len(trace) - 1; None: the last event.

    Raises:
        TraceError: the trace has no such event, or its events contradict each other.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    trace = _trace(source)
    if event is None and len(trace) == trace.first:
        raise TraceError("the trace has no event yet: give a trace with events, or record some first")
    return event_text.explain(trace, len(trace) - 1 if event is None else event)


def why(
    source: Any,
    event: int | None = None,
    *,
    step: int | None = None,
    size: int | str | None = None,
    pool: int = 0,
) -> Diagnosis:
    """Find out why a request failed and what would have helped, or whether a request would fit.

    Args:
        source: as for `explain`.
        event: index of an OOM event; None: the last request that failed.
        step: with `size`: the state after that many events; None: the last state.
        size: bytes, or text such as `500MiB`: find out whether a request of this size would fit.
        pool: with `size`, and for a trace without a failure: index of the heap among `trace.origin.pools`.

    Returns:
        The verdict with its numbers; `print` it for the report. Its verdict is `no_failure` where none failed.

    Raises:
        TraceError: the trace has no such event or step, or the event is not an OOM.
        ValueError: a size is needed, or it is not one.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    trace = _trace(source)
    if size is not None:
        if event is not None:
            raise ValueError("give an event, or the size of a request and a step, not both")
        at = len(trace) if step is None else step
        return would_fit(trace, at, parse_bytes(size, "size"), pool=pool)
    if step is not None:
        raise ValueError("give the size of the request that may fit at this step, such as size='500MiB'")
    if event is not None:
        return diagnose(trace, event)
    steps = failed_steps(trace)
    return diagnose(trace, steps[-1] - 1) if steps else without_failure(trace, pool)


def peak(source: Any, pool: int = 0) -> int:
    """The first step with the most bytes in use; a step is the state after that many events.

    Args:
        source: as for `explain`.
        pool: index of the heap among `trace.origin.pools`.
    """
    return navigation.peak(_trace(source), pool)


def worst_fragmentation(source: Any, pool: int = 0) -> int:
    """The first step with the highest external fragmentation (1 - largest_free_chunk / free_bytes).

    Args:
        source: as for `explain`.
        pool: index of the heap among `trace.origin.pools`.
    """
    return navigation.worst_fragmentation(_trace(source), pool)


def draw(name: str, source: Any, step: int | None = None, *, pool: int = 0, **look: Any) -> "Picture":
    """Draw the picture `name` of one heap at a step: a plotly figure with its numbers in `table`.

    Args:
        name: one of `bfcviz.figures.FIGURES`, such as `region_map`.
        source: as for `explain`.
        step: number of events applied, 0..len(trace); None: all.
        pool: index of the heap among `trace.origin.pools`.
        look: fields of `bfcviz.figures.Look`, such as `theme="dark"`; `wanted` may be text, such as `64MiB`.

    Raises:
        ValueError: no picture has this name; the message lists the names.
        TraceError: the trace has no such step.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    from bfcviz import figures  # noqa: PLC0415  plotly, which explanations do not need

    return figures.draw(name, _trace(source), step, pool=pool, **look)


def _trace(source: Any) -> Trace:
    if isinstance(source, Trace):
        return source
    if isinstance(source, str | os.PathLike):
        return open_trace(source)
    if isinstance(found := getattr(source, "trace", None), Trace):  # a Watch, a LiveDashboard, a Model
        return found
    heaps = getattr(source, "heaps", None)
    return trace_of(heaps[0] if isinstance(heaps, list) and heaps else source)
