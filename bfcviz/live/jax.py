"""observe_jax: the live arrays that JAX lists, named by lines of code, and its totals of each device, both polled."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple
from weakref import ref

from bfcviz import _interrupts
from bfcviz.errors import InvalidRequest, LiveError
from bfcviz.events.label_table import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin import REGION_FACTS, KnownGaps
from bfcviz.events.storage.recording import Recording
from bfcviz.live.heap_provider import HeapProvider, log_and_labels, logs_of_heaps
from bfcviz.live.observed_heap import ObservedHeap, Polling
from bfcviz.live.stack_capture import DEEPEST, MOST
from bfcviz.stack_frames import CodePlace, own_place, shown_file


class ArrayNames:
    """Interns a label for each stack, shape and data type of JAX's arrays; the frames of a stack are read once.

    JAX keeps the stack of the call that made an array (`Array.traceback`). The lines inside a function under `jax.jit`
    are not in it, because the compiled program does not run them: its results have the line that calls the function.
    Stacks are compared by their code and position, not by identity; they keep no frame and no array alive.
    """

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._stacks: dict[Any, tuple[str, str]] = {}
        self._numbers: dict[Any, int] = {}

    def number(self, stack: Any, shape: tuple[int, ...], data_type: Any, devices: int = 1) -> int:
        """The number of the label of an array of JAX's.

        Args:
            stack: JAX's traceback; None: JAX has none.
            shape: of the whole array.
            data_type: NumPy's or JAX's.
            devices: how many devices the array lies on.
        """
        key = (stack, shape, data_type, devices)
        number = self._numbers.get(key)
        if number is None:
            if len(self._numbers) >= MOST:  # shapes and recursion can make any number
                self._numbers.clear()
                self._stacks.clear()
            number = self._numbers[key] = self._intern(*key)
        return number

    def _intern(self, stack: Any, shape: tuple[int, ...], data_type: Any, devices: int) -> int:
        details = {"shape": f"[{','.join(map(str, shape))}]", "data_type": str(data_type)}
        if devices > 1:
            details["devices"] = str(devices)
        name, text = self._words(stack)
        if text:
            details["stack"] = text
        return self._labels.intern(name or f"{data_type}{details['shape']}", **details)

    def _words(self, stack: Any) -> tuple[str, str]:
        """The name and the text of a stack of JAX's; both empty if there is none."""
        if stack is None:
            return "", ""
        words = self._stacks.get(stack)
        if words is None:
            frames = [
                CodePlace(frame.function_name, shown_file(frame.file_name), frame.line_num)
                for frame in stack.frames[:DEEPEST]
            ]
            own = own_place(frames)
            words = ("" if own is None else own.name, "\n".join(frame.text for frame in frames))
            self._stacks[stack] = words
        return words


FIRST: Final = 1 << 32


class MadeUpAddresses:
    """Makes up addresses for JAX's arrays: ranges that do not overlap, from `FIRST` up. Takes O(log n) for n gaps.

    ::

        FIRST                                  top
        | array | array | free | array | array |      a place is taken from the smallest free gap that holds it

    So the gaps are few, but they say nothing of the device's memory: its allocator places arrays in its own way.
    """

    def __init__(self) -> None:
        self._top = FIRST
        self._gaps: list[tuple[int, int]] = []  # sorted: size, start
        self._sizes: dict[int, int] = {}  # of each gap, by its start
        self._starts: dict[int, int] = {}  # of each gap, by its end

    def take(self, size: int) -> int:
        """The made-up address of an array of `size` bytes, 1 or more."""
        at = bisect_left(self._gaps, (size, 0))
        if at == len(self._gaps):
            start = self._top
            self._top += size
            return start
        found, start = self._gaps[at]
        self._remove(start)
        if found > size:
            self._add(start + size, found - size)
        return start

    def give_back(self, start: int, size: int) -> None:
        """Free the made-up addresses that `take` returned for this size."""
        stop = start + size
        if stop in self._sizes:
            stop += self._remove(stop)
        if start in self._starts:
            start = self._starts[start]
            self._remove(start)
        if stop == self._top:
            self._top = start
        else:
            self._add(start, stop - start)

    def _add(self, start: int, size: int) -> None:
        insort(self._gaps, (size, start))
        self._sizes[start] = size
        self._starts[start + size] = start

    def _remove(self, start: int) -> int:
        """Remove a gap of made-up addresses; returns its size."""
        size = self._sizes.pop(start)
        del self._starts[start + size]
        del self._gaps[bisect_left(self._gaps, (size, start))]
        return size


