"""What a search looked for and found, as plain data; see `search`."""

from dataclasses import dataclass
from enum import StrEnum


class Cut(StrEnum):
    """Why a chunk was split or not."""

    EXACT = "exact"  # not: nothing is left over
    HALVES = "halves"  # split: it is at least twice the rounded request
    WASTE = "waste"  # split: what is left over reaches the limit for waste
    WHOLE = "whole"  # not: what is left over is less than both
    NOT_SHOWN = "not shown"  # the rule says otherwise, or depends on options the trace does not have


@dataclass(frozen=True)
class Taken:
    """The chunk a search ended with, in bytes.

    Attributes:
        address, size, bin: as it was when found.
        padding: cut off its front to align what follows.
        rest: left over behind what was asked for; in a chunk of its own if split.
        split: whether it is.
        cut: why.
    """

    address: int
    size: int
    bin: int
    padding: int
    rest: int
    split: bool
    cut: Cut


@dataclass(frozen=True)
class Search:
    """What one request looked for and found.

    Attributes:
        event: index of the event that ended it, an ALLOCATE or OOM.
        requested, rounded: bytes asked for, and those rounded up to a multiple of 256.
        first_bin, last_bin: the bins looked at before the pool was extended, if it was.
        free_chunks: how many free chunks were in each of these bins.
        too_small: how many of those in the first bin do not fit.
        passed_over: chunks that fit and that the rule takes before the one taken. An alignment or a timestamp
            rules them out, and no event says which.
        extended: bytes by which the pool was extended because nothing fitted.
        released: wholly free regions given back to make room for that.
        max_waste: bytes left over from which a chunk is split in any case; None where the trace does not know.
        taken: None where the request failed.
    """

    event: int
    requested: int
    rounded: int
    first_bin: int
    last_bin: int
    free_chunks: tuple[int, ...]
    too_small: int
    passed_over: int
    extended: int
    released: int
    max_waste: int | None
    taken: Taken | None
