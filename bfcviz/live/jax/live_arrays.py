"""LiveArrays: what JAX's live arrays hold, reading by reading: an event for each array that came or went.

::

    jax.live_arrays() ──> new: stack, shape, size, devices ──> DeviceArrays.add ────> ALLOCATE on each device's heap
                     └──> gone since the last reading ───────> DeviceArrays.remove ─> FREE

A reading takes nothing from the program:

- It asks only for what JAX answers at once, without work on a device: no values, no wait for a computation.
- It does not ask for addresses. `unsafe_buffer_pointer` can wait for a computation while it holds the GIL (seen in JAX
  0.10 on a CPU). It also takes an external reference for a moment: on a GPU a program that donates the array just then
  fails with "Donation requested for buffer with external reference" (XLA in 2026: PjRtClient::UnsafeBufferPointer,
  CommonPjRtBuffer::GetBufferForDonationHoldLocked). So addresses are made up, and two arrays that share memory are not
  recognised, except for the shards below.
- It keeps arrays alive only while it lists them; afterwards it has weak references.

JAX lists an array over several devices and also the shards that it made of it, for example for `addressable_shards`.
These have the stack of the array and the size of its shards: of each array one such shard a device is not counted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from weakref import ref

from bfcviz import _interrupts
from bfcviz.live.common.observed_heap import ObservedHeap
from bfcviz.live.jax.array_names import ArrayNames
from bfcviz.live.jax.made_up_addresses import MadeUpAddresses

_MOST_SHARDINGS = 4096


class DeviceArrays:
    """The live arrays of one device.

    Args:
        heap: receives the events.
        memory: the kind of the device's own memory; None: unknown, then all arrays are in it.

    Attributes:
        num_bytes: of the arrays in the device's own memory.
        elsewhere: by kind, bytes of arrays in memory of the host, such as `pinned_host`. They have no events.
    """

    def __init__(self, heap: ObservedHeap, memory: str | None) -> None:
        self.heap = heap
        self.num_bytes = 0
        self.elsewhere = Counter[str]()
        self._memory = memory
        self._addresses = MadeUpAddresses()

    def holds(self, memory: str | None) -> bool:
        """Whether this kind of memory is the device's own."""
        return memory is None or self._memory in (None, memory)

    def add(self, size: int, label: int) -> int:
        """An array of `size` bytes, 1 or more, came; returns its address."""
        address = self._addresses.take(size)
        self.heap.allocate(address, size, label=label)
        self.num_bytes += size
        return address

    def remove(self, address: int, size: int) -> None:
        """It went."""
        self.heap.free(address)
        self.num_bytes -= size
        self._addresses.give_back(address, size)


class _Where(NamedTuple):
    """Where arrays of a sharding are: observed devices with their own memory, the same with another, all devices."""

    own: tuple[DeviceArrays, ...]
    elsewhere: tuple[DeviceArrays, ...]
    devices: int
    memory: str | None


class _LiveArray(NamedTuple):
    """What JAX says of an array; `size` in bytes, on each of its devices."""

    reference: ref[Any]
    stack: Any
    shape: tuple[int, ...]
    data_type: Any
    size: int
    where: _Where

    def possible_shards(self) -> list[tuple[Any, int, DeviceArrays]]:
        """Stack, size and device of the shards that JAX may have made of it, one a device; of one device: none."""
        if self.where.devices == 1 or self.stack is None:
            return []
        return [(self.stack, self.size, device) for device in (*self.where.own, *self.where.elsewhere)]