_MOST_SHARDINGS = 4096


class DeviceArrays:
    """JAX's live arrays of one device.

    Args:
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
        """Whether this kind of JAX's memory is the device's own."""
        return memory is None or self._memory in (None, memory)

    def add(self, size: int, label: int) -> int:
        """A live array of `size` bytes, 1 or more, came; returns its made-up address."""
        address = self._addresses.take(size)
        self.heap.allocate(address, size, label=label)
        self.num_bytes += size
        return address

    def remove(self, address: int, size: int) -> None:
        """A live array of JAX's went."""
        self.heap.free(address)
        self.num_bytes -= size
        self._addresses.give_back(address, size)


class _Where(NamedTuple):
    """Where JAX's arrays of a sharding are: observed devices with own memory, the same with another, all devices."""

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
    """Reads JAX's live arrays of some devices: an event for each array that came or went since the last reading.

    A reading takes nothing from the program:

    - It asks only for what JAX answers at once, without work on a device: no values, no wait for a computation.
    - It does not ask for addresses. `unsafe_buffer_pointer` can wait for a computation while it holds the GIL (seen in
      JAX 0.10 on a CPU). It also takes an external reference for a moment: on a GPU a program that donates the array
      just then fails with "Donation requested for buffer with external reference" (XLA in 2026:
      PjRtClient::UnsafeBufferPointer, CommonPjRtBuffer::GetBufferForDonationHoldLocked). So addresses are made up, and
      two arrays that share memory are not recognised, except for the shards below.
    - It keeps arrays alive only while it lists them; afterwards it has weak references.

    JAX lists an array over several devices and also the shards that it made of it, for example for
    `addressable_shards`. These have the stack of the array and the size of its shards: of each array one such shard a
    device is not counted.

    Args:
        listed: returns all live arrays: `jax.live_arrays`.
        devices: what is recorded of each of JAX's devices.

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
        """Write the frees of JAX's arrays that went since the last reading, and the allocations of the new ones.

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
        """The ids of JAX's known arrays that are still there, and the new arrays by their ids."""
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
            self.unread += not _is_deleted_jax_array(array)
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
        """Write the events of a reading of JAX's arrays so that no device ever holds more than before or after it.

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
                _remove_live_array(*waiting.pop())
            self._known[number] = array, self._add(array)
        while waiting:
            _remove_live_array(*waiting.pop())

    def _add(self, array: _LiveArray) -> list[int]:
        """Write the allocations of an array of JAX's; returns its address on each device with own memory."""
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


def _is_deleted_jax_array(array: Any) -> bool:
    try:
        return bool(array.is_deleted())
    except Exception:  # noqa: BLE001  its traceback would keep the array alive
        return False


def _remove_live_array(array: _LiveArray, addresses: list[int]) -> None:
    # Not strict: an array of 0 bytes has no addresses.
    for device, address in zip(array.where.own, addresses, strict=False):
        device.remove(address, array.size)
    for device in array.where.elsewhere:
        device.elsewhere[str(array.where.memory)] -= array.size


_LIMITS: Final = ("bytes_limit", "bytes_reservable_limit")
_IN_USE: Final = "bytes_in_use"
NOT_IN_ARRAYS: Final = "bytes_not_in_arrays"
"""A mark: what a device has in use beyond its arrays, such as temporaries of running programs."""

_SAMPLED: Final = (
    "JAX lists its arrays when asked, so this is a sample: arrays that came and went between two readings are missing, "
    "and times are those of readings"
)
_MADE_UP: Final = (
    "addresses are made up, because reading one can stall a JAX program or make it fail: free memory and fragmentation "
    "are unknown, arrays that share memory count twice, and an array on one device that was made by the same line as a "
    "replicated one may not be counted"
)
_ONLY_ARRAYS: Final = (
    "temporaries of running programs and executables are not drawn: where JAX tells totals, the mark "
    f"{NOT_IN_ARRAYS} counts them"
)
_NO_LIST: Final = "this JAX does not list its arrays: there are only marks with its totals"
GAPS: Final = KnownGaps((_SAMPLED, _MADE_UP, _ONLY_ARRAYS), REGION_FACTS)
_GAPS_OF_TOTALS: Final = KnownGaps((_NO_LIST,))
_MOST_TIME: Final = 0.05  # of a processor, for readings; they hold Python's lock


