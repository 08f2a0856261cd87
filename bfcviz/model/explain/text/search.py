"""Sentences about the search for a free chunk."""

from bfcviz.model.explain.search import Cut, Search, Taken
from bfcviz.model.explain.text.short_names import short_address
from bfcviz.units import format_bytes


def search_words(search: Search) -> str:
    """Two short sentences: where the search looked and what it took, and why that chunk was split or not.

    A sentence on chunks that the search skipped stands between them where there are any.
    """
    sentences = [f"{_start(search)}: {_result(search)}."]
    if search.passed_over:
        sentences.append(_passed_over(search.passed_over))
    if search.taken is not None:
        sentences.append(_split(search, search.taken))
    return " ".join(sentences)


def _start(search: Search) -> str:
    size = format_bytes(search.rounded)
    requested = format_bytes(search.requested)
    if requested == size:
        requested = f"{search.requested:,} B"
    rounded = f" ({requested} rounded up)" if search.rounded > search.requested else ""
    return f"The search for {size}{rounded} started in bin {search.first_bin}"


def _result(search: Search) -> str:
    taken = search.taken
    if taken is None or search.extended or search.released:
        bins = _bins(search.first_bin, search.last_bin)
        return f"{_none_taken(search, sum(search.free_chunks), bins)}{_growth(search)}"
    here = search.free_chunks[taken.bin - search.first_bin] if taken.bin >= search.first_bin else 0
    if taken.bin == search.first_bin:
        small = f", {search.too_small} of them too small" if search.too_small else ""
        return f"{_best_fit(taken, here, search.first_bin)}{small}"
    below = _none_taken(search, sum(search.free_chunks[:-1]), _bins(search.first_bin, search.last_bin - 1))
    return f"{below}; {_best_fit(taken, here, taken.bin)}"


def _bins(first: int, last: int) -> str:
    return f"bins {first} to {last}" if last > first else f"bin {first}"


def _none_taken(search: Search, chunks: int, bins: str) -> str:
    """Why the search took no chunk of these bins."""
    if not chunks:
        return f"{bins} {'have' if bins.startswith('bins') else 'has'} no free chunk"
    fitting = chunks - search.too_small
    if chunks == 1:
        return f"the only free chunk in {bins} {'was not taken' if fitting else 'is too small'}"
    if fitting:
        return f"none of the {chunks:,} free chunks in {bins} was taken"
    return f"all {chunks:,} free chunks in {bins} are too small"


def _growth(search: Search) -> str:
    """How the heap made room when no chunk was taken, and the result."""
    steps = ""
    if search.released:
        regions = "region" if search.released == 1 else "regions"
        steps += f"; the heap released {search.released} free {regions} to the sub-allocator"
    steps += f"; the pool grew by {format_bytes(search.extended)}" if search.extended else ""
    if search.taken is not None:
        return f"{steps}; then the search took {_place(search.taken)} in bin {search.taken.bin}"
    return f"{steps}; still no chunk fits" if search.extended else f"{steps}; the pool did not grow"


def _best_fit(taken: Taken, chunks: int, number: int) -> str:
    if chunks == 1:
        return f"it took the only free chunk in bin {number}, {_place(taken)}"
    return f"it took the best fit of {chunks:,} free chunks in bin {number}, {_place(taken)}"


def _place(taken: Taken) -> str:
    return f"{short_address(taken.address)} ({format_bytes(taken.size)})"


def _passed_over(chunks: int) -> str:
    if chunks == 1:
        return "1 free chunk that fits was skipped: an alignment or a timestamp can exclude it."
    return f"{chunks:,} free chunks that fit were skipped: an alignment or a timestamp can exclude them."


def _split(search: Search, taken: Taken) -> str:
    padding = ""
    if taken.padding:
        padding = f"{format_bytes(taken.padding)} of alignment padding stay free before it. "
    return padding + _SPLIT_REASONS[taken.cut](search, taken)


def _exact(_: Search, __: Taken) -> str:
    return "The chunk fits exactly and was not split."


def _halves(_: Search, taken: Taken) -> str:
    return f"The chunk was split, as it has at least twice the request: {format_bytes(taken.rest)} stay free."


def _waste(search: Search, taken: Taken) -> str:
    return (
        f"The chunk was split, as the {format_bytes(taken.rest)} left over reach the waste limit of "
        f"{format_bytes(search.max_waste or 0)}."
    )


def _whole(search: Search, taken: Taken) -> str:
    limit = "" if search.max_waste is None else f" and the waste limit of {format_bytes(search.max_waste)}"
    return (
        f"The chunk was not split: the {format_bytes(taken.rest)} left over are less than the request{limit}."
    )


def _not_shown(_: Search, taken: Taken) -> str:
    verb = "was split" if taken.split else "was not split"
    return f"The chunk {verb}, with {format_bytes(taken.rest)} left over; the events do not show why."


_SPLIT_REASONS = {
    Cut.EXACT: _exact,
    Cut.HALVES: _halves,
    Cut.WASTE: _waste,
    Cut.WHOLE: _whole,
    Cut.NOT_SHOWN: _not_shown,
}
