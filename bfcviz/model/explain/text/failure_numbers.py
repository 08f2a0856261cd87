"""The numbers of a failed request as rows of its report: a name, and what the file says."""

from typing import Final

from bfcviz.model.explain.failure.diagnosis import Diagnosis, Verdict
from bfcviz.model.explain.failure.settings import Family
from bfcviz.model.explain.text.short_names import counted, cut
from bfcviz.units import format_bytes

_REGIONS_SHOWN: Final = 5
_UNKNOWN: Final = "unknown"
_WIDTH: Final = 24  # characters of a name in the report


def recorded_rows(found: Diagnosis) -> list[str]:
    """What else the file says: the operation, the tensor, the message."""
    recorded = found.recorded
    rows = [("operation", recorded.op), ("tensor", recorded.tensor), ("message", recorded.message)]
    return [line for name, text in rows if text for line in _row(name, cut(" ".join(text.split())))]


def size_rows(found: Diagnosis) -> list[str]:
    """The sizes of the heap and of the device; `unknown` for those that the file cannot give."""
    if not found.recorded.has_heap:
        return _row("limit", _limit(found))
    largest = _size(found.largest_free_chunk if found.knows("largest_free_chunk") else None)
    share = f", external fragmentation {found.external_fragmentation:.3f}"
    shows_share = found.knows("largest_free_chunk", "external_fragmentation")
    pool = _amount(found, ("pool_bytes", found.pool_bytes), ("regions", found.regions.count), "region")
    used = _amount(
        found, ("bytes_in_use", found.bytes_in_use), ("chunks_in_use", found.chunks_in_use), "chunk"
    )
    free = _amount(found, ("free_bytes", found.free_bytes), ("chunks_free", found.free_chunks), "chunk")
    return [
        *_row("limit", _limit(found)),
        *_row("pool", pool),
        *_row("in use", used),
        *_row("device, by its driver", _device(found)),
        *_row("free in the pool", free),
        *_row("largest free chunk", largest + share * shows_share),
    ]


def _limit(found: Diagnosis) -> str:
    total = found.recorded.device_total
    if found.settings.family is Family.TORCH and found.bytes_limit is None and total is not None:
        return f"that of the device, {format_bytes(total)}, unless the program set a fraction of it"
    return _size(found.bytes_limit)


def _device(found: Diagnosis) -> str:
    if found.device_used is None:
        return "not in the file"
    return f"{format_bytes(found.device_used)} in use of {format_bytes(found.recorded.device_total or 0)}"


def _amount(found: Diagnosis, size: tuple[str, int], count: tuple[str, int], what: str) -> str:
    """Bytes and the number of things that they are in, as far as the file gives them."""
    if not found.knows(size[0]):
        return _UNKNOWN
    number = f" in {counted(count[1], what)}" if found.knows(count[0]) else ""
    return f"{format_bytes(size[1])}{number}"


def waste_row(found: Diagnosis) -> list[str]:
    """Bytes in use that were not requested."""
    if found.wasted is None:
        return _row("wasted", "unknown: the file does not say what was requested")
    helps = found.verdict is not Verdict.NO_FAILURE and found.wasted >= found.rounded
    enough = ", which alone would have been enough" if helps else ""
    return _row("wasted", f"{format_bytes(found.wasted)} in use that were not requested{enough}")


def region_row(found: Diagnosis) -> list[str]:
    """The wholly free regions; no row where there are none."""
    free = found.regions.wholly_free
    if not free or found.regions.count < 2:
        return []
    shown = ", ".join(f"{format_bytes(size)} at {address:#x}" for address, size in free[:_REGIONS_SHOWN])
    more = f", and {len(free) - _REGIONS_SHOWN:,} more" if len(free) > _REGIONS_SHOWN else ""
    return _row("wholly free regions", f"{shown}{more}")


def _size(number: int | None) -> str:
    return _UNKNOWN if number is None else format_bytes(number)


def _row(name: str, text: str) -> list[str]:
    return [f"  {name:<{_WIDTH}}{text}"]
