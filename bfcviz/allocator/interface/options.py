"""AllocatorOptions: options of a BFC heap, with TensorFlow's names."""

from dataclasses import dataclass

from bfcviz.errors import InvalidRequest


@dataclass(frozen=True)
class AllocatorOptions:
    """Options of a BFC heap.

    Attributes:
        allow_growth: start with 2 MiB and double the size with each region; otherwise the first region has the limit.
        garbage_collection: before a request fails, release wholly free regions and extend once more.
        fragmentation_fraction: split a chunk whose waste would reach this share of the memory limit. A chunk of at
            least twice the request is always split. 0 = split when the waste would reach 128 MiB.
        retry_s: seconds that a failed request waits for frees of other threads before it raises (TensorFlow's
            allow_retry_on_failure waits 10 s); 0 = do not wait.
        timestamps: number every free, and merge a freed chunk only after `set_safe_frontier` has passed its number.
        honour_alignment: keep alignments above 256 by splitting padding off the front of the chunk, as XLA's main
            branch does. False: only pass the alignment to the sub-allocator, as TensorFlow 2.21 does.
    """

    allow_growth: bool = False
    garbage_collection: bool = False
    fragmentation_fraction: float = 0.0
    retry_s: float = 0.0
    timestamps: bool = False
    honour_alignment: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.fragmentation_fraction <= 1:
            raise InvalidRequest(
                f"fragmentation_fraction is {self.fragmentation_fraction}, but it is a share of the memory limit: "
                "give a number from 0 to 1"
            )
        if not 0 <= self.retry_s < float("inf"):
            raise InvalidRequest(f"retry_s is {self.retry_s}; give a finite number from 0 up")

    def max_waste(self, limit: int) -> int:
        """Bytes of waste at which a chunk is split; at least 1, so that an exact fit is never split."""
        if self.fragmentation_fraction == 0:
            return 128 << 20
        return max(int(self.fragmentation_fraction * limit), 1)
