"""The rules of smaller allocators, each one pool: first fit, exact sizes, buddies, CuPy's, RMM's and the driver's.

`torch_caching` and `xla` have the larger ones; `policy_table` names them all.
"""

from bisect import bisect_right
from heapq import heappop, heappush

from bfcviz.formats.cupy import UNIT as CUPY_UNIT
from bfcviz.whatif.driver_memory import DriverMemory
from bfcviz.whatif.free_blocks import AddressTable, FreeBlocks
from bfcviz.whatif.simulated_pool import SegmentCache, SimulatedPool

# ------------------------------------------------------------------------------
# First fit: the lowest free block that is large enough, in one pool that grows at its end.
#
# The textbook rule (Knuth, The Art of Computer Programming, volume 1, 2.5, algorithm A), with immediate coalescing. The
# pool is one segment of reserved addresses; memory is mapped to its end in whole granules and is never returned.


FIRST_FIT_UNIT = 256
"""Sizes are rounded up to a multiple of this, in bytes."""


class FirstFitPool(SimulatedPool):
    """The rules of first fit: one pool that grows at its end.

    Args:
        driver: grants the segments.
        granule: the pool grows by a multiple of this, in bytes.
    """

    def __init__(self, driver: DriverMemory, granule: int = 2097152) -> None:
        SimulatedPool.__init__(self, driver)
        self._granule = granule
        self._free = self.new_free_blocks()
        self._end = driver.reserve(1 << 44)

    def allocate(self, size: int, stream: int) -> int:  # noqa: ARG002  one pool serves all streams
        """The address of a block by first fit; 0 if the memory does not suffice."""
        rounded = (size + FIRST_FIT_UNIT - 1) // FIRST_FIT_UNIT * FIRST_FIT_UNIT
        address = self._free.first_fit(rounded)
        if address == 0:
            address = self._grow(rounded)
            if address == 0:
                return 0
        self._free.take_front(address, rounded)
        self.occupy(address, rounded)
        return address

    def free(self, address: int) -> None:
        """Free the block of first fit at `address`."""
        self._free.add_merged(address, self.vacate(address))

    def _grow(self, rounded: int) -> int:
        """First fit: map memory until the last block has `rounded` bytes; returns its address, 0 if refused."""
        last = self._free.starts.find(self._end)
        missing = rounded if last == 0 else rounded - (self._end - last)
        more = (missing + self._granule - 1) // self._granule * self._granule
        room = self.driver.limit - self.driver.reserved
        if more > room >= missing:
            more = room // FIRST_FIT_UNIT * FIRST_FIT_UNIT
        if more < missing or not self.driver.map(self._end, more):
            return 0
        address = self._free.add_merged(self._end, more)
        self._end += more
        return address


# ------------------------------------------------------------------------------
# Exact-size pool: a free block serves only requests of exactly its rounded size.
#
# The simplest cache over a slow driver, and the bad case for lengths that vary: a block stays unused until its size
# comes back. All free blocks are returned before a request fails.


STREAM_BITS = 16
"""Of a key: the size, then the stream."""
MOST_BYTES = 1 << 46
"""Of a block, 64 TiB: a key has 63 bits. No device has as much."""