class JaxObserved(HeapProvider):
    """What `observe_jax` returns; observes within a `with`.

    Attributes:
        description: the way, and what it means.
        latest: by device name, the numbers of the marks at the last reading; a CPU has none of JAX's totals.
    """

    way = "observe"
    title = "JAX"
    is_shared = True

    def __init__(
        self,
        devices: Sequence[Any],
        listed: Callable[[], list[Any]] | None,
        log: EventLog,
        labels: Labels,
        every_s: float,
        lost: Callable[[str], object] | None = None,
    ) -> None:
        self._lost = lost
        self.latest: dict[str, Mapping[str, int]] = {}
        self._devices = {name_of(device): device for device in devices}
        self._heaps: dict[str, ObservedHeap] = {}
        self._arrays: dict[str, DeviceArrays] = {}
        logs = logs_of_heaps(log)
        for name, device in self._devices.items():
            limit = next(
                (int(value) for key in _LIMITS if (value := _jax_device_totals(device).get(key))), None
            )
            gaps = _GAPS_OF_TOTALS if listed is None else GAPS
            heap = ObservedHeap(next(logs), labels, name=f"jax {name}", limit=limit, gaps=gaps)
            self._heaps[name] = heap
            self._arrays[name] = DeviceArrays(heap, _memory_of(device))
        self._live: LiveArrays | None = None
        if listed is not None:
            by_device = {device: self._arrays[name] for name, device in self._devices.items()}
            self._live = LiveArrays(listed, by_device, ArrayNames(labels))
        self._polling = Polling(self._read, every_s, "bfcviz-jax", _MOST_TIME)

    @property
    def description(self) -> str:
        """How JAX is observed, and what that means, as a sentence."""
        if self._live is None:
            text = f"JAX is observed by its totals (memory_stats), a mark at each change; {_NO_LIST}"
        else:
            text = (
                "JAX is observed: its live arrays, named by line of code, and its totals are read at intervals. Arrays "
                "that come and go between two readings are missing, and addresses are made up"
            )
            if self._live.unread:
                text += f". JAX does not tell the size of {self._live.unread} of its arrays"
        return text if self._polling.error is None else f"{text}. It ended early: {self._polling.error}"

    @property
    def heaps(self) -> list[ObservedHeap]:
        """The observed heap of each device, with JAX's live arrays and the marks."""
        return list(self._heaps.values())

    def settle(self) -> None:
        """Read JAX's live arrays and totals now."""
        self._polling.now()

    def _start(self) -> None:
        self._polling.now()
        self._polling.start()

    def _stop(self, error: BaseException | None) -> None:
        self._polling.stop()
        if self._polling.error is not None and self._lost is not None:
            self._lost(f"the readings of JAX ended early, by an error: {self._polling.error}")
        self._polling.last(error)

    def _read(self) -> None:
        if self._live is not None:
            self._live.read()
        for name, device in self._devices.items():
            totals = _jax_device_totals(device)
            self._mark_changes(name, {**totals, **self._compared(name, totals)})

    def _compared(self, name: str, totals: Mapping[str, int]) -> dict[str, int]:
        """What JAX has in use of a device beyond its arrays, and its arrays in other memory."""
        if self._live is None:
            return {}
        arrays = self._arrays[name]
        found = {f"bytes_in_{kind}": size for kind, size in arrays.elsewhere.items()}
        if _IN_USE in totals:
            found[NOT_IN_ARRAYS] = max(totals[_IN_USE] - arrays.heap.stats().bytes_in_use, 0)
        return found

    def _mark_changes(self, name: str, numbers: dict[str, int]) -> None:
        before, self.latest[name] = self.latest.get(name, {}), numbers
        for key, value in numbers.items():
            if before.get(key) != value and value >= 0:
                self._heaps[name].mark(key, value)


