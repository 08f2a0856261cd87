"""What a VLOG stream holds: heaps, and the operations of each."""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from bfcviz.importers.tensorflow.requests import ABSENT


class Act(Enum):
    """What a heap did."""

    ALLOCATE = "allocate"
    FREE = "free"
    FAIL = "fail"
    EXTEND = "extend"
    RELEASE = "release"


@dataclass(slots=True)
class VlogOperation:
    """One thing that a heap did.

    Attributes:
        order: its place in the log, in the order of the heap's lock.
        address: 0 if unknown or none.
        requested: bytes asked for; EXTEND: granted.
        bytes_in_use: after it; ABSENT if not logged.
        rounded: FAIL: the request after rounding; None if not logged.
        is_exact: FAIL: `requested` is not a printed size of three or four digits.
        is_soft: FAIL: the caller has another way without this memory.
    """

    act: Act
    order: int
    address: int = 0
    requested: int = 0
    label: int = 0
    thread: int = 0
    bytes_in_use: int = ABSENT
    rounded: int | None = None
    is_exact: bool = True
    is_soft: bool = False
    op: str = ""


@dataclass
class VlogHeap:
    """What the log holds of one heap.

    Attributes:
        name: of the allocator.
        writer: tag of its process.
        created: the log holds its creation.
        has_level_4: the log holds the address of each free.
        operations: in the order of the log.
        allocating: threads in the middle of an allocation, with its size.
    """

    name: str
    writer: str
    created: bool = False
    has_level_4: bool = False
    operations: list[VlogOperation] = field(default_factory=list)
    allocating: dict[str, str] = field(default_factory=dict)

    def unfinished_frees(self) -> list[VlogOperation]:
        """Frees that end a thread's part of the log, before the record with their address."""
        last = {each.thread: each for each in self.operations}
        frees = (each for each in last.values() if each.act is Act.FREE and not each.address)
        return list(frees) if self.has_level_4 else []


@dataclass
class VlogStream:
    """All heaps of a log.

    Attributes:
        heaps: in the order of their first records.
        times: ns of each record by `order`; the time before it where a record has none.
        threads: name of each thread by number, from 1.
        left_out: number of unusable records, by reason.
        uncertain_failures: failed requests that may have been optional ones.
        last_line: of the file, of the last record.
    """

    heaps: list[VlogHeap]
    times: list[int]
    threads: dict[int, str]
    left_out: Counter[str]
    uncertain_failures: int = 0
    last_line: int = 0
