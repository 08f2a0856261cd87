"""AllocatorOptions: options of a BFC heap, with TensorFlow's names."""

from dataclasses import dataclass

from bfcviz import native
from bfcviz.errors import InvalidRequest


@dataclass(frozen=True)
class AllocatorOptions:
    """Options of a BFC heap.

    Attributes:
        allow_growth: start with `first_region` and double the size with each region; otherwise the first region has
            the limit.
        garbage_collection: before a request fails, release wholly free regions and extend once more.
        fragmentation_fraction: split a chunk whose waste would reach this share of the memory limit. A chunk of at
            least twice the request is always split. 0 = split when the waste would reach 128 MiB.
        retry_s: seconds that a failed request waits for frees of other threads before it raises (TensorFlow's
            allow_retry_on_failure waits 10 s); 0 = do not wait.
        timestamps: number every free, and merge a freed chunk only after `set_safe_frontier` has passed its number.
        honour_alignment: keep alignments above 256 by splitting padding off the front of the chunk, as XLA's main
            branch does. False: only pass the alignment to the sub-allocator, as TensorFlow 2.21 does.
        first_region: bytes of the first region with allow_growth; at most the limit, rounded up to 256. TensorFlow
            up to 2.1 starts with 1 MiB (1048576 in its bfc_allocator.cc), from 2.7 on with 2 MiB.
        exact_growth: when the sub-allocator refuses, end with a request for exactly the rounded size. TensorFlow goes
            down by tenths and gives up below that size, without a request for it. Heaps that share a limit need it: a
            heap does not know what the others left.
    """

    allow_growth: bool = False
    garbage_collection: bool = False
    fragmentation_fraction: float = 0.0
    retry_s: float = 0.0
    timestamps: bool = False
    honour_alignment: bool = True
    first_region: int = native.FIRST_REGION
    exact_growth: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.fragmentation_fraction <= 1:
            raise InvalidRequest(
                f"fragmentation_fraction is {self.fragmentation_fraction}, but it is a share of the memory limit: "
                "give a number from 0 to 1"
            )
        if not 0 <= self.retry_s < float("inf"):
            raise InvalidRequest(f"retry_s is {self.retry_s}; give a finite number from 0 up")
        if not 1 <= self.first_region <= native.MAX_REQUEST:
            raise InvalidRequest(f"first_region is {self.first_region} bytes; give a number from 1 to 2^62")

    def max_waste(self, limit: int) -> int:
        """Bytes of waste at which a chunk is split; at least 1, so that an exact fit is never split."""
        if self.fragmentation_fraction == 0:
            return 128 << 20
        return max(int(self.fragmentation_fraction * limit), 1)
