"""The first failed request of a trace, and the step at which a view of it opens."""

from bfcviz.events.origin_details import recorded_failures
from bfcviz.events.trace import Trace
from bfcviz.model.browse.navigation import peak
from bfcviz.model.explain.failure.diagnose import failed_steps


def opening(trace: Trace, pool: int | None = None) -> tuple[int, int]:
    """The pool and the step of the first failed request; of the peak of the first pool where none failed.

    A failure whose heap the file has comes before one that the file only names.

    Args:
        trace: the events.
        pool: look only for this pool; None: for all.
    """
    return first_failure(trace, pool) or (pool or 0, peak(trace, pool or 0))


def failing_pool(trace: Trace) -> int:
    """The index of the heap whose request failed first; of the first heap where none failed."""
    found = first_failure(trace) if len(trace.origin.pools) > 1 else None
    return 0 if found is None else found[0]


def first_failure(trace: Trace, pool: int | None = None) -> tuple[int, int] | None:
    """The pool and the step of the first failed request; None where none failed.

    As for `opening`, which also finds the peak and so may read the whole trace.
    """
    steps = failed_steps(trace, pool)
    if not steps:
        return None
    bare = {each.event for each in recorded_failures(trace.origin.details) if not each.has_heap}
    step = next((step for step in steps if step - 1 not in bare), steps[0])
    return int(trace.read(step - 1, step)["pool"][0]), step
