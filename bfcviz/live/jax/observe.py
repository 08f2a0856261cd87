"""JAX, observed: it lets no allocator in and tells of no single allocation, so its totals are asked for and noted."""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from bfcviz.errors import InvalidRequest, LiveError, OutOfMemory
from bfcviz.events.labels import Labels
from bfcviz.events.log import EventLog
from bfcviz.events.storage.recording import Recording
from bfcviz.live.observed.heap import ObservedHeap, log_and_labels
from bfcviz.live.shared.heap_provider import HeapProvider
from bfcviz.live.shared.polling import Polling

_LIMITS: Final = ("bytes_limit", "bytes_reservable_limit")


class JaxObserved(HeapProvider):
    """What `observe_jax` returns; observes for the length of a `with`.

    Attributes:
        way: `observe`.
        says: which way, and what that means.
        latest: by device name, the totals of the last reading, as JAX tells them.
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
    def says(self) -> str:
        """Which way, and what that means."""
        text = (
            "JAX is observed by its totals (memory_stats), which are in the trace as marks whenever they "
            "change; it tells of "
            "no chunk, so there is no map. A profile of a window has every allocation: jax.profiler.trace, "
            "then bfcviz.open"
        )
        return text if self._polling.error is None else f"{text}. It ended early: {self._polling.error}"

    @property
    def heaps(self) -> list[ObservedHeap]:
        """A heap without chunks for each device, and its marks. The log that was given is the first device's."""
        return list(self._heaps.values())

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """None: JAX says in its own error what failed, and nowhere else."""
        return None

    def settle(self) -> None:
        """Ask for the totals now."""
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
    """Note what JAX says of its devices' memory, `every_s` seconds after the last time; nothing of it is changed.

    What is noted are totals at those moments, as MARK events: the label is JAX's name for it (`bytes_in_use`,
    `peak_bytes_in_use`, `largest_free_block_bytes`, ...), the value its number. What happens between two readings is
    not seen, but for the peaks that JAX keeps.

    Args:
        devices: those to observe, JAX's objects or their numbers (`id`); by default all of this process that tell of
            their memory.
        log: where the marks of the first device go; a recording brings its labels along. Further devices have rings in
            memory.
        labels: where the names are interned.
        every_s: seconds between two readings.

    Raises:
        LiveError: JAX is not installed, or a device tells nothing of its memory, as CPUs do not.
        InvalidRequest: a time that cannot be, or a device of a number that there is not.
    """
    if not 0 < every_s < 1 << 31:
        raise InvalidRequest(f"every_s={every_s} was given; give a time above 0, in seconds")
    try:
        jax = import_module("jax")
    except ImportError as error:
        raise LiveError("JAX was to be observed, but is not installed: pip install 'jax[cuda12]'") from error
    there = jax.local_devices()
    asked = list(there) if devices is None else [_device(each, there) for each in devices]
    telling = [device for device in asked if device.memory_stats()]
    if not telling or (devices is not None and len(telling) < len(asked)):
        silent = ", ".join(name_of(device) for device in asked if device not in telling) or "none"
        raise LiveError(
            f"JAX was to be observed, but tells nothing of the memory of these devices: {silent}. GPUs and "
            "TPUs tell; a CPU's "
            "memory_stats() is None. NumPy can be served without a GPU: serve_numpy"
        )
    return JaxObserved(telling, *log_and_labels(log, labels), every_s)


def _device(asked: Any, there: Sequence[Any]) -> Any:
    """A device by its number, or as it was given; the first of that number that tells of its memory."""
    if not isinstance(asked, int):
        return asked
    found = [each for each in there if each.id == asked]
    if not found:
        raise InvalidRequest(
            f"device {asked} was to be observed; JAX has {', '.join(map(name_of, there))} here"
        )
    return next((each for each in found if each.memory_stats()), found[0])


def name_of(device: Any) -> str:
    """What a device is called: `gpu:0`."""
    return f"{device.platform}:{device.id}"