class ExactSizePool(SimulatedPool):
    """Exact sizes: a list of free blocks per stream and size, the last freed first; each block is its own segment.

    Args:
        driver: grants the segments.
        unit: sizes are rounded up to a multiple of this, in bytes.
    """

    def __init__(self, driver: DriverMemory, unit: int = 512) -> None:
        SimulatedPool.__init__(self, driver)
        self._unit = unit
        self._last_freed = AddressTable()  # of the free blocks of each key, the address of the last freed one
        self._freed_before = AddressTable()  # the address of the free block of the same key freed before each
        self._keys: list[
            int
        ] = []  # a heap, the largest first: each key that has a block, and some that had one
        self._heaped = AddressTable()  # the keys in it
        self._streams = AddressTable()  # of the blocks in use, by address, plus 1

    def allocate(self, size: int, stream: int) -> int:
        """The address of a block of exact size; 0 if memory does not suffice after all free blocks were returned."""
        rounded = (size + self._unit - 1) // self._unit * self._unit
        if rounded > MOST_BYTES:
            return 0
        key = (rounded << STREAM_BITS) + stream
        address = self._last_freed.find(key)
        if address:
            self._take(key, address)
        else:
            address = self.driver.grant(rounded)
            if address == 0:
                self._release_all()
                address = self.driver.grant(rounded)
            if address == 0:
                return 0
        self._streams.put(address, stream + 1)
        self.occupy(address, rounded)
        return address

    def free(self, address: int) -> None:
        """Free the block of exact size at `address`: it waits for a request of its size."""
        key = (self.vacate(address) << STREAM_BITS) + self._streams.take(address) - 1
        before = self._last_freed.find(key)
        if before:
            self._freed_before.put(address, before)
        elif self._heaped.find(key) == 0:
            self._heaped.put(key, 1)
            heappush(self._keys, -key)
        self._last_freed.put(key, address)

    def largest_free(self) -> int:
        """Bytes of the largest free block of exact size; 0 if there is none."""
        while self._keys:
            key = -self._keys[0]
            if self._last_freed.find(key):
                return key >> STREAM_BITS
            heappop(self._keys)
            self._heaped.take(key)
        return 0

    def _take(self, key: int, address: int) -> None:
        """Remove the free block of a key that was freed last."""
        before = self._freed_before.take(address)
        if before:
            self._last_freed.put(key, before)
        else:
            self._last_freed.take(key)

    def _release_all(self) -> None:
        for key in self._last_freed.addresses():
            address = self._last_freed.find(key)
            while address:
                self.driver.release(address, key >> STREAM_BITS)
                address = self._freed_before.take(address)
        self._last_freed = AddressTable()
        self._heaped = AddressTable()
        self._keys = []


# ------------------------------------------------------------------------------
# Binary buddies: blocks of powers of two; a block is split into halves, and two free halves of a block merge.
#
# Source: Knuth, The Art of Computer Programming, volume 1, 2.5, algorithms R and S; of the blocks of the smallest size
# that suffices, the one with the lowest address is taken. In one arena, memory is mapped to its end in whole granules
# and is never returned; an arena of its own is granted at once. The arena is as large as the power of two above the
# limit, and a block beyond the limit is not taken. A recorded trace merges all free neighbours, buddies or not.


class BuddyPool(SimulatedPool):
    """The rules of buddies: one arena, or many.

    Args:
        driver: grants the arenas.
        min_block: the smallest block, in bytes; rounded up to a power of two.
        arena: bytes of each arena, rounded up to a power of two; a larger request gets a larger one, and the last one
            under the limit may be smaller. 0: one arena for all, which grows.
        granule: the one arena grows by a multiple of this, in bytes.
    """

    def __init__(
        self, driver: DriverMemory, min_block: int = 256, arena: int = 0, granule: int = 2097152
    ) -> None:
        SimulatedPool.__init__(self, driver)
        self._min_block = self._power(min_block)
        self._arena = 0
        self._granule = granule
        self._holes = FreeBlocks()
        self._bases: list[int] = []  # of the arenas, ascending
        self._sizes: dict[int, int] = {}  # of the arenas, by base
        self._end = 0
        self._stop = 1 << 62
        self._largest = 0
        self._is_largest_known = True
        if arena > 0:
            self._arena = self._power(arena)
        else:
            whole = self._power(driver.limit)
            base = driver.reserve(whole)
            self._add_arena(base, whole)
            self._end = base
            self._stop = base + driver.limit

    def allocate(self, size: int, stream: int) -> int:  # noqa: ARG002  one pool serves all streams
        """The address of a buddy; 0 if the memory does not suffice."""
        rounded = self._power(size if size > self._min_block else self._min_block)
        address = self._hole(rounded)
        if address == 0 or (self._arena == 0 and not self._map_to(address + rounded)):
            return 0
        whole = self._holes.remove(address)
        if whole >= self._largest:
            self._is_largest_known = False
        while whole > rounded:
            whole //= 2
            self._holes.add(address + whole, whole)
        self.occupy(address, rounded)
        return address

    def free(self, address: int) -> None:
        """Free the buddy at `address`."""
        size = self.vacate(address)
        base = self._bases[bisect_right(self._bases, address) - 1]
        whole = self._sizes[base]
        while size < whole:
            buddy = base + ((address - base) ^ size)
            if self._holes.sizes.find(buddy) != size:
                break
            self._holes.remove(buddy)
            if buddy < address:
                address = buddy
            size *= 2
        self._holes.add(address, size)
        mapped = min(size, self._end - address) if self._arena == 0 else size
        self._largest = max(self._largest, mapped)

    def largest_free(self) -> int:
        """Bytes of the largest hole, without what is not mapped; holes that touch and are no buddies are two."""
        if not self._is_largest_known:
            holes = self._holes
            self._largest = holes.largest_before(self._end) if self._arena == 0 else holes.largest()
            self._is_largest_known = True
        return self._largest

    def _power(self, size: int) -> int:
        """The size of a buddy: the power of two that is `size` or the next above."""
        power = 1
        while power < size:
            power *= 2
        return power

    def _hole(self, rounded: int) -> int:
        """The buddy to take or to split; 0: the memory does not suffice."""
        size = rounded
        while size <= 1 << 61:
            address = self._holes.best_fit(size)
            if address == 0:
                break
            if address + rounded <= self._stop:
                return address
            size = self._holes.sizes.find(address) * 2
        return 0 if self._arena == 0 else self._new_arena(rounded)

    def _new_arena(self, rounded: int) -> int:
        """An arena of buddies for a block of this size; 0: refused."""
        size = rounded if rounded > self._arena else self._arena
        address = self.driver.grant(size)
        while address == 0 and size > rounded:
            size //= 2
            address = self.driver.grant(size)
        if address != 0:
            self._add_arena(address, size)
        return address

    def _add_arena(self, base: int, size: int) -> None:
        """Add an arena; addresses of later ones are higher."""
        self._bases.append(base)
        self._sizes[base] = size
        self._holes.add(base, size)

    def _map_to(self, end: int) -> bool:
        """Map the memory of the buddies' arena up to an address."""
        if end <= self._end:
            return True
        more = (end - self._end + self._granule - 1) // self._granule * self._granule
        room = self.driver.limit - self.driver.reserved
        if more > room:
            more = room
        if more < end - self._end or not self.driver.map(self._end, more):
            return False
        self._end += more
        self._is_largest_known = False
        return True


