"""observe_jax: poll JAX's memory totals and record them as marks; JAX reports no single allocation."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from bfcviz.errors import InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.common.heap_provider import HeapProvider
from bfcviz.live.common.observed_heap import ObservedHeap, log_and_labels
from bfcviz.live.common.polling import Polling

_LIMITS: Final = ("bytes_limit", "bytes_reservable_limit")


class JaxObserved(HeapProvider):
    """What `observe_jax` returns; observes within a `with`.

    Attributes:
        way: `observe`.
        description: the way, and what it means.
        latest: by device name, the totals of the last reading, as JAX reports them.
    """

    way = "observe"
    title = "JAX"
    is_shared = True

    def __init__(self, devices: Sequence[Any], log: EventLog, labels: Labels, every_s: float) -> None:
        self.latest: dict[str, Mapping[str, int]] = {}
        self._devices = {name_of(device): device for device in devices}
        self._heaps: dict[str, ObservedHeap] = {}
        given: EventLog | None = log
        for name, device in self._devices.items():
            totals = device.memory_stats()
            limit = next((int(totals[key]) for key in _LIMITS if totals.get(key)), None)
            self._heaps[name] = ObservedHeap(given, labels, name=f"jax {name}", limit=limit)
            given = None
        self._polling = Polling(self._read, every_s, "bfcviz-jax")

    @property
    def description(self) -> str:
        """The way, and what it means."""
        text = (
            "JAX is observed by its totals (memory_stats); the trace has a mark at each change. JAX reports no chunks, "
            "so there is no map. A profile of a window has every allocation: jax.profiler.trace, then bfcviz.open"
        )
        return text if self._polling.error is None else f"{text}. It ended early: {self._polling.error}"

    @property
    def heaps(self) -> list[ObservedHeap]:
        """A heap without chunks for each device, with the marks. The first device writes to the log that was given."""
        return list(self._heaps.values())

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """None: JAX reports a failure only in its own error."""
        return None

    def settle(self) -> None:
        """Read the totals now."""
        self._polling.now()

    def _start(self) -> None:
        self._polling.now()
        self._polling.start()

    def _stop(self, error: BaseException | None) -> None:
        self._polling.stop()
        self._polling.last(error)

    def _read(self) -> None:
        for name, device in self._devices.items():
            totals = {key: int(value) for key, value in device.memory_stats().items()}
            before, self.latest[name] = self.latest.get(name, {}), totals
            for key, value in totals.items():
                if before.get(key) != value and value >= 0:
                    self._heaps[name].mark(key, value)


def observe_jax(
    devices: Iterable[Any] | None = None,
    *,
    log: EventLog | Recording | None = None,
    labels: Labels | None = None,
    every_s: float = 0.1,
) -> JaxObserved:
    """Record JAX's totals of its devices' memory every `every_s` seconds within a `with`; changes nothing.

    Each total that changed becomes a MARK event: the label is JAX's name (`bytes_in_use`, `peak_bytes_in_use`,
    `largest_free_block_bytes`, ...), the value its number. Changes between two readings are not recorded, except for
    the peaks that JAX keeps.

    Args:
        devices: the devices to observe, as JAX's objects or numbers (`id`); default: all devices of this process that
            report their memory.
        log: receives the marks of the first device; a recording includes its labels. Further devices get rings in
            memory.
        labels: interns the names.
        every_s: seconds between two readings.

    Raises:
        LiveError: JAX is not installed, or a device does not report its memory, as CPUs do not.
        InvalidRequest: the time is out of range, or there is no device of this number.
    """
    if not 0 < every_s < 1 << 31:
        raise InvalidRequest(f"every_s={every_s} was given; give a time above 0, in seconds")
    try:
        jax = import_module("jax")
    except ImportError as error:
        raise LiveError("JAX cannot be observed, it is not installed: pip install 'jax[cuda12]'") from error
    local = jax.local_devices()
    asked = list(local) if devices is None else [_device(each, local) for each in devices]
    reporting = [device for device in asked if device.memory_stats()]
    if not reporting or (devices is not None and len(reporting) < len(asked)):
        silent = ", ".join(name_of(device) for device in asked if device not in reporting) or "none"
        raise LiveError(
            f"JAX cannot be observed: these devices do not report their memory: {silent}. GPUs and TPUs do; a CPU's "
            "memory_stats() is None. NumPy needs no GPU: serve_numpy"
        )
    return JaxObserved(reporting, *log_and_labels(log, labels), every_s)


def _device(asked: Any, there: Sequence[Any]) -> Any:
    """A device by its number, or as given; of several with this number the first that reports its memory."""
    if not isinstance(asked, int):
        return asked
    found = [each for each in there if each.id == asked]
    if not found:
        raise InvalidRequest(f"device {asked} does not exist; JAX has {', '.join(map(name_of, there))} here")
    return next((each for each in found if each.memory_stats()), found[0])


def name_of(device: Any) -> str:
    """The name of a device: `gpu:0`."""
    return f"{device.platform}:{device.id}"
