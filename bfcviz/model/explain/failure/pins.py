"""Pins: the chunks in use of a run, with who holds them, since when, and until when."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.events.event_source import BLOCK
from bfcviz.events.origin_details import STATE_ONLY
from bfcviz.events.schema import Kind
from bfcviz.events.trace import Trace
from bfcviz.model.lifetimes.lifetimes import born_of, times_of
from bfcviz.model.state.model import Model

MOST: Final = 1000
"""Chunks in use of one run that are named; all of them are counted."""

_LOOK: Final = 8 * BLOCK  # later events that are searched for their FREEs


@dataclass(frozen=True)
class Pin:
    """A chunk in use between free chunks.

    Attributes:
        address, size: its start address and its bytes.
        requested: bytes that its owner asked for; its size where the trace does not have it.
        label: the name of its allocation, "" for none.
        details: what else the label says, such as `stack` and `shape`.
        stream: number of its stream, 0 for none.
        age: events since it was allocated; None where the trace has no history.
        age_s: the same in seconds; None also where the trace has no times.
        freed: index of the event that frees it later; None where none is known.
    """

    address: int
    size: int
    requested: int
    label: str
    details: dict[str, str]
    stream: int
    age: int | None
    age_s: float | None
    freed: int | None


def pins_of(model: Model, chunks: NDArray[np.void]) -> tuple[Pin, ...]:
    """The pins for some chunks of the model's step; those in use, at most `MOST`, by address.

    Args:
        model: stands at the step.
        chunks: of CHUNK, by ascending address.
    """
    trace, step = model.trace, model.step
    rows = chunks[chunks["in_use"]][:MOST]
    born = rows["born"]
    ages: list[int | None] = [None] * len(rows)
    seconds: list[float | None] = [None] * len(rows)
    freed: list[int | None] = [None] * len(rows)
    if len(rows) and trace.origin.details.get("history") != STATE_ONLY:
        ages = [step - 1 - seq if seq >= trace.first else None for seq in born.tolist()]
        seconds = _seconds(trace, step, born)
        freed = _freed(trace, model.pool, step, born)
    return tuple(
        Pin(
            address=int(row["address"]),
            size=int(row["size"]),
            requested=int(row["requested"]),
            label=trace.labels[int(row["label"])].name,
            details=dict(trace.labels[int(row["label"])].details),
            stream=int(row["stream"]),
            age=age,
            age_s=age_s,
            freed=free,
        )
        for row, age, age_s, free in zip(rows, ages, seconds, freed, strict=True)
    )


def _seconds(trace: Trace, step: int, born: NDArray[np.uint64]) -> list[float | None]:
    """Seconds from each ALLOCATE to the step."""
    now = int(trace.read(step - 1, step)["time"][0])
    times = times_of(trace, born)
    if now == 0 and not times.any():  # the file has no times
        return [None] * len(born)
    known = (born >= trace.first) & (times <= now)
    return [
        (now - time) / 1e9 if is_known else None for time, is_known in zip(times.tolist(), known, strict=True)
    ]


def _freed(trace: Trace, pool: int, step: int, born: NDArray[np.uint64]) -> list[int | None]:
    """The FREE of each allocation, among the next events."""
    found: dict[int, int] = {}
    wanted = set(born.tolist())
    for block in trace.blocks(step, min(len(trace), step + _LOOK)):
        at = np.flatnonzero((block["kind"] == Kind.FREE) & (block["pool"] == pool))
        begun = born_of(block, at)
        mine = np.isin(begun, born)
        found |= dict(zip(begun[mine].tolist(), block["seq"][at[mine]].tolist(), strict=True))
        if len(found) == len(wanted):
            break
    return [found.get(seq) for seq in born.tolist()]
