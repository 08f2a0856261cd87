"""A trace looked at while it grows."""

from hypothesis import strategies as st


def grown(heap, cuts, running):
    """`running` after looks at the trace when it was as long as each of `cuts`, and at its end."""
    trace = heap.trace()
    whole = trace.events
    for cut in [*sorted(cut % (len(whole) + 1) for cut in cuts), len(whole)]:
        trace.events = whole[:cut]
        running.extend(trace)
    return trace


cuts = st.lists(st.integers(0, 10_000), max_size=4)


wanted_sizes = st.sampled_from([0, 512, 2000])
