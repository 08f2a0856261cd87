"""observe_jax: the live arrays that JAX lists, named by lines of code, and its totals of each device, both polled."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from bfcviz.errors import InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.origin_details import REGION_FACTS, KnownGaps
from bfcviz.events.storage.recording import Recording
from bfcviz.live.common.heap_provider import HeapProvider
from bfcviz.live.common.observed_heap import ObservedHeap, log_and_labels
from bfcviz.live.common.polling import Polling
from bfcviz.live.jax.array_names import ArrayNames
from bfcviz.live.jax.live_arrays import DeviceArrays, LiveArrays

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
        way: `observe`.
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
        given: EventLog | None = log
        for name, device in self._devices.items():
            limit = next((int(value) for key in _LIMITS if (value := _totals(device).get(key))), None)
            gaps = _GAPS_OF_TOTALS if listed is None else GAPS
            heap = ObservedHeap(given, labels, name=f"jax {name}", limit=limit, gaps=gaps)
            self._heaps[name], given = heap, None
            self._arrays[name] = DeviceArrays(heap, _memory_of(device))
        self._live: LiveArrays | None = None
        if listed is not None:
            by_device = {device: self._arrays[name] for name, device in self._devices.items()}
            self._live = LiveArrays(listed, by_device, ArrayNames(labels))
        self._polling = Polling(self._read, every_s, "bfcviz-jax", _MOST_TIME)

    @property
    def description(self) -> str:
        """The way, and what it means."""
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
        """A heap for each device, with its arrays and marks. The first device writes to the log that was given."""
        return list(self._heaps.values())

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """None: JAX reports a failure only in its own error."""
        return None

    def settle(self) -> None:
        """Read the arrays and totals now."""
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
            totals = _totals(device)
            self._mark_changes(name, {**totals, **self._compared(name, totals)})

    def _compared(self, name: str, totals: Mapping[str, int]) -> dict[str, int]:
        """What the device has in use beyond its arrays, and its arrays in other memory."""
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
        log: receives the events of the first device; a recording includes its labels. Further devices get rings in
            memory.
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
    chosen = _chosen(jax.local_devices(), devices, can_list=hasattr(jax, "live_arrays"))
    listed = _lister(jax, chosen) if hasattr(jax, "live_arrays") else None
    if isinstance(log, Recording):
        log.declare(_GAPS_OF_TOTALS if listed is None else GAPS)
    lost = log.add_reason if isinstance(log, Recording) else None
    return JaxObserved(chosen, listed, *log_and_labels(log, labels), every_s, lost)


def _chosen(local: Sequence[Any], devices: Iterable[Any] | None, *, can_list: bool) -> list[Any]:
    """The devices to observe; raises LiveError if JAX tells nothing of one of them, or there is none."""
    asked = list(local) if devices is None else [_device(each, local) for each in devices]
    silent = [] if can_list else [device for device in asked if not _totals(device)]
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


def _lister(jax: Any, devices: Sequence[Any]) -> Callable[[], list[Any]]:
    """A function that lists the live arrays on the platforms of some devices."""
    platforms = sorted({device.platform for device in devices})
    return lambda: [array for platform in platforms for array in jax.live_arrays(platform)]


def _device(asked: Any, there: Sequence[Any]) -> Any:
    """A device by its number, or as given; of several with this number the first that reports its memory."""
    if not isinstance(asked, int):
        return asked
    found = [each for each in there if each.id == asked]
    if not found:
        raise InvalidRequest(f"device {asked} does not exist; JAX has {', '.join(map(name_of, there))} here")
    return next((each for each in found if _totals(each)), found[0])


def _totals(device: Any) -> dict[str, int]:
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
    """The name of a device: `gpu:0`."""
    return f"{device.platform}:{device.id}"