# ------------------------------------------------------------------------------
# CuPy's memory pool: the smallest cached chunk of the same stream, split to the exact size.
#
# Source of the rules: cupy/cuda/memory.pyx of CuPy at commit 005d7598ad30, and of 14.2: `SingleDeviceMemoryPool`,
# `_Arena`. Of several free chunks of one size CuPy 14.2 takes the one whose Python object lies lowest; older ones
# take any item of a set. The limit is that of the device: CuPy returns cached chunks before it fails. So does CuPy 14.2
# under a limit of its own (`set_limit`); older ones fail at once.


class CupyPool(SimulatedPool):
    """CuPy's pool of one device: each segment has the rounded size of the request that it was granted for.

    Args:
        driver: grants the segments.
        ties: which of free chunks of one size serves a request: 0: that with the lowest address; else the first in an
            order of all chunks that this seed makes.
    """

    def __init__(self, driver: DriverMemory, *, ties: int = 0) -> None:
        SimulatedPool.__init__(self, driver)
        self._ties = ties
        self._arenas: dict[int, SegmentCache] = {}
        self._owners: dict[int, SegmentCache] = {}

    def allocate(self, size: int, stream: int) -> int:
        """The address of a chunk of CuPy's pool; 0 if memory does not suffice after whole segments were returned."""
        rounded = (size + CUPY_UNIT - 1) // CUPY_UNIT * CUPY_UNIT
        arena = self._arenas.get(stream)
        if arena is None:
            arena = self._arenas[stream] = SegmentCache(self.new_free_blocks())
        free = arena.free
        address = free.shuffled_fit(rounded, self._ties) if self._ties else free.best_fit(rounded)
        if address:
            arena.take_front(address, rounded)
        else:
            address = self._grant(arena, rounded)
            if address == 0:
                return 0
        self._owners[address] = arena
        self.occupy(address, rounded)
        return address

    def free(self, address: int) -> None:
        """Free the chunk at `address`: it stays in the arena of its stream."""
        arena = self._owners.pop(address)
        arena.put(address, self.vacate(address))

    def _grant(self, arena: SegmentCache, rounded: int) -> int:
        """A new segment of CuPy's pool; if it is refused, all whole segments are returned first (`free_all_blocks`)."""
        address = self.driver.grant(rounded)
        if address == 0:
            self._free_all_blocks()
            address = self.driver.grant(rounded)
        if address:
            arena.add_segment(address, rounded)
        return address

    def _free_all_blocks(self) -> None:
        for arena in self._arenas.values():
            if arena.whole:
                arena.release_whole(self.driver)


