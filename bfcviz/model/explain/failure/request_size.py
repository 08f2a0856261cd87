"""An estimate of the batch size that would fit, from the bytes in use and the request."""

import re
from math import floor
from typing import Final

from bfcviz.model.explain.failure.diagnosis import Advice, AdviceKind, Diagnosis, Verdict
from bfcviz.units import format_bytes

_SHAPE: Final = re.compile(r"\[\s*(\d+)\s*,")
"""The first of several dimensions in a printed shape, such as `shape[128,64,32,32]`."""


def batch_advice(found: Diagnosis) -> Advice | None:
    """The shares of the batch size that bound what fits, as an estimate.

    The upper bound takes all memory in use as proportional to the batch size, the lower one only this request. The true
    share lies between, because weights do not grow with the batch. If the free memory is not in one chunk, a request
    must fit the largest free chunk; so it must if all memory in use would fit the capacity, for then only its places
    are in the way.
    """
    if found.verdict in {Verdict.UNKNOWN, Verdict.NO_FAILURE, Verdict.REFUSED} or found.event is None:
        return None
    total, capacity = found.bytes_in_use + found.rounded, _capacity(found)
    fits = max(found.largest_free_chunk, found.room or 0)
    if capacity <= 0 or fits <= 0:
        return None
    low = fits / found.rounded
    is_scattered = found.verdict is Verdict.FRAGMENTATION or capacity >= total
    high = low if is_scattered else max(low, capacity / total)
    return Advice(
        AdviceKind.BATCH_SIZE, _text(found, low, high, fits), {"least": low, "most": high, "fits": fits}
    )


def _capacity(found: Diagnosis) -> int:
    return found.pool_bytes if found.bytes_limit is None else found.bytes_limit


def _text(found: Diagnosis, low: float, high: float, fits: int) -> str:
    shares = _range(floor(100 * low), floor(100 * high))
    shape = _SHAPE.search(found.recorded.tensor) or _SHAPE.search(found.label)
    first = int(shape[1]) if shape else 0
    batches = ""
    if floor(first * high) > 0:
        numbers = _range(floor(first * low), floor(first * high))
        batches = f" If the first dimension of the tensor, {first:,}, is the batch: {numbers}."
    how = f"a request of at most {format_bytes(fits)} fits, {format_bytes(found.rounded)} were needed"
    if high > low:
        how += (
            f"; if all {format_bytes(found.bytes_in_use)} in use shrink with the batch, "
            f"{format_bytes(_capacity(found))} are enough for the upper share"
        )
    return f"Reduce the batch size to {shares} %, an estimate: {how}.{batches}"


def _range(low: int, high: int) -> str:
    """Two bounds as words; a lower one that is far off is left out."""
    if low == high:
        return f"about {low:,}"
    return f"{low:,} to {high:,}" if 10 * low > high else f"at most {high:,}"
