"""A trace looked at while it grows."""

from hypothesis import strategies as st


def grown(heap, cuts, running):
    """`running` after looks at the trace when it was as long as each of `cuts`, and at its end."""
    trace = heap.trace()
    for _ in lengths(trace, cuts):
        running.extend(trace)
    return trace


def lengths(trace, cuts):
    """The lengths of the trace, which is as long as each of `cuts`, and at its end."""
    whole = trace.events
    for cut in [*sorted(cut % (len(whole) + 1) for cut in cuts), len(whole)]:
        trace.events = whole[:cut]
        yield cut


cuts = st.lists(st.integers(0, 10_000), max_size=4)


wanted_sizes = st.sampled_from([0, 512, 2000])