def observe_jax(
    devices: Iterable[Any] | None = None,
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    every_s: float = 0.1,
) -> JaxObserved:
    """Record JAX's live arrays and totals every `every_s` seconds within a `with`; changes nothing.

    An array gets an ALLOCATE event at the first reading that finds it, and a FREE event at the first that does not:
    its label has the line of code that made it, its stack, shape and data type. The line inside a function under
    `jax.jit` is not known: its results have the line that calls it. Addresses are made up; `live_arrays` says why.

    Each total of a device that changed becomes a MARK event: the label is JAX's name (`bytes_in_use`,
    `peak_bytes_in_use`, `largest_free_block_bytes`, ...), the value its number. `bytes_not_in_arrays` is `bytes_in_use`
    without the arrays: temporaries, executables and rounding; `bytes_in_pinned_host` are arrays in host memory. A CPU
    has no totals.

    A reading holds Python's lock: less than 1 us for a known array, 25 to 70 us for a new one. After a long reading the
    next one comes later, so that readings take at most 5 % of the time.

    Args:
        devices: the devices to observe, as JAX's objects or numbers (`id`); default: the devices of this process on
            JAX's default platform.
        log: receives the events of all heaps if it is on disk, otherwise of the first: then the others get rings in
            memory. A recording includes its labels.
        labels: interns the names.
        every_s: seconds between two readings.

    Raises:
        LiveError: JAX is not installed, there is no device, or JAX lists no arrays and the device has no totals.
        InvalidRequest: the time is out of range, or there is no device of this number.
    """
    if not 0 < every_s < 1 << 31:
        raise InvalidRequest(f"every_s={every_s} was given; give a time above 0, in seconds")
    try:
        jax = import_module("jax")
    except ImportError as error:
        raise LiveError("JAX cannot be observed, it is not installed: pip install jax") from error
    chosen = _chosen_jax_devices(jax.local_devices(), devices, can_list=hasattr(jax, "live_arrays"))
    listed = _live_array_lister(jax, chosen) if hasattr(jax, "live_arrays") else None
    if isinstance(log, Recording):
        log.declare(_GAPS_OF_TOTALS if listed is None else GAPS)
    lost = log.add_reason if isinstance(log, Recording) else None
    return JaxObserved(chosen, listed, *log_and_labels(log, labels), every_s, lost)


def _chosen_jax_devices(local: Sequence[Any], devices: Iterable[Any] | None, *, can_list: bool) -> list[Any]:
    """The devices to observe; raises LiveError if JAX tells nothing of one of them, or there is none."""
    asked = list(local) if devices is None else [_jax_device_by_number(each, local) for each in devices]
    silent = [] if can_list else [device for device in asked if not _jax_device_totals(device)]
    chosen = [device for device in asked if device not in silent]
    if not chosen or (devices is not None and silent):
        names = ", ".join(map(name_of, silent)) or "none"
        raise LiveError(
            f"JAX cannot be observed: this JAX does not list its arrays, and these devices have no totals: {names}. "
            "GPUs and TPUs have; for a CPU install a newer JAX, which has jax.live_arrays"
            if silent
            else "JAX cannot be observed: no device to observe was given, or JAX has none"
        )
    return chosen


def _live_array_lister(jax: Any, devices: Sequence[Any]) -> Callable[[], list[Any]]:
    platforms = sorted({device.platform for device in devices})
    return lambda: [array for platform in platforms for array in jax.live_arrays(platform)]


def _jax_device_by_number(asked: Any, there: Sequence[Any]) -> Any:
    """A device of JAX's by its number, or as given; of several with this number the first that reports its memory."""
    if not isinstance(asked, int):
        return asked
    found = [each for each in there if each.id == asked]
    if not found:
        raise InvalidRequest(f"device {asked} does not exist; JAX has {', '.join(map(name_of, there))} here")
    return next((each for each in found if _jax_device_totals(each)), found[0])


def _jax_device_totals(device: Any) -> dict[str, int]:
    """The totals of a device, as JAX names them; empty if it has none, as a CPU, or cannot tell them now."""
    try:
        return {key: int(value) for key, value in (device.memory_stats() or {}).items()}
    except Exception:  # noqa: BLE001  of JAX, of several kinds: the arrays are recorded all the same
        return {}


def _memory_of(device: Any) -> str | None:
    """The kind of memory that arrays on a device usually lie in; None: this JAX does not say."""
    try:
        return str(device.default_memory().kind)
    except Exception:  # noqa: BLE001  a JAX without kinds of memory, or a device without them
        return None


def name_of(device: Any) -> str:
    """The name of a device of JAX's: `gpu:0`."""
    return f"{device.platform}:{device.id}"
