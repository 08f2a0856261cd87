"""AllocatorOptions: how a heap behaves, in TensorFlow's names."""

from dataclasses import dataclass

from bfcviz.errors import InvalidRequest


@dataclass(frozen=True)
class AllocatorOptions:
    """Options of a BFC heap.

    Attributes:
        allow_growth: begin with 2 MiB and double with each region; otherwise the first region takes the limit.
        garbage_collection: before failing, release wholly free regions and extend once more.
        fragmentation_fraction: split a chunk whose waste would reach this share of the memory limit, besides the
            rule that halves are always split off; 0 = when the waste would reach 128 MiB.
        retry_s: how long a failed request waits for another thread's free before it raises (TensorFlow's
            allow_retry_on_failure waits 10 s); 0 = not at all.
        timestamps: number every free, and merge a freed chunk only once `set_safe_frontier` has passed its number.
        honour_alignment: alignment above 256 is kept, by cutting padding off the chunk's front, as XLA's main
            branch does. False: as TensorFlow 2.21, which passes it to the sub-allocator only.
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
                f"fragmentation_fraction {self.fragmentation_fraction} was asked for; it is a share of the memory "
                "limit: give a number from 0 to 1"
            )
        if not 0 <= self.retry_s < float("inf"):
            raise InvalidRequest(f"retry_s {self.retry_s} was asked for; give a finite number from 0 up")

    def max_waste(self, limit: int) -> int:
        """Bytes of waste from which a chunk is split; at least 1, so that an exact fit is never split."""
        if self.fragmentation_fraction == 0:
            return 128 << 20
        return max(int(self.fragmentation_fraction * limit), 1)
