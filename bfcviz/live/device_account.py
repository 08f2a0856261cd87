"""The memory of this process's devices now, from the driver, NVML and the frameworks that are loaded.

Nothing here starts CUDA, creates a context or imports a framework: a device that this process does not use is only
told by NVML, and a framework only by the counters that it keeps anyway. NVML (`nvidia-ml-py`) is optional; without it
the other processes are not known.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeVar

from bfcviz.allocator import cuda_driver
from bfcviz.analysis.account import Account, AccountFigures, AccountPoolFigures, DeviceAccount, account_of
from bfcviz.errors import DeviceError, MissingExtra
from bfcviz.live.heap_provider import active_providers
from bfcviz.units import MiB

T = TypeVar("T")

_TRIES: Final = 3
"""The figures are read one after the other, while the program works: a contradiction is read again."""

_SLACK: Final = 4 * MiB
"""Figures of different moments may differ by two segments of PyTorch, or pages of the driver, without a word."""


def account_now() -> Account:
    """The account of every device that this process uses, or that NVML lists."""
    try:
        nvml, note = _Nvml(), ""
    except _NvmlMissing as error:
        nvml, note = None, str(error)
    driver = cuda_driver.in_use()
    try:
        devices = _accounts_of_nvml(nvml) if driver is None else _accounts_of_driver(driver, nvml)
    except DeviceError as error:  # the process has lost its device, or ends
        return Account(notes=(f"The driver does not answer: {error}",))
    if not devices and (found := _accounts_of_torch()):
        return Account(tuple(found))
    if not devices:
        note = f"This process uses no GPU. {note or 'NVML lists none.'}"
    return Account(tuple(devices), (note,) if note else ())


def _accounts_of_driver(driver: cuda_driver.Driver, nvml: "_Nvml | None") -> list[DeviceAccount]:
    """The memory of each device of this process now, as the driver tells it."""
    return [
        _settled_account(lambda number=number: _driver_figures(driver, nvml, number))  # type: ignore[misc]
        for number in range(driver.device_count())
    ]


def _settled_account(read: Callable[[], AccountFigures]) -> DeviceAccount:
    """The memory of a device at one moment, read again while the figures contradict each other, a few times."""
    for _ in range(_TRIES):
        found = account_of(read())
        if not found.contradictions:
            break
    return found


def _driver_figures(driver: cuda_driver.Driver, nvml: "_Nvml | None", number: int) -> AccountFigures:
    """What driver, NVML and frameworks say of a device. Only in a context the driver says what is free."""
    pools = tuple(_framework_pools(number))
    free: int | None = None
    uses_device = driver.has_context(number)
    if uses_device:
        free, total = driver.memory_now(number)
    else:
        total = driver.total_memory(number)
    seen = None if nvml is None else nvml.device(driver.pci_bus(number))
    reserved = None
    if seen is not None and not seen.is_whole_of(total):
        seen = None  # a slice of the device (MIG): NVML tells of the whole
    if seen is not None and free is None:
        free, total, reserved = seen.free, seen.total, seen.reserved
    processes = {} if seen is None else seen.processes
    return AccountFigures(
        device=f"device {number}" + (f" ({seen.name})" if seen is not None and seen.name else ""),
        number=number,
        total=total,
        free=free,
        process=None if uses_device or pools else 0,
        others=None if uses_device or pools or not processes else sum(processes.values()),
        reserved=reserved,
        processes=processes,
        pid=os.getpid(),
        pools=pools,
        has_all_pools=True,
        slack=_SLACK,
    )


def _accounts_of_nvml(nvml: "_Nvml | None") -> list[DeviceAccount]:
    """The memory of this machine's devices now, as NVML tells it, where this process uses none."""
    found = [] if nvml is None else nvml.devices()
    return [
        account_of(
            AccountFigures(
                device=f"GPU {number}" + (f" ({each.name})" if each.name else ""),
                total=each.total,
                free=each.free,
                process=0,
                others=sum(each.processes.values()) if each.processes else None,
                reserved=each.reserved,
                has_all_pools=True,
                slack=_SLACK,
            )
        )
        for number, each in enumerate(found)
    ]


