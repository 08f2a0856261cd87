"""Each figure as a function: of a model at its step, or of a trace at a step, with a look."""

from functools import partial

from bfcviz.figures import FIGURES
from bfcviz.figures.view_options import Look
from bfcviz.model import Model

BY_STATE = Look(colour="state")
"""A look with few classes of chunks, whatever they are named."""


def drawn(name, heap, step=None, *, pool=0, look=BY_STATE):
    """The figure of this name; `heap`: a Model, which stays at its step, or a Trace."""
    if not isinstance(heap, Model):
        trace, heap = heap, Model(heap, pool)
        heap.seek(len(trace) if step is None else step)
    return FIGURES[name].draw(heap, look)


def named(figure, start):
    """The trace of a figure whose name begins so."""
    (trace,) = [trace for trace in figure.data if trace.name.startswith(start)]
    return trace


active_memory = partial(drawn, "active_memory")
address_time = partial(drawn, "address_time")
bin_histogram = partial(drawn, "bin_histogram")
event_rate = partial(drawn, "event_rate")
failure = partial(drawn, "failure")
fragmentation_timeline = partial(drawn, "fragmentation_timeline")
holders_icicle = partial(drawn, "holders")
ladder = partial(drawn, "ladder")
region_map = partial(drawn, "region_map")
stats_timeline = partial(drawn, "stats_timeline")
