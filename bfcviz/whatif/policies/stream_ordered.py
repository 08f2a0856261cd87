"""Stream-ordered pool: the driver's memory pool behind `cudaMallocAsync`.

Public (CUDA Programming Guide of December 2025, 4.3; `cudaMemPoolAttr` of the runtime API): the driver keeps up to the
release threshold (its default is 0), and returns more at the next synchronize. A free block serves its own stream at
once. It serves others where the driver knows or adds an order between the streams, which is the default.

Not public, and assumed here:

- The pool takes memory in whole segments, and returns those that are wholly free.
- It takes the smallest free block, of these the lowest, splits it, and merges neighbours.
- Sizes are multiples of 512 bytes. Pages are not mapped to other addresses.
- A request stream has no synchronize: one is assumed after each free. All is kept without a `release_threshold`, as
  PyTorch's backend `cudaMallocAsync` keeps it; but free segments are returned before a request fails.
- Without `reuse_across_streams` a block never serves another stream.
"""

from bfcviz.whatif.simulation import DriverMemory, SegmentCache, SimulatedPool

STREAM_ORDERED_UNIT = 512


class StreamOrderedPool(SimulatedPool):
    """One pool for all streams of a device.

    Args:
        driver: grants the segments.
        release_threshold: bytes that the pool keeps; None: all.
        reuse_across_streams: whether a block freed by one stream may serve another.
        segment: the pool grows by a multiple of this, in bytes.
    """

    def __init__(
        self,
        driver: DriverMemory,
        *,
        release_threshold: int | None = None,
        reuse_across_streams: bool = True,
        segment: int = 33554432,
    ) -> None:
        SimulatedPool.__init__(self, driver)
        self._keep = driver.limit if release_threshold is None else release_threshold
        self._shared = reuse_across_streams
        self._segment = segment
        self._caches: dict[int, SegmentCache] = {}
        self._owners: dict[int, SegmentCache] = {}

    def allocate(self, size: int, stream: int) -> int:
        """The address of a block; 0 if the memory does not suffice after all free segments were returned."""
        rounded = (size + STREAM_ORDERED_UNIT - 1) // STREAM_ORDERED_UNIT * STREAM_ORDERED_UNIT
        key = 0 if self._shared else stream
        cache = self._caches.get(key)
        if cache is None:
            cache = self._caches[key] = SegmentCache(self.new_free_blocks())
        address = cache.free.best_fit(rounded)
        if address == 0:
            address = self._grow(cache, rounded)
            if address == 0:
                return 0
        cache.take_front(address, rounded)
        self._owners[address] = cache
        self.occupy(address, rounded)
        return address

    def free(self, address: int) -> None:
        """Free the block at `address`; free segments beyond the release threshold are returned."""
        cache = self._owners.pop(address)
        start = cache.put(address, self.vacate(address))
        if self.driver.reserved > self._keep and start in cache.whole:
            cache.release(self.driver, start)

    def _grow(self, cache: SegmentCache, rounded: int) -> int:
        """A new segment; if it is refused, all free segments are returned first."""
        size = (rounded + self._segment - 1) // self._segment * self._segment
        address = self.driver.grant(size)
        if address == 0:
            self._trim()
            address = self.driver.grant(size)
        if address:
            cache.add_segment(address, size)
            cache.free.add(address, size)
        return address

    def _trim(self) -> None:
        for cache in self._caches.values():
            if cache.whole:
                cache.release_whole(self.driver)