# ------------------------------------------------------------------------------
# NVML: the processes of a device, its memory where this process has no context, and its name.


class _NvmlMissing(Exception):
    """NVML cannot be asked; the message says why, and what to do."""


class _NvmlDevice(NamedTuple):
    """What NVML says of a device; sizes in bytes."""

    name: str
    total: int
    free: int
    reserved: int | None
    processes: Mapping[int, int]

    def is_whole_of(self, total: int) -> bool:
        """Whether CUDA's total is that of this device, but for what the driver keeps for itself."""
        return abs(self.total - total) <= max(self.total // 16, self.reserved or 0)


class _Nvml:
    """NVML of this machine, initialized. It creates no context.

    Raises:
        _NvmlMissing: the package or the driver is missing.
    """

    def __init__(self) -> None:
        try:
            self._nvml: Any = import_module("pynvml")
        except ImportError:
            raise _NvmlMissing(
                str(MissingExtra("The list of other processes", "nvidia-ml-py", "nvml"))
            ) from None
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise _NvmlMissing(f"NVML does not start, so other processes are not known: {error}") from None

    def devices(self) -> list[_NvmlDevice]:
        """All devices of the machine that NVML lists."""
        count = self._asked(self._nvml.nvmlDeviceGetCount) or 0
        handles = [self._asked(self._nvml.nvmlDeviceGetHandleByIndex, number) for number in range(count)]
        return [
            found for handle in handles if handle is not None and (found := self._read(handle)) is not None
        ]

    def device(self, bus: str) -> _NvmlDevice | None:
        """The device at a place of the PCI bus; None: NVML does not know it."""
        handle = self._asked(self._nvml.nvmlDeviceGetHandleByPciBusId, bus.encode()) if bus else None
        return None if handle is None else self._read(handle)

    def _read(self, handle: Any) -> _NvmlDevice | None:
        with_reserved = getattr(self._nvml, "nvmlMemory_v2", None)
        memory = None
        if with_reserved is not None:
            memory = self._asked(self._nvml.nvmlDeviceGetMemoryInfo, handle, with_reserved)
        memory = memory or self._asked(self._nvml.nvmlDeviceGetMemoryInfo, handle)
        if memory is None:
            return None
        name = self._asked(self._nvml.nvmlDeviceGetName, handle) or ""
        return _NvmlDevice(
            name.decode(errors="replace") if isinstance(name, bytes) else str(name),
            int(memory.total),
            int(memory.free),
            getattr(memory, "reserved", None),
            self._processes(handle),
        )

    def _processes(self, handle: Any) -> dict[int, int]:
        """Bytes of each process, as NVML says; one that computes and draws is in both lists with all that it has."""
        found: dict[int, int] = {}
        for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
            for each in self._asked(getattr(self._nvml, name), handle) or ():
                if each.usedGpuMemory is not None:  # Windows does not tell
                    found[each.pid] = max(found.get(each.pid, 0), int(each.usedGpuMemory))
        return found

    def _asked(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The answer of NVML; None: this device or this driver does not give it."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return None


# ------------------------------------------------------------------------------
# The pools of this process on a device, by the counters of each framework that is loaded.


def _framework_pools(device: int) -> Iterator[AccountPoolFigures]:
    """The pools in a device's memory now, of each framework that is loaded."""
    served = _served_heap_pools(device)
    torch = _told_by_framework(_torch_pool_figures, device)
    if torch is not None:
        # PyTorch counts the chunks of heaps that serve its memory pool as its own segments.
        in_between = [each for each in served if each.name.startswith("torch")]
        served = [each for each in served if each not in in_between]
        yield AccountPoolFigures(
            torch.name, torch.in_use, (torch.cached or 0) + sum(each.cached or 0 for each in in_between)
        )
    yield from served
    for ask in (_cupy_pool_figures, _jax_pool_figures, _tensorflow_pool_figures):
        found = _told_by_framework(ask, device)
        if found is not None and found.least:
            yield found


def _told_by_framework(ask: Callable[[int], T | None], device: int) -> T | None:
    """What a framework tells; None: it is not loaded, does not use the device, or cannot tell now."""
    try:
        return ask(device)
    except Exception:  # noqa: BLE001  of a framework, of any kind: the account goes on without it
        return None


def _served_heap_pools(device: int) -> list[AccountPoolFigures]:
    """The pools of an account that are heaps which serve a framework on a device."""
    found = []
    for provider in active_providers():
        for heap in provider.heaps if provider.way == "serve" else ():
            framework, _, number = str(heap.name).partition(":")
            if number.split(" ")[0] == str(device):
                stats = heap.stats()
                free = stats.pool_bytes - stats.bytes_in_use
                found.append((framework, stats.bytes_in_use, free))
    sizes: dict[str, Counter[str]] = {}
    for framework, used, free in found:
        sizes.setdefault(framework, Counter()).update(used=used, free=free)
    return [
        AccountPoolFigures(f"{name} on bfcviz", size["used"], size["free"]) for name, size in sizes.items()
    ]


def _torch_pool_figures(device: int) -> AccountPoolFigures | None:
    torch = _used_torch()
    if torch is None:
        return None
    counters = torch.cuda.memory.memory_stats_as_nested_dict(device)  # creates no context
    used = int(counters["allocated_bytes"]["all"]["current"])
    reserved = int(counters["reserved_bytes"]["all"]["current"])
    return AccountPoolFigures("PyTorch", used, max(reserved - used, 0)) if reserved else None


def _used_torch() -> Any:
    """PyTorch, if this process has memory of a device through it."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None


def _accounts_of_torch() -> list[DeviceAccount]:
    """The memory of devices that only PyTorch knows: on another driver than CUDA's (ROCm), unknown to NVML."""
    torch = _told_by_framework(lambda _: _used_torch(), 0)
    if torch is None:
        return []
    numbers = [
        number
        for number in range(torch.cuda.device_count())
        if _told_by_framework(_torch_pool_figures, number) is not None
    ]
    return [_settled_account(lambda number=number: _torch_figures(torch, number)) for number in numbers]  # type: ignore[misc]


def _torch_figures(torch: Any, number: int) -> AccountFigures:
    pools = tuple(_framework_pools(number))
    free, total = torch.cuda.mem_get_info(number)  # the device has memory of PyTorch, so a context
    return AccountFigures(
        device=f"device {number}",
        number=number,
        total=int(total),
        free=int(free),
        pools=pools,
        slack=_SLACK,
    )


def _cupy_pool_figures(device: int) -> AccountPoolFigures | None:
    """CuPy's default pool, which answers for the current device."""
    cupy = sys.modules.get("cupy")
    driver = cuda_driver.in_use()
    if cupy is None or driver is None or not driver.has_context(device):  # else it would create one
        return None
    with cupy.cuda.Device(device):
        pool = cupy.get_default_memory_pool()
        used, size = int(pool.used_bytes()), int(pool.total_bytes())
    return AccountPoolFigures("CuPy", used, max(size - used, 0))


def _jax_pool_figures(device: int) -> AccountPoolFigures | None:
    """The pool of JAX's client in a device's memory now, if the program has started it."""
    bridge, jax = sys.modules.get("jax._src.xla_bridge"), sys.modules.get("jax")
    if jax is None or bridge is None or not bridge.backends_are_initialized():
        return None
    for each in jax.local_devices():
        number = getattr(each, "local_hardware_id", None)
        if each.platform in ("gpu", "cuda", "rocm") and (each.id if number is None else number) == device:
            counters = each.memory_stats() or {}
            used, size = counters.get("bytes_in_use"), counters.get("pool_bytes")
            return AccountPoolFigures(
                "JAX", used, None if used is None or size is None else max(size - used, 0)
            )
    return None


def _tensorflow_pool_figures(device: int) -> AccountPoolFigures | None:
    """What TensorFlow has of a device's memory now, if started; it does not tell the size of its pool."""
    tensorflow, context = sys.modules.get("tensorflow"), sys.modules.get("tensorflow.python.eager.context")
    if tensorflow is None or context is None or not context.context()._initialized:  # noqa: SLF001
        return None
    return AccountPoolFigures(
        "TensorFlow", int(tensorflow.config.experimental.get_memory_info(f"GPU:{device}")["current"])
    )
