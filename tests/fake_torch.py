"""A stand-in for PyTorch with CUDA: the names bfcviz uses, which behave as PyTorch 2.15's do, over host memory.

Its caching allocator asks for segments of 2 MiB or more and keeps them; memory comes from functions by pointer.
"""

import ctypes
import mmap
import sys
import time
import types
from contextlib import contextmanager

from bfcviz.allocator.sub_allocators import PythonSubAllocator

ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
RECORD = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
SEGMENT = 2 << 20
SETTINGS = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "release_lock_on_cudamalloc": False}


class OutOfMemoryError(RuntimeError):
    """torch.OutOfMemoryError."""


class CustomAllocator:
    def __init__(self, alloc, free):
        self.alloc, self.free = ALLOC(alloc), FREE(free)
        self.record = None

    def set_record_stream_fn(self, address):
        self.record = RECORD(address)


class MemPool:
    count = 0

    def __init__(self, allocator, device):
        MemPool.count += 1
        self.device = device  # elsewhere PyTorch does not know the allocator
        self.id = (MemPool.count, 0)
        self.allocator = allocator
        self.segments = []  # (address, size, device, stream)


class UntypedStorage:
    """Memory of a tensor, by address."""

    def __init__(self, address):
        self.address = address

    def data_ptr(self):
        return self.address

    def _share_cuda_(self):
        return "handle", self.address


class Event:
    def __init__(self, cuda):
        self.cuda = cuda
        self.done = False

    def record(self, stream):
        self.stream = stream
        self.cuda.events.append(self)

    def query(self):
        return self.done

    def synchronize(self):
        self.done = True


