"""A search in plain words."""

from bfcviz.model.explain.search import Cut, Search, Taken
from bfcviz.model.explain.text.short_names import short_address
from bfcviz.units import format_bytes


def search_words(search: Search) -> str:
    """Two short sentences, where it looked and what it took, and why that was split or not; a third if odd."""
    told = [f"{_asked(search)}: {_looked(search)}."]
    if search.passed_over:
        told.append(_passed_over(search.passed_over))
    if search.taken is not None:
        told.append(_cutting(search, search.taken))
    return " ".join(told)


def _asked(search: Search) -> str:
    more = search.rounded - search.requested
    asked = format_bytes(search.requested)
    if asked == format_bytes(search.rounded):
        asked = f"{more} B less"
    rounded = f" ({asked}, rounded up)" if more else ""
    return f"Looked for {format_bytes(search.rounded)}{rounded} from bin {search.first_bin} up"


def _looked(search: Search) -> str:
    taken = search.taken
    if taken is None or search.extended or search.released:
        return f"{_nothing(search, sum(search.free_chunks), 'there')}{_growth(search)}"
    here = search.free_chunks[taken.bin - search.first_bin] if taken.bin >= search.first_bin else 0
    if taken.bin == search.first_bin:
        small = f", {search.too_small} of them too small" if search.too_small else ""
        return f"{_best(taken, here, 'that bin')}{small}"
    below = search.free_chunks[:-1]
    bins = f"bin {search.first_bin}"
    if len(below) > 1:
        bins = f"bins {search.first_bin} to {search.last_bin - 1}"
    best = _best(taken, here, f"bin {taken.bin}")
    return f"{_nothing(search, sum(below), f'in {bins}')}; {best}"


def _nothing(search: Search, chunks: int, where: str) -> str:
    """That some bins were of no use."""
    if not chunks:
        return f"nothing is free {where}"
    fitting = chunks - search.too_small
    if chunks == 1:
        return f"the one free chunk {where} {'was not taken' if fitting else 'is too small'}"
    if fitting:
        return f"none of the {chunks:,} free chunks {where} was taken"
    return f"all {chunks:,} free chunks {where} are too small"


def _growth(search: Search) -> str:
    """What happened when nothing was taken, and what came of it."""
    told = ""
    if search.released:
        regions = "region" if search.released == 1 else "regions"
        told += f"; {search.released} wholly free {regions} went back to the sub-allocator"
    told += f"; the pool grew by {format_bytes(search.extended)}" if search.extended else ""
    if search.taken is not None:
        return f"{told}; then it took {_place(search.taken)}, in bin {search.taken.bin}"
    return f"{told}; still nothing fits" if search.extended else f"{told}; the pool did not grow"


def _best(taken: Taken, chunks: int, where: str) -> str:
    if chunks == 1:
        return f"it took the one free chunk in {where}, {_place(taken)}"
    return f"it took the best fit of {chunks:,} free chunks in {where}, {_place(taken)}"


def _place(taken: Taken) -> str:
    return f"{short_address(taken.address)} ({format_bytes(taken.size)})"


def _passed_over(chunks: int) -> str:
    if chunks == 1:
        return "1 free chunk that fits was passed over: an alignment or a timestamp can rule it out."
    return f"{chunks:,} free chunks that fit were passed over: an alignment or a timestamp can rule them out."


def _cutting(search: Search, taken: Taken) -> str:
    padding = ""
    if taken.padding:
        padding = f"{format_bytes(taken.padding)} of alignment padding stay free before it. "
    return padding + _CUTS[taken.cut](search, taken)


def _exact(_: Search, __: Taken) -> str:
    return "Nothing is left over to split off."


def _halves(_: Search, taken: Taken) -> str:
    return f"It was split, being at least twice the request: {format_bytes(taken.rest)} stay free."


def _waste(search: Search, taken: Taken) -> str:
    return (
        f"It was split: the {format_bytes(taken.rest)} left over reach the limit for waste, "
        f"{format_bytes(search.max_waste or 0)}."
    )


def _whole(search: Search, taken: Taken) -> str:
    known = "" if search.max_waste is None else f" and the limit for waste, {format_bytes(search.max_waste)}"
    return f"It was not split: the {format_bytes(taken.rest)} left over are less than the request{known}."


def _not_shown(_: Search, taken: Taken) -> str:
    done = "was split" if taken.split else "was not split"
    return f"It {done}, with {format_bytes(taken.rest)} left over; the events do not show why."


_CUTS = {
    Cut.EXACT: _exact,
    Cut.HALVES: _halves,
    Cut.WASTE: _waste,
    Cut.WHOLE: _whole,
    Cut.NOT_SHOWN: _not_shown,
}