# ------------------------------------------------------------------------------
# RMM's pool: best fit with coalescing in blocks of an upstream resource.
#
# Source of the rules: `size_to_grow`, `try_to_expand` and `allocate_from_block` in
# cpp/src/mr/detail/pool_memory_resource_impl.cpp of RMM at commit 06ddb2421fb9, and `coalescing_free_list`. RMM has a
# list of free blocks for each stream, and takes those of another stream where its own has none that suffices; here one
# list serves all streams. Without a maximum of its own the pool returns no block.


RMM_UNIT = 256
"""Sizes are rounded up to a multiple of this, in bytes."""


class RmmPool(SimulatedPool):
    """RMM's pool, which doubles; each block of the upstream resource is a segment.

    Args:
        driver: grants the segments.
        initial_pool_size: bytes that are asked for at the start; 0: the first request decides.
    """

    def __init__(self, driver: DriverMemory, initial_pool_size: int = 0) -> None:
        SimulatedPool.__init__(self, driver)
        self._initial = (initial_pool_size + RMM_UNIT - 1) // RMM_UNIT * RMM_UNIT
        self._free = self.new_free_blocks()

    def allocate(self, size: int, stream: int) -> int:  # noqa: ARG002  one list serves all streams
        """The address of a block of RMM's pool; 0 if the memory does not suffice."""
        rounded = (size + RMM_UNIT - 1) // RMM_UNIT * RMM_UNIT
        if self._initial:
            if not self._extend(self._initial):
                return 0  # RMM fails where the pool is made, and there is no pool then
            self._initial = 0
        address = self._free.best_fit(rounded)
        if address == 0:
            if not self._grow(rounded):
                return 0
            address = self._free.best_fit(rounded)
        self._free.take_front(address, rounded)
        self.occupy(address, rounded)
        return address

    def free(self, address: int) -> None:
        """Free the block of RMM's pool at `address`."""
        self._free.add_merged(address, self.vacate(address))

    def _grow(self, rounded: int) -> bool:
        """Double the pool; where that is refused, try half as much again and again, down to `rounded`."""
        size = max(rounded, self.driver.reserved)
        while not self._extend(size):
            if size == rounded:
                return False
            size = max(rounded, size // 2)
        return True

    def _extend(self, size: int) -> bool:
        address = self.driver.grant(size)
        if address:
            self._free.add(address, size)
        return address != 0


# ------------------------------------------------------------------------------
# Stream-ordered pool: the driver's memory pool behind `cudaMallocAsync`.
#
# Public (CUDA Programming Guide of December 2025, 4.3; `cudaMemPoolAttr` of the runtime API): the driver keeps up to
# the release threshold (its default is 0), and returns more at the next synchronize. A free block serves its own stream
# at once. It serves others where the driver knows or adds an order between the streams, which is the default.
#
# Not public, and assumed here:
#
# - The pool takes memory in whole segments, and returns those that are wholly free.
# - It takes the smallest free block, of these the lowest, splits it, and merges neighbours.
# - Sizes are multiples of 512 bytes. Pages are not mapped to other addresses.
# - A request stream has no synchronize: one is assumed after each free. All is kept without a `release_threshold`, as
#   PyTorch's backend `cudaMallocAsync` keeps it; but free segments are returned before a request fails.
# - Without `reuse_across_streams` a block never serves another stream.


STREAM_ORDERED_UNIT = 512


class StreamOrderedPool(SimulatedPool):
    """The driver's stream-ordered pool: one for all streams of a device.

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
        """The address of a block of the driver's pool; 0 if memory does not suffice with free segments returned."""
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
        """Free the block of the driver's pool at `address`; free segments beyond the release threshold are returned."""
        cache = self._owners.pop(address)
        start = cache.put(address, self.vacate(address))
        if self.driver.reserved > self._keep and start in cache.whole:
            cache.release(self.driver, start)

    def _grow(self, cache: SegmentCache, rounded: int) -> int:
        """A new segment of the driver's pool; if it is refused, all free segments are returned first."""
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