class LiveArrays:
    """Reads the live arrays of some devices.

    Args:
        listed: returns all live arrays: `jax.live_arrays`.
        devices: what is recorded of each of JAX's devices.
        names: labels the arrays.

    Attributes:
        unread: arrays of the last reading of which JAX does not say what they hold, deleted ones not counted.
    """

    def __init__(
        self, listed: Callable[[], Iterable[Any]], devices: Mapping[Any, DeviceArrays], names: ArrayNames
    ) -> None:
        self.unread = 0
        self._listed = listed
        self._devices = devices
        self._names = names
        # By Python's id; with an address on each device that has it in its own memory.
        self._known: dict[int, tuple[_LiveArray, list[int]]] = {}
        self._sharded = Counter[tuple[Any, int, DeviceArrays]]()  # the possible shards of the known arrays
        self._places: dict[Any, _Where] = {}

    def read(self) -> None:
        """Write the frees of the arrays that went since the last reading, and the allocations of the new ones.

        Ctrl+C waits for the end: half a reading would leave arrays that never go.
        """
        _interrupts.block()
        try:
            self._read()
        finally:
            _interrupts.unblock()

    def _read(self) -> None:
        there, new = self._list()
        gone = [self._known.pop(number) for number in [each for each in self._known if each not in there]]
        for array, _ in gone:
            self._sharded.subtract(array.possible_shards())
        for array in new.values():
            self._sharded.update(array.possible_shards())
        self._sharded = +self._sharded
        # A shard does not become known, because it may outlive its array.
        left = self._sharded.copy()
        self._write(gone, {number: array for number, array in new.items() if not _is_shard(array, left)})

    def _list(self) -> tuple[set[int], dict[int, _LiveArray]]:
        """The ids of the known arrays that are still there, and the new arrays by their ids."""
        self.unread = 0
        there, new = set(), {}
        arrays = list(self._listed())
        while arrays:  # releases each as soon as it is read
            array = arrays.pop()
            known = self._known.get(id(array))
            if known is not None and known[0].reference() is array:
                there.add(id(array))
            elif (found := self._describe(array)) is not None:
                new[id(array)] = found
        return there, new

    def _describe(self, array: Any) -> _LiveArray | None:
        """What JAX says of an array; None: it was deleted since it was listed, or JAX does not say."""
        try:
            where = self._where(array.sharding)
            size = array.on_device_size_in_bytes() // where.devices
            return _LiveArray(ref(array), array.traceback, array.shape, array.dtype, size, where)
        except Exception:  # noqa: BLE001  of JAX, of several kinds: it is deleted, or on no device of this process
            self.unread += not _is_deleted(array)
            return None

    def _where(self, sharding: Any) -> _Where:
        found = self._places.get(sharding)
        if found is None:
            if len(self._places) == _MOST_SHARDINGS:
                self._places.clear()
            there, memory = sharding.device_set, sharding.memory_kind
            observed = [arrays for device, arrays in self._devices.items() if device in there]
            own = tuple(arrays for arrays in observed if arrays.holds(memory))
            elsewhere = tuple(arrays for arrays in observed if not arrays.holds(memory))
            found = self._places[sharding] = _Where(own, elsewhere, len(there), memory)
        return found

    def _write(self, gone: list[tuple[_LiveArray, list[int]]], new: Mapping[int, _LiveArray]) -> None:
        """Write the events of a reading so that no device ever holds more than before or after it.

        When each came or went is unknown. All frees first would draw an empty device at every reading of a loop that
        replaces its arrays, all allocations first would draw a peak that never was.
        """
        change = Counter[DeviceArrays]()
        for array in new.values():
            change.update(dict.fromkeys(array.where.own, array.size))
        for array, _ in gone:
            change.subtract(dict.fromkeys(array.where.own, array.size))
        most = {device: device.num_bytes + max(grown, 0) for device, grown in change.items()}
        waiting = sorted(gone, key=lambda entry: entry[0].size)
        for number, array in sorted(new.items(), key=lambda entry: -entry[1].size):
            while waiting and any(each.num_bytes + array.size > most[each] for each in array.where.own):
                _remove(*waiting.pop())
            self._known[number] = array, self._add(array)
        while waiting:
            _remove(*waiting.pop())

    def _add(self, array: _LiveArray) -> list[int]:
        """Write its allocations; returns its address on each device with own memory."""
        _, stack, shape, data_type, size, where = array
        if not size:
            return []
        for device in where.elsewhere:
            device.elsewhere[str(where.memory)] += size
        label = self._names.number(stack, shape, data_type, where.devices) if where.own else 0
        return [device.add(size, label) for device in where.own]


def _is_shard(array: _LiveArray, left: Counter[tuple[Any, int, DeviceArrays]]) -> bool:
    """Whether JAX may have made it of an array over several devices, which is counted; takes it from those left."""
    devices = (*array.where.own, *array.where.elsewhere)
    if array.where.devices != 1 or not devices or not left[array.stack, array.size, devices[0]]:
        return False
    left[array.stack, array.size, devices[0]] -= 1
    return True


def _is_deleted(array: Any) -> bool:
    try:
        return bool(array.is_deleted())
    except Exception:  # noqa: BLE001  its traceback would keep the array alive
        return False


def _remove(array: _LiveArray, addresses: list[int]) -> None:
    # Not strict: an array of 0 bytes has no addresses.
    for device, address in zip(array.where.own, addresses, strict=False):
        device.remove(address, array.size)
    for device in array.where.elsewhere:
        device.elsewhere[str(array.where.memory)] -= array.size
