"""`explain`, `peak`, `worst_fragmentation` and `draw` of whatever a user has: a path, a trace, or a heap at work.

The functions behind them, in `model` and `figures`, take a `Trace`. May import everything but cli.
"""

import os
from typing import TYPE_CHECKING, Any

from bfcviz.errors import TraceError
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.model.browse import navigation
from bfcviz.model.explain.text import event as words
from bfcviz.model.sources import trace_of

if TYPE_CHECKING:
    from bfcviz.figures import Picture


def explain(source: Any, event: int | None = None) -> str:
    """Say in words what one event did, or why a request failed.

    Args:
        source: a path that `bfcviz.open` reads, a Trace, a Recording, an EventLog, a heap at work, or what
            `bfcviz.watch` or a `serve_...` function returned.
        event: its index, 0..len(trace) - 1; None: the last event.

    Raises:
        TraceError: the trace has no such event, or its events contradict each other.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    trace = _trace(source)
    if event is None and len(trace) == trace.first:
        raise TraceError("the last event was asked for, and the trace has none yet")
    return words.explain(trace, len(trace) - 1 if event is None else event)


def peak(source: Any, pool: int = 0) -> int:
    """The first step with the most bytes in use; a step is the state after that many events.

    Args:
        source: as of `explain`.
        pool: index of the heap among `trace.origin.pools`.
    """
    return navigation.peak(_trace(source), pool)


def worst_fragmentation(source: Any, pool: int = 0) -> int:
    """The first step with the highest external fragmentation (1 - largest_free_chunk / free_bytes).

    Args:
        source: as of `explain`.
        pool: index of the heap among `trace.origin.pools`.
    """
    return navigation.worst_fragmentation(_trace(source), pool)


def draw(name: str, source: Any, step: int | None = None, *, pool: int = 0, **look: Any) -> "Picture":
    """The picture called `name` of one heap at a step: a plotly figure with its numbers in `table`.

    Args:
        name: one of `bfcviz.figures.FIGURES`, such as `region_map`.
        source: as of `explain`.
        step: how many events have happened, 0..len(trace); None: all.
        pool: index of the heap among `trace.origin.pools`.
        look: fields of `bfcviz.figures.Look`, such as `theme="dark"`; `wanted` may be text, such as `64MiB`.

    Raises:
        ValueError: there is no such picture; the message lists those there are.
        TraceError: the trace has no such step.
        BfcvizError: `source` is none of these, or cannot be read.
    """
    from bfcviz import figures  # noqa: PLC0415  plotly, which words and steps do not need

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
