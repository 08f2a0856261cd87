"""PyTorch's caching allocator: blocks cached per stream and kind, in segments that only a refusal returns.

The sizes and rules are those of `bfcviz.formats.torch`; this file repeats them only where its loops must be fast.
`release_cached_blocks`, `release_available_cached_blocks` and `garbage_collect_cached_blocks` are from the same source.
Not simulated: private pools (CUDA graphs), and blocks that wait for another stream.
"""

from array import array
from bisect import bisect_right, insort

from bfcviz import native
from bfcviz.errors import InvalidRequest
from bfcviz.formats.torch import (
    LARGE_SEGMENT,
    OWN_SEGMENT,
    SEGMENT_UNIT,
    SMALL,
    SMALL_SEGMENT,
    UNIT,
    Rules,
    divisions_of,
)
from bfcviz.whatif.driver_memory import DriverMemory
from bfcviz.whatif.free_blocks import FreeBlocks
from bfcviz.whatif.simulated_pool import SegmentCache, SimulatedPool

MOST_ADDRESSES = 1 << 44
"""Bytes of addresses of a segment where no size of the device is given: 9/8 of that would leave the address space."""


class ExpandableSegments:
    """PyTorch's expandable segments of one stream and kind: reserved addresses, which get memory in whole granules.

    ::

        [ in use | free | in use | unmapped | in use | free | unmapped ]   another segment: [ in use | unmapped ]

    Source of the rules: c10/cuda/CUDACachingAllocator.cpp of PyTorch at commit 001074d25084: `find_expandable_block`,
    `map_block`, `unmap_block`, `release_expandable_segment`, and the part of `get_free_block` about growth. PyTorch
    reserves addresses of 9/8 of the device's memory for a segment. It reserves another segment where no place has
    enough addresses, and returns the addresses of a segment without memory when it unmaps free memory.

    Args:
        driver: maps the memory; its limit is the memory of the device.
        free: the mapped free blocks, recent from one granule on; this changes them.
        granule: bytes that are mapped and unmapped as one.
    """

    def __init__(self, driver: DriverMemory, free: FreeBlocks, granule: int) -> None:
        self._driver = driver
        self._free = free
        self._granule = granule
        addresses = min(driver.limit + driver.limit // 8, MOST_ADDRESSES)
        self._segment_size = (addresses + granule - 1) // granule * granule
        self._segments: list[int] = []  # the first address of each segment, ascending
        self._unmapped = FreeBlocks()

    def least_growing(self, address: int) -> int:
        """In expandable segments: the block at `address`; if it can grow, a larger one that cannot grow as far."""
        while address + self._free.sizes[address] in self._unmapped.sizes:
            larger = self._free.next_larger(address)
            if larger == 0 or self._could_become(larger) >= self._could_become(address):
                break
            address = larger
        return address

    def grow(self, size: int) -> int:
        """Let an expandable segment grow for a block of at least `size` bytes; returns its address, 0 if refused."""
        if size > self._segment_size:
            return 0
        address = self._lowest_place(size) or self._reserve()
        if address in self._unmapped.sizes:
            address = self._map(address, min(self._unmapped.sizes[address], size))
        while address and self._free.sizes[address] < size:
            there = self._free.sizes[address]
            end = address + there
            address = self._map(end, min(self._unmapped.sizes[end], size - there))
        return address

    def unmap_free(self) -> None:
        """Unmap each wholly free granule of expandable segments: only blocks added since the last call can have one."""
        for address in self._free.take_recent():
            size = self._free.sizes[address]
            base = self._segments[bisect_right(self._segments, address) - 1]
            low = base + (address - base + self._granule - 1) // self._granule * self._granule
            high = base + (address + size - base) // self._granule * self._granule
            if low < high:
                self._unmap(address, size, low, high)

    def _reserve(self) -> int:
        """The first address of a new segment."""
        address = self._driver.reserve(self._segment_size)
        insort(self._segments, address)
        self._unmapped.add(address, self._segment_size)
        return address

    def _could_become(self, address: int) -> int:
        size = self._free.sizes[address]
        return size + self._unmapped.sizes.get(address + size, 0)

    def _lowest_place(self, size: int) -> int:
        """In expandable segments: the lowest start of free and unmapped memory of at least `size` bytes together."""
        for place in sorted(self._unmapped.sizes):
            start = self._free.starts.get(place, place)
            end = start
            while end - start < size:
                more = self._free.sizes.get(end, 0) or self._unmapped.sizes.get(end, 0)
                if more == 0:
                    break
                end += more
            if end - start >= size:
                return start
        return 0

    def _map(self, address: int, size: int) -> int:
        """Map at least `size` bytes of an expandable segment; the address of the free block with them, 0 if refused."""
        size = (size + self._granule - 1) // self._granule * self._granule
        if not self._driver.map(address, size):
            return 0
        self._unmapped.take_front(address, size)
        return self._free.add_merged(address, size)

    def _unmap(self, address: int, size: int, low: int, high: int) -> None:
        """Unmap [low, high) of an expandable segment, in the free block [address, address + size)."""
        self._free.remove(address)
        if address < low:
            self._free.add(address, low - address)
        if high < address + size:
            self._free.add(high, address + size - high)
        self._driver.release(low, high - low)
        start = self._unmapped.add_merged(low, high - low)
        if self._unmapped.merged == self._segment_size:
            self._unmapped.remove(start)
            self._segments.remove(start)


NEVER_SPLIT = 1 << 62
SIGNED_BITS = 63
MOST_SHUFFLED = 256
ORDERS = {"ascending": 0, "descending": -1, "lowest": 0, "highest": -1} | {
    f"shuffled{seed}": seed for seed in range(1, MOST_SHUFFLED + 1)
}
"""In which a driver can give addresses, as `DriverMemory.order`: which one it does is not public."""

REUSING = frozenset({"lowest", "highest"})
"""The orders in which the addresses of returned segments are used again."""


class TorchCache:
    """PyTorch's free blocks of one stream, of small or of large requests; those of expandable segments, too.

    Args:
        expandable: where its segments grow; None: they do not.
        free: the blocks.

    Attributes:
        blocks: the same, with the segments that do not grow.
        free: the argument.
        expandable: the argument.
        used_at: number of the search after which a block became free, by address; only for garbage collection.
    """

    def __init__(self, expandable: ExpandableSegments | None, free: FreeBlocks) -> None:
        self.blocks = SegmentCache(free)
        self.free = free
        self.expandable = expandable
        self.used_at: dict[int, int] = {}


class TorchCachingPool(SimulatedPool):
    """PyTorch's caching allocator on one device, simulated; options by PyTorch's names, sizes in bytes.

    Args:
        driver: grants the segments.
        expandable_segments: one segment per stream and kind that grows in place.
        max_split_size: blocks of at least so many bytes are not split; None: no such limit.
        roundup_power2_divisions: steps between powers of two that sizes are rounded up to: 2, 4, 8 ...; 0 or 1: none;
            a list by size as PyTorch has it: `[256:1,512:2,>:8]`.
        garbage_collection_threshold: share of the limit above which old segments are returned; 0: none. PyTorch has it
            in effect only after `set_per_process_memory_fraction`, which can be 1.
        device: bytes of the device's memory; the limit of the driver is then that of
            `set_per_process_memory_fraction`. None: the limit is that of the device.
        addresses: of new segments: ascending, descending; lowest or highest: those of returned segments first; or
            shuffled1 to shuffled256. Among free blocks of one size the lowest is taken.
        max_non_split_rounding: a block that is not split serves requests that leave less than this of it; None: less
            than `large_segment_size`. Since PyTorch 2.6.
        large_segment_size: bytes of a segment for large requests below 10 MiB, and of what an expandable segment maps
            at once for large requests; the two sizes above are not less. Since PyTorch 2.11.
    """

    def __init__(
        self,
        driver: DriverMemory,
        *,
        expandable_segments: bool = False,
        max_split_size: int | None = None,
        roundup_power2_divisions: int | str = 0,
        garbage_collection_threshold: float = 0.0,
        device: int | None = None,
        addresses: str = "ascending",
        max_non_split_rounding: int | None = None,
        large_segment_size: int = LARGE_SEGMENT,
    ) -> None:
        SimulatedPool.__init__(self, driver)
        if addresses not in ORDERS:
            raise InvalidRequest(
                f"addresses is {addresses!r}; give {', '.join(list(ORDERS)[:4])}, or shuffled1 to "
                f"shuffled{MOST_SHUFFLED}"
            )
        driver.order = ORDERS[addresses]
        driver.reuses = (
            addresses in REUSING and not expandable_segments
        )  # these keep theirs while they are unmapped
        for name, size in (
            ("max_split_size", max_split_size),
            ("max_non_split_rounding", max_non_split_rounding),
        ):
            if size is not None and size < large_segment_size:
                raise InvalidRequest(
                    f"{name} is {size} bytes; PyTorch takes at least its large_segment_size, "
                    f"{large_segment_size >> 20} MiB"
                )
        if large_segment_size <= OWN_SEGMENT or (expandable_segments and large_segment_size % SEGMENT_UNIT):
            raise InvalidRequest(
                f"large_segment_size is {large_segment_size} bytes; PyTorch takes more than 10 MiB; with "
                "expandable_segments the driver takes multiples of 2 MiB only"
            )
        self._allowed = native.MAX_REQUEST
        if device is not None:
            self._allowed = min(driver.limit, device)
            driver.limit = device
        if not 0 <= garbage_collection_threshold <= 1:
            raise InvalidRequest(
                f"garbage_collection_threshold is {garbage_collection_threshold}; "
                "it is a share of the limit: give a number from 0 to 1"
            )
        try:
            rules = Rules(divisions=divisions_of(roundup_power2_divisions))
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        self._expandable = expandable_segments
        self._max_split = NEVER_SPLIT if max_split_size is None else max_split_size
        self._non_split_rounding = (
            large_segment_size if max_non_split_rounding is None else max_non_split_rounding
        )
        self._large_segment = large_segment_size
        self._steps = array("q", rules.steps[:SIGNED_BITS])
        self._collect_above = int(garbage_collection_threshold * min(driver.limit, self._allowed))
        self._searches = 0
        self._caches: dict[int, TorchCache] = {}
        self._owners: dict[int, TorchCache] = {}

    def allocate(self, size: int, stream: int) -> int:
        """The address of a block of PyTorch's; 0 if memory does not suffice after cached segments were returned."""
        rounded = self._round_up(size)
        cache = self._cache_of(stream, rounded <= SMALL)
        self._searches += rounded > SMALL
        address = self._find(cache, rounded)
        if address == 0:
            if self._collect_above:
                self._collect_garbage()
            address = self._extend(cache, rounded)
            if address == 0 and self._release_oversize(cache, rounded):
                address = self._extend(cache, rounded)
            if address == 0:
                self.release_cached()
                address = self._extend(cache, rounded)
            if address == 0:
                return 0
        self._owners[address] = cache
        self.occupy(address, self._cut(cache, address, rounded))
        return address

    def free(self, address: int) -> None:
        """Free PyTorch's block at `address`: it stays in the cache of its stream."""
        cache = self._owners.pop(address)
        start = cache.blocks.put(address, self.vacate(address))
        if self._collect_above:
            cache.used_at[start] = self._searches

    def release_cached(self) -> None:
        """Return all of PyTorch's free memory that can be returned, as `torch.cuda.empty_cache` does."""
        for cache in self._caches.values():
            if cache.expandable is not None:
                cache.expandable.unmap_free()
            if cache.blocks.whole:
                cache.blocks.release_whole(self.driver)

    def _round_up(self, size: int) -> int:
        step = self._steps[native.high_bit(size)]
        return (size + step - 1) // step * step

    def _cache_of(self, stream: int, small: bool) -> TorchCache:
        key = stream * 2 + small
        cache = self._caches.get(key)
        if cache is None:
            granule = SMALL_SEGMENT if small else self._large_segment
            free = self.new_free_blocks(granule) if self._expandable else self.new_free_blocks()
            expandable = ExpandableSegments(self.driver, free, granule) if self._expandable else None
            cache = self._caches[key] = TorchCache(expandable, free)
        return cache

    def _find(self, cache: TorchCache, rounded: int) -> int:
        """The smallest cached block that is large enough, unless it must not serve this size; 0: none."""
        address = cache.free.best_fit(rounded)
        if address == 0:
            return 0
        if cache.expandable is not None:
            address = cache.expandable.least_growing(address)
        size = cache.free.sizes[address]
        if rounded < self._max_split:
            return address if size < self._max_split else 0
        return address if size < rounded + self._non_split_rounding else 0

    def _extend(self, cache: TorchCache, rounded: int) -> int:
        """A free block of a new segment, or of one that grew; 0 if refused.

        Under a fraction, PyTorch adds the size of a whole segment before it looks how much must be mapped; what it
        maps may then exceed the fraction, by less than a granule.
        """
        size = (rounded + SEGMENT_UNIT - 1) // SEGMENT_UNIT * SEGMENT_UNIT
        if rounded <= SMALL:
            size = SMALL_SEGMENT
        elif rounded < OWN_SEGMENT:
            size = self._large_segment
        if self.driver.reserved + size > self._allowed:
            return 0
        if cache.expandable is not None:
            return cache.expandable.grow(rounded)
        address = self.driver.grant(size)
        if address:
            cache.blocks.add_segment(address, size)
            cache.free.add(address, size)
        return address

    def _cut(self, cache: TorchCache, address: int, rounded: int) -> int:
        """Take a free block of PyTorch's, without what is split off; returns its size."""
        whole = cache.blocks.take(address)
        rest = whole - rounded
        if rounded <= SMALL or cache.expandable is not None:
            splits = rest >= UNIT
        else:
            splits = rounded < self._max_split and rest > SMALL
        if not splits:
            return whole
        cache.free.add(address + rounded, rest)
        if self._collect_above:
            cache.used_at[address + rounded] = self._searches
        return rounded

    def _release_oversize(self, cache: TorchCache, rounded: int) -> bool:
        """Return segments that must not be split: one that is large enough, or the largest until it is enough."""
        if self._max_split == NEVER_SPLIT or cache.expandable is not None:
            return False
        wanted = max(rounded, self._max_split)
        address = cache.free.best_fit(wanted)
        if address:
            cache.blocks.release(self.driver, address)
            return True
        released = 0
        while released < wanted and cache.free.largest() >= self._max_split:
            released += cache.blocks.release(self.driver, cache.free.best_fit(cache.free.largest()))
        return released >= wanted

    def _collect_garbage(self) -> None:
        """Return segments of large requests that were unused for longer than the average, until it is enough."""
        target = self.driver.reserved - self._collect_above
        if target <= 0:
            return
        ages = []
        for key, cache in self._caches.items():
            if key % 2 == 0:
                ages += [
                    (self._searches - cache.used_at.get(address, 0), address, cache)
                    for address in sorted(cache.blocks.whole)
                ]
        while ages and target > 0:
            average = sum([age for age, _, _ in ages]) / len(ages)
            for age, address, cache in ages:
                if age >= average:
                    target -= cache.blocks.release(self.driver, address)
            ages = [entry for entry in ages if entry[0] < average]