class CachingAllocator:
    """PyTorch's own allocator of one device: one segment, its counters, and its history in a ring."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.start = 0x7000_0000 + (device << 40)
        self.blocks = {}  # address -> size, requested, frames
        self.ring = []
        self.counts = dict.fromkeys(("allocated", "freed", "failures"), 0)

    def record(self, action, address, size, **more):
        history = self.torch.history
        if history is None or action in (history.get("skip_actions") or ()):
            return
        self.ring.append(
            {
                "action": action,
                "addr": address,
                "size": size,
                "stream": 0,
                "time_us": time.time_ns() // 1000,
                **more,
            }
        )
        del self.ring[: max(len(self.ring) - history.get("max_entries", sys.maxsize), 0)]

    def allocate(self, requested, frames):
        size, at = -(-requested // 512) * 512, self.start
        for address, block in sorted(self.blocks.items()):
            if address - at >= size:
                break
            at = address + block["size"]
        if at + size > self.start + SEGMENT:
            self.counts["failures"] += 1
            self.record("oom", 0, requested, device_free=0, frames=frames)
            for observer in self.torch.observers:
                observer(self.device, requested, self.torch.total, 0)
            raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {requested} bytes")
        self.blocks[at] = {
            "size": size,
            "requested_size": requested,
            "state": "active_allocated",
            "frames": frames,
        }
        self.counts["allocated"] += 1
        self.record("alloc", at, requested, frames=frames)
        return at

    def free(self, address):
        requested = self.blocks.pop(address)["requested_size"]
        self.counts["freed"] += 1
        self.record("free_requested", address, requested)
        self.record("free_completed", address, requested)

    def segments(self):
        self.record("snapshot", 0, sum(block["size"] for block in self.blocks.values()))
        at, tiles = self.start, []
        for address, block in sorted(self.blocks.items()):
            tiles += [{"size": address - at, "state": "inactive"}] * (address > at) + [dict(block)]
            at = address + block["size"]
        tiles += [{"size": self.start + SEGMENT - at, "state": "inactive"}] * (at < self.start + SEGMENT)
        where = {"device": self.device, "address": self.start, "total_size": SEGMENT, "stream": 0}
        return {**where, "is_expandable": False, "blocks": tiles}

    def stats(self):
        allocated, freed, failures = self.counts.values()
        blocks, segments = (
            {"all": {"allocated": allocated, "freed": freed}},
            {"all": {"allocated": 1, "freed": 0}},
        )
        return {
            "allocation": blocks,
            "active": blocks,
            "segment": segments,
            "reserved_bytes": {"all": {"allocated": SEGMENT, "freed": 0}},
            "num_ooms": failures,
        }


class FakeTorch(types.ModuleType):
    """`sys.modules["torch"]` for a test.

    Attributes:
        pools: those in use now, by device.
        stream: the current one's handle.
        contexts: devices that a context was created on.
        kept: addresses of segments in which there are tensors.
        backend: the allocator by its name.
        cached: bytes by device that PyTorch's own allocator has and no tensor needs.
        history: the options with which it is recorded; None: it is not.
        caches: PyTorch's own allocator of each device.
        meanwhile: by what bfcviz does (`snapshot`, `clear`), what other threads do just then.
        error: raised by the next snapshot.
    """

    __version__ = "2.15.0"

    def __init__(self, devices=1, memory=64 << 20):
        super().__init__("torch")
        self.devices, self.total, self.free = devices, memory, memory
        self.pools, self.stream, self.device, self.events = {}, 0, 0, []
        self.cached = {}
        self.current_allocator = None
        self.contexts = {0}
        self.used = False  # CUDA memory, before the allocator was replaced
        self.settings = dict(SETTINGS)
        self.history, self.error, self.meanwhile = None, None, {}
        self.caches = [CachingAllocator(self, device) for device in range(8)]
        self.fraction = 1.0
        self.observers = []  # of failed requests
        self.readings = []  # the length of the history at each snapshot
        self.OutOfMemoryError = OutOfMemoryError
        self.UntypedStorage = type(
            "UntypedStorage", (UntypedStorage,), {}
        )  # of this one alone: it may be changed
        self.kept, self.backend = set(), "native"
        self._C = types.SimpleNamespace(
            _cuda_customAllocator=CustomAllocator,
            _cuda_beginAllocateToPool=self._begin,
            _cuda_endAllocateToPool=self._end,
            _cuda_releasePool=lambda device, pool: None,
            _cuda_isHistoryEnabled=lambda: self.history is not None,
            _cuda_record_memory_history=self._switch,
            _cuda_attach_out_of_memory_observer=self.observers.append,
            _accelerator_setAllocatorSettings=self._set,
        )
        memory_module = types.SimpleNamespace(
            _CUDAAllocator=lambda allocator: types.SimpleNamespace(allocator=lambda: allocator),
            change_current_allocator=self._change,
            get_allocator_backend=lambda: self.backend if self.current_allocator is None else "pluggable",
            empty_cache=self._empty_cache,
            _record_memory_history=self._record,
            _snapshot=self.snapshot,
            memory_snapshot=self._segments,
            memory_stats_as_nested_dict=lambda device: self.caches[device].stats(),
        )
        self.cuda = types.SimpleNamespace(
            init=lambda: None,
            is_available=lambda: self.devices > 0,
            device_count=lambda: self.devices,
            current_device=lambda: self.device,
            is_initialized=lambda: self.current_allocator is None,
            memory_reserved=lambda device: self.cached.get(device, 0),
            _maybe_exchange_device=self._exchange,
            _exchange_device=self._exchange,
            mem_get_info=self._mem_get_info,
            get_per_process_memory_fraction=lambda device: self.fraction,
            get_device_properties=lambda device: types.SimpleNamespace(total_memory=self.total),
            MemPool=self._pool,
            memory=memory_module,
            Event=lambda: Event(self),
            ExternalStream=lambda handle, device: (device, handle),
            device=self._on,
            synchronize=lambda device: None,
            empty_cache=self._empty_cache,
            memory_allocated=lambda device: sum(
                size
                for pool in self.made
                for at, size, there, _ in pool.segments
                if at in self.kept and there == (self.device if device is None else device)
            ),
        )
        self.made = []

    # -- what a program does --------------------------------------------------------------------------------

    def empty(self, size, device=0):
        """Memory for a tensor: an address; raises as PyTorch does."""
        if self.current_allocator is not None:
            return self.current_allocator.alloc(size, device, self.stream or None)
        self.used = True
        pool = self.pools.get(device)
        if pool is None or pool.device != device:
            return None  # PyTorch's own
        segment = -(-size // SEGMENT) * SEGMENT
        address = pool.allocator.alloc(segment, device, self.stream or None)
        if address is None:
            raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes")
        pool.segments.append((address, segment, device, self.stream))
        return address

    def delete(self, address, size, device=0, stream=0):
        self.current_allocator.free(address, size, device, stream or None)

    def empty_cache(self):
        """What a program calls."""
        self.cuda.empty_cache()

    # -- what bfcviz calls ----------------------------------------------------------------------------------

    def _pool(self, allocator):
        if self.backend == "cudaMallocAsync":
            raise RuntimeError("cudaMallocAsync does not yet support createOrIncrefPool.")
        self.made.append(MemPool(allocator, self.device))
        return self.made[-1]

    def _begin(self, device, pool_id):
        self.pools[device] = next(pool for pool in self.made if pool.id == pool_id)

    def _end(self, device, pool_id):
        assert self.pools.pop(device).id == pool_id

    def _empty_cache(self):
        """Segments without tensors go back, but for those of pools in use, which PyTorch keeps."""
        self.free += sum(self.cached.values())
        self.cached.clear()
        for pool in self.made:
            if pool in self.pools.values():
                continue
            for segment in list(pool.segments):
                address, size, device, stream = segment
                if address not in self.kept:
                    pool.segments.remove(segment)
                    pool.allocator.free(address, size, device, stream or None)

    def _change(self, wrapper):
        if self.used:
            raise RuntimeError("Can't swap an already initialized allocator")
        self.used = True
        self.current_allocator = wrapper.allocator()

    def _set(self, text):
        named = dict(part.split(":") for part in text.split(","))
        self.settings["PYTORCH_CUDA_ALLOC_CONF"] = text
        if "release_lock_on_cudamalloc" in named:
            self.settings["release_lock_on_cudamalloc"] = named["release_lock_on_cudamalloc"] == "True"

    def _record(  # noqa: PLR0917  as PyTorch's
        self,
        enabled="all",
        context="all",
        stacks="all",
        max_entries=sys.maxsize,
        clear_history=False,
        skip_actions=None,
    ):
        self._C._cuda_record_memory_history(
            enabled, context, stacks, max_entries, clear_history, False, False, skip_actions or []
        )

    def _switch(self, enabled, context, stacks, max_entries, clear_history, *more):
        *_, skip_actions = more
        if self.backend == "cudaMallocAsync":
            raise RuntimeError("cudaMallocAsync does not yet support recordHistory.")
        if enabled not in (None, "all", "state"):
            raise RuntimeError(f"expected state or all, not {enabled}")
        if clear_history:
            self.meanwhile.pop("clear", lambda: None)()
        options = {
            "context": context,
            "stacks": stacks,
            "max_entries": max_entries,
            "skip_actions": skip_actions,
        }
        self.history = options if enabled else None
        for cache in self.caches:
            if not enabled or clear_history:
                cache.ring.clear()
            assert len(cache.ring) <= max_entries, (
                "PyTorch writes behind the end of a history that it cannot shorten"
            )

    def _mem_get_info(self, device):
        self.contexts.add(device)
        return self.total // 2, self.total

    def snapshot(self):
        if self.error is not None:
            raise self.error
        traces = [list(cache.ring) for cache in self.caches[: self.devices]]
        self.readings.append(max(map(len, traces)))
        self.meanwhile.pop("snapshot", lambda: None)()
        return {
            "segments": self._segments(),
            "device_traces": traces,
            "allocator_settings": self.settings,
        }

    def _exchange(self, device):
        before, self.device = self.device, device
        return before

    def _segments(self, mempool_id=None, include_traces=True):
        return [cache.segments() for cache in self.caches[: self.devices]]

    def make(self, requested, frames=(), device=0):
        """A tensor of PyTorch's own allocator: an address."""
        return self.caches[device].allocate(requested, list(frames))

    def drop(self, address):
        self.caches[(address - 0x7000_0000) >> 40].free(address)

    @contextmanager
    def _on(self, device):
        before, self.device = self.device, device
        yield
        self.device = before


class HostMemory(PythonSubAllocator):
    """Regions of this machine, as many as the budget allows."""

    def __init__(self, device, budget, stream=lambda: 0):
        super().__init__()
        self.budget, self.regions, self.stream_of = budget, {}, stream

    def allocate(self, alignment, num_bytes):
        if not self.budget.take(num_bytes):
            return None
        region = mmap.mmap(-1, num_bytes)
        address = ctypes.addressof(ctypes.c_char.from_buffer(region))
        self.regions[address] = region
        return address, num_bytes

    def free(self, address, num_bytes):
        del self.regions[address]
        self.budget.give_back(num_bytes)
