"""Whether a request would fit, as one short sentence."""

from typing import Final

import numpy as np

from bfcviz.events.labels import Labels
from bfcviz.model.explain.failure.diagnosis import Verdict
from bfcviz.model.explain.fit import Fit
from bfcviz.model.explain.text.short_names import counted, cut, short_address
from bfcviz.model.holders.holder_paths import place_in_code
from bfcviz.units import format_bytes

_NAMED: Final = 2  # names of one sentence


def fit_sentence(answer: Fit, labels: Labels) -> str:
    """What takes the request; or what must be freed first, and how much fits then."""
    found = answer.found
    size = format_bytes(found.rounded)
    if not answer.is_known:
        return f"The file does not say whether {size} would fit."
    if answer.fits:
        return f"{size} would fit: {_takers(answer)}."
    if answer.grows:
        return f"{size} would fit if the pool grows: {_growth(answer)}."
    return f"{size} {_missed(answer, labels)}."


def _missed(answer: Fit, labels: Labels) -> str:
    """Why it does not fit, and what to free."""
    found, miss = answer.found, answer.miss
    verb = "did not fit" if answer.failed else "would not fit"
    if found.verdict is Verdict.ABOVE_LIMIT:
        return f"can never fit: the limit is {format_bytes(found.bytes_limit or 0)}"
    if miss is None:
        return f"{verb}: no region is so large, the largest has {format_bytes(found.regions.largest)}"
    if not len(answer.blockers):
        return f"{verb}: neighbouring free chunks of {format_bytes(miss.size)} have not merged"
    return f"{verb}: free {_blockers(answer, labels)}: then {format_bytes(miss.size)} fit"


def chunk_name(chunk: np.void, labels: Labels) -> str:
    """The name of a chunk in use: its label, or the place in the code that allocated it."""
    label = labels[int(chunk["label"])]
    return cut(label.name) or cut(place_in_code(label.details.get("stack", ""))) or "unnamed memory"


def _takers(answer: Fit) -> str:
    best = answer.takers[0]
    where = f"{short_address(int(best['address']))} ({format_bytes(int(best['size']))})"
    others = len(answer.takers) - 1
    return f"the best fit is {where}" + (f", {others:,} more would take it" if others else "")


def _growth(answer: Fit) -> str:
    room, free = answer.found.room or 0, answer.found.regions.free_bytes
    if room >= answer.found.rounded:
        return f"no free chunk is large enough, the limit leaves {format_bytes(room)}"
    return (
        f"it first releases its free regions, {format_bytes(free)}, and the limit leaves {format_bytes(room)}"
    )


def _blockers(answer: Fit, labels: Labels) -> str:
    """The names of the blockers with their bytes, those with the most bytes first."""
    sizes: dict[str, list[int]] = {}
    for number in np.unique(answer.blockers["label"]):
        mine = answer.blockers[answer.blockers["label"] == number]
        sizes.setdefault(chunk_name(mine[0], labels), []).extend(mine["size"].tolist())
    ranked = sorted(sizes.items(), key=lambda item: -sum(item[1]))
    named = [_named(name, held) for name, held in ranked[:_NAMED]]
    rest = [size for _, held in ranked[_NAMED:] for size in held]
    if rest:
        named.append(f"{counted(len(rest), 'other chunk')} ({format_bytes(sum(rest))})")
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def _named(name: str, sizes: list[int]) -> str:
    count = f" in {counted(len(sizes), 'chunk')}" if len(sizes) > 1 else ""
    return f"{name} ({format_bytes(sum(sizes))}{count})"
