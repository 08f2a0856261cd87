"""The totals at a step: four tiles, bars on one scale, and all of them in one line."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from bfcviz.events.origin_details import facts_of, holds_only_states
from bfcviz.model import Model
from bfcviz.model.explain.failure.diagnosis import Diagnosis
from bfcviz.report.html.size_bars import SizeBar, size_bars
from bfcviz.units import format_bytes

_UNKNOWN: Final = "unknown"

Numbers = Mapping[str, int | None]
"""The totals by the names of `ModelStats`; None: unknown."""


def numbers_of(model: Model, failed: Diagnosis | None = None) -> Numbers:
    """The totals at the model's step. A number that the file states itself counts where the file has no history.

    Args:
        model: stands at the step.
        failed: the request that failed at this step: the file may say of it how much was wasted.
    """
    origin = model.trace.origin
    numbers: dict[str, int | None] = asdict(model.stats())
    is_state = holds_only_states(origin.details)
    for name, value in facts_of(origin.details, model.pool).items():
        if name in numbers and (value is None or (is_state and isinstance(value, int))):
            numbers[name] = value
    used = numbers["bytes_in_use"]
    if failed is not None and failed.wasted is not None and used is not None:
        numbers["requested_bytes_in_use"] = used - failed.wasted
    return numbers


def tiles(numbers: Numbers) -> str:
    """In use, free, largest free chunk and waste, each with a second number below it and its definition."""
    free, largest = _free(numbers)
    apart = None if free is None or largest is None else free - largest
    shown = [
        (
            "in use",
            numbers["bytes_in_use"],
            _share(numbers["bytes_in_use"], numbers["pool_bytes"], "of the pool"),
            "bytes of all chunks in use",
        ),
        ("free", free, _count(numbers["chunks_free"]), "bytes of all free chunks of the pool"),
        (
            "largest free chunk",
            largest,
            _share(apart, free, "fragmented"),
            "the largest request that fits now; fragmented (external) = 1 - largest free chunk / free",
        ),
        (
            "waste",
            _wasted(numbers),
            _share(_wasted(numbers), numbers["bytes_in_use"], "of in use"),
            "bytes of chunks in use that were not requested; the share is 1 - requested / in use",
        ),
    ]
    return "".join(
        f'<div class="tile" title="{meaning}"><span>{name}</span><b>{_size(value)}</b><span>{below or "&nbsp;"}'
        "</span></div>"
        for name, value, below, meaning in shown
    )


def bars(numbers: Numbers, asked: int | None, *, failed: bool) -> str:
    """The request (if there is one), the largest free chunk, free and wasted bytes on one scale."""
    request = [] if asked is None else [SizeBar("asked", asked, "asked failed" if failed else "asked")]
    return size_bars(
        [
            *request,
            SizeBar("largest free", numbers["largest_free_chunk"], "free"),
            SizeBar("free", numbers["free_bytes"], "free"),
            SizeBar("wasted", _wasted(numbers), "waste"),
        ]
    )


def totals_line(numbers: Numbers) -> str:
    """The totals in one line, with their definitions; those that the file cannot know are unknown."""
    free, largest, used, wasted = *_free(numbers), numbers["bytes_in_use"], _wasted(numbers)
    apart = None if free is None or largest is None else free - largest
    fragmentation, waste = _ratio(apart, free), _ratio(wasted, used)
    return (
        f"in use {_size(numbers['bytes_in_use'])}{_chunks(numbers['chunks_in_use'])} "
        f"(peak {_size(numbers['peak_bytes_in_use'])}) · "
        f"free {_size(numbers['free_bytes'])}{_chunks(numbers['chunks_free'])}, "
        f"largest {_size(numbers['largest_free_chunk'])} · "
        f"pool {_size(numbers['pool_bytes'])}, limit {_size(numbers['bytes_limit'])} · "
        f"external fragmentation {fragmentation} (1 - largest free chunk / free) · "
        f"internal {waste} (1 - requested / in use)"
    )


def _free(numbers: Numbers) -> tuple[int | None, int | None]:
    """The free bytes, and those of the largest free chunk."""
    return numbers["free_bytes"], numbers["largest_free_chunk"]


def _ratio(part: int | None, whole: int | None) -> str:
    """As in `timelines.fragmentation`: 0 of nothing."""
    if part is None or whole is None:
        return _UNKNOWN
    return f"{part / whole if whole else 0.0:.1%}"


def _wasted(numbers: Numbers) -> int | None:
    used, requested = numbers["bytes_in_use"], numbers["requested_bytes_in_use"]
    return None if used is None or requested is None else max(used - requested, 0)


def _share(part: int | None, whole: int | None, what: str) -> str:
    return "" if part is None or not whole else f"{part / whole:.1%} {what}"


def _size(value: int | None) -> str:
    return _UNKNOWN if value is None else format_bytes(value)


def _chunks(count: int | None) -> str:
    return f" {_count(count)}" if count is not None else ""


def _count(count: int | None) -> str:
    if count is None:
        return ""
    return "in 1 chunk" if count == 1 else f"in {count:,} chunks"
