"""One failed request of a log, with the dump of the heap that belongs to it."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from bfcviz.importers.bfc_log.printed_sizes import PrintedSize


class Stage(IntEnum):
    """The parts of a dump in their order."""

    HEADER = 0
    BINS = 1
    CHUNKS = 2
    SUMMARY = 3
    STATS = 4
    STRIP = 5


class BinLine(NamedTuple):
    """A line of one bin. Until 2017 (`only_free`) its counts are those of free chunks."""

    chunks: int
    used: int
    size: PrintedSize
    requested: PrintedSize
    only_free: bool


@dataclass
class ChunkLines:
    """The chunk lines of a dump, in the order of the file: one element of each list a line.

    Attributes:
        region: index of the region line before it, -1 before the first one.
        note: index in `notes`.
        notes: operation and tag of chunks; the first is none.
        impossible: lines whose chunk is empty or ends beyond the address space.
    """

    address: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    in_use: list[bool] = field(default_factory=list)
    region: list[int] = field(default_factory=list)
    note: list[int] = field(default_factory=list)
    notes: dict[tuple[str, str], int] = field(default_factory=lambda: {("", ""): 0})
    impossible: int = 0


@dataclass
class Dump:
    """What a log says of one failed request.

    Attributes:
        line, time: of its first record.
        name: of the allocator; "" where the log does not say it.
        writer: tag of the process.
        requested: as the warning prints it; None without a warning.
        rounded: the request after rounding, exact.
        exact: the request, exact.
        op, tensor, message: as in `RecordedFailure`.
        stage: of the last line.
        bins: by the smallest size of the bin.
        bin_for: the rounded request, as printed in the dump.
        regions: size of each region, by ascending address.
        summary: number of chunks in use by size.
        sum_in_use: their total.
        pool, limit, available, next_region: of the line about the pool, or of the statistics.
        growth: whether the pool may grow; None: unknown.
        stats: the statistics as printed.
        strip: the occupancy.
        central_gap: whether the heap serves requests from both ends.
        has_warning: whether a request failed; otherwise the log shows a heap for another reason, or its start is lost.
        repeated: lines of bins and sizes that occur twice.
    """

    line: int
    time: int | None
    name: str = ""
    writer: str = ""
    requested: PrintedSize | None = None
    rounded: int | None = None
    exact: int | None = None
    op: str = ""
    tensor: str = ""
    message: str = ""
    stage: Stage = Stage.HEADER
    bins: dict[int, BinLine] = field(default_factory=dict)
    bin_for: PrintedSize | None = None
    regions: list[int] = field(default_factory=list)
    chunks: ChunkLines = field(default_factory=ChunkLines)
    summary: dict[int, int] = field(default_factory=dict)
    sum_in_use: PrintedSize | None = None
    pool: PrintedSize | None = None
    limit: PrintedSize | None = None
    available: PrintedSize | None = None
    next_region: PrintedSize | None = None
    growth: bool | None = None
    stats: dict[str, PrintedSize] = field(default_factory=dict)
    strip: str = ""
    has_warning: bool = False
    repeated: int = 0

    @property
    def ended(self) -> bool:
        """Whether the end of the dump is in the log."""
        return self.stage >= Stage.STATS

    @property
    def failed(self) -> bool:
        """Whether the log says that a request failed here."""
        return self.has_warning or self.bin_for is not None or self.exact is not None or bool(self.tensor)


class Note(NamedTuple):
    """A line beside the dumps: a request that may fail, a garbage collection, a refusal of the driver.

    Attributes:
        line, time: of the record.
        name: of the allocator, "" where the line does not say it.
        text: what happened.
        size: bytes, 0 where there are none.
        before: number of the dump that begins next.
    """

    line: int
    time: int | None
    name: str
    writer: str
    text: str
    size: int
    before: int
