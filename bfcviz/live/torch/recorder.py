"""Recorder: PyTorch's memory history of this process, which all observers share: turned on, read, and cleared.

::

    program    a f a a f . . . . . . . . . a f ...       a: allocates, f: frees, C++ threads without Python's lock
    a reading       counters, state, history, counters   did anything happen meanwhile?
                                              clear, counters     only if nothing did

A reading copies the whole history, so it is cleared once it was read. PyTorch has no call that reads and clears: what
is recorded in between would be lost. Its counters show whether that was so; then the history stays, and the next
reading copies it again. If they move between the last look and the clearing, the next reading begins anew.

Readings cost the program time: they hold Python's lock. So one is made only if, by the counters and by what readings
cost so far, it costs at most a share of the time since the last one. If that is not so for long, the history is passed
over: it is cleared, and the state alone is read, which is small.

A history that other code turned on is never changed, cleared or ended; it is read as it is. If it turns one on while an
observer is there, it gets an empty one of its own; when it turns it off, that of bfcviz goes on.
"""

import functools
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from bfcviz import _forks, _interrupts
from bfcviz.live.torch import torch_api
from bfcviz.live.torch.history import Asked, DeviceHistory, Reading

_WAIT_S: Final = 1.0
"""Readings wait so long for a moment at which the program allocates nothing."""
_STALE_S: Final = 3.0
"""After so long without a reading the state is read, and the history before it is passed over."""
_STILL_S: Final = 0.001
_TELLING: Final = 200
"""So many entries tell what one costs."""
_SWITCHES: Final = ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy")


class Observer(Protocol):
    """What shares the history.

    Attributes:
        devices: receive the readings.
        max_entries: of each device, that it wants PyTorch to keep.
        wants_stacks: whether it wants Python stacks.
    """

    devices: list[DeviceHistory]
    max_entries: int
    wants_stacks: bool


class _Counters(NamedTuple):
    """PyTorch's counters of a device: entries of the history so far, failed requests, and bytes that came and went."""

    entries: int
    failures: int
    bytes: int


class Recorder:
    """PyTorch's memory history of this process.

    Attributes:
        torch: the module.
        is_ours: bfcviz turned it on.
    """

    _shared: ClassVar["Recorder | None"] = None

    def __init__(self, torch: Any) -> None:
        self.is_ours = False
        self.torch = torch
        self._lock = _forks.keep(threading.RLock())
        self._observers: list[Observer] = []
        self._keeps = 0  # entries of a device, at most, if it is ours
        self._length = 0  # of the longest trace at the end of the last reading
        self._counted: dict[int, _Counters] | None = None  # at the last reading
        self._acts = False
        self._ended = time.monotonic()
        self._took_s = 0.0  # what the last reading cost, if it was due; all costs are a processor's time
        self._copy_s = 5e-6  # for an entry
        self._carry_s = 20e-6
        self._state_s = 1e-3
        self._wrapped: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}

    @classmethod
    def of(cls, torch: Any) -> "Recorder":
        """The one of this process."""
        if cls._shared is None or cls._shared.torch is not torch:
            cls._shared = cls(torch)
        return cls._shared

    # -- on and off --------------------------------------------------------------------------------------------

    def join(self, observer: Observer) -> None:
        """Read for this observer too; the first one turns the history on, unless other code did."""
        with self._lock:
            if not self._observers:
                self.is_ours = not torch_api.keeps_history(self.torch)
                self._keeps = 0 if self.is_ours else sys.maxsize  # of other code: unknown
                self._wrap()
            self._observers.append(observer)
            try:
                if self.is_ours:
                    self._record()
                self.read()
            except BaseException:
                self.leave(observer)
                raise

    def leave(self, observer: Observer) -> None:
        """The last one turns the history off, unless other code turned it on."""
        with self._lock:
            self._observers = [each for each in self._observers if each is not observer]
            if self._observers:
                return
            if self.is_ours:
                self.is_ours = False
                with self._acting():
                    torch_api.end_history(self.torch)
            self._unwrap()

    def _record(self) -> None:
        """Turn it on as all observers want it, after what it has so far."""
        keeps = max([self._keeps, *(each.max_entries for each in self._observers)])
        if self._keeps:
            self.read()
        self._keeps = keeps
        self._clear()
        self._begin_anew()

    def _clear(self) -> None:
        """Turn it on, empty: PyTorch cannot change the length of a history that has entries."""
        stacks = any(each.wants_stacks for each in self._observers)
        with self._acting():
            torch_api.begin_history(self.torch, stacks=stacks, max_entries=self._keeps)
        self._length = 0

    def _begin_anew(self) -> None:
        """The history was cleared: nothing is missing if nothing was recorded since the last reading began."""
        is_complete = self._counted is not None and self._count() == self._counted
        for device in self._devices():
            device.begin_anew(is_complete=is_complete)

    def _devices(self) -> list[DeviceHistory]:
        return [device for observer in self._observers for device in observer.devices]

    @contextmanager
    def _acting(self) -> Iterator[None]:
        """The history is turned on or off by bfcviz, or for other code that asked for it."""
        before, self._acts = self._acts, True
        try:
            yield
        finally:
            self._acts = before

    # -- readings ----------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read the history now, whatever it costs, and give it to all observers."""
        with self._lock:
            _interrupts.block()  # what was cleared and not carried out would be lost
            try:
                self._read()
            finally:
                _interrupts.unblock()
            self._took_s = 0.0  # it was asked for

    def _read(self) -> None:
        devices = self._devices()
        if not devices:
            return
        began = time.thread_time()
        before = self._count()
        state, asked = self._state()
        found = torch_api.snapshot(self.torch)
        is_still = before is not None and self._count() == before
        copied = max((len(trace) for trace in found["device_traces"]), default=0)
        self._length = copied
        is_cleared = is_still and self.is_ours
        if is_cleared:
            self._clear()
        has_gap = is_cleared and self._count() != before
        read_s = time.thread_time() - began
        new = 0
        for device in devices:
            traces = found["device_traces"]
            trace = traces[device.number] if device.number < len(traces) else []
            settings = found.get("allocator_settings") or {}
            is_whole = len(trace) < self._keeps
            reading = Reading(trace, state[device.number], settings, asked, is_still, is_whole, is_cleared)
            new = max(device.read(reading), new)
            if has_gap:
                device.begin_anew(is_complete=False)
        took_s = time.thread_time() - began
        self._learn(copied, read_s, new, took_s - read_s)
        self._end_reading(before, took_s)

    def read_if_due(self, most_time: float) -> None:
        """Read if something was recorded, and if that costs at most this share of the time since the last reading."""
        with self._lock:
            counted, last = self._count(), self._counted
            since = time.monotonic() - self._ended
            may_cost = most_time * since
            if self._took_s > may_cost or (counted == last and counted is not None):
                return
            if counted is None or last is None or counted.keys() != last.keys():
                self._read()  # this PyTorch has no counters, or there is a new observer
            elif any(counted[device].failures > last[device].failures for device in counted):
                self._read()  # the entry of a failure is worth it
            elif self._cost(counted, last) <= may_cost and (since >= _WAIT_S or self._is_still(counted)):
                self._read()
            elif since >= _STALE_S and self._state_s <= may_cost:
                self._pass_over()

    def _cost(self, counted: Mapping[int, _Counters], last: Mapping[int, _Counters]) -> float:
        """What a reading would cost, in seconds."""
        new = sum(counted[device].entries - last[device].entries for device in counted)
        if new < 0:
            new = self._keeps  # the program has reset them
        length = self._length + new
        if self.is_ours:
            new, length = min(new, self._keeps), min(length, self._keeps)
        return self._state_s + length * self._copy_s + new * self._carry_s

    def _is_still(self, counted: Mapping[int, _Counters]) -> bool:
        """Whether the program allocates nothing for a moment, so that the history can be cleared."""
        time.sleep(_STILL_S)
        return self._count() == counted

    def _pass_over(self) -> None:
        """Set the heaps to the state, without the entries before it."""
        began = time.thread_time()
        if self.is_ours:
            self._clear()
        counted = self._count()
        state, asked = self._state()
        for device in self._devices():
            device.pass_over(state[device.number], asked)
        self._state_s = time.thread_time() - began
        self._end_reading(counted, self._state_s)

    def _end_reading(self, counted: dict[int, _Counters] | None, took_s: float) -> None:
        self._counted, self._took_s, self._ended = counted, took_s, time.monotonic()

    def _state(self) -> tuple[dict[int, list[Mapping[str, Any]]], Asked]:
        """The segments by device, and when they were asked for."""
        began = time.time_ns()
        segments: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
        for segment in torch_api.segments(self.torch):
            segments[segment["device"]].append(segment)
        return segments, Asked(began // 1000, time.time_ns() // 1000)

    def _learn(self, copied: int, copied_s: float, carried: int, carried_s: float) -> None:
        """Keep what a reading cost; one of few entries tells what the state costs."""
        if copied >= _TELLING:
            self._copy_s = copied_s / copied
        else:
            self._state_s = copied_s + (0 if carried >= _TELLING else carried_s)
        if carried >= _TELLING:
            self._carry_s = carried_s / carried

    def _count(self) -> dict[int, _Counters] | None:
        """The counters of the observed devices; None: this PyTorch does not tell them."""
        try:
            return {device.number: self._counters(device.number) for device in self._devices()}
        except (AttributeError, KeyError, RuntimeError):
            return None

    def _counters(self, device: int) -> _Counters:
        stats = torch_api.counters(self.torch, device)
        blocks, active, segments, size = (
            stats[key]["all"] for key in ("allocation", "active", "segment", "reserved_bytes")
        )
        changes = blocks["allocated"] + active["freed"] + segments["allocated"] + segments["freed"]
        moved = blocks["freed"] + size["allocated"] + size["freed"]
        return _Counters(changes + stats["num_ooms"], stats["num_ooms"], moved)

    # -- other code that turns the history on or off -----------------------------------------------------------

    def _wrap(self) -> None:
        """Be told when other code turns the history on or off."""
        for name in _SWITCHES:
            switch = getattr(self.torch._C, name, None)  # noqa: SLF001
            if switch is not None:
                told = functools.partial(self._switched, switch)
                self._wrapped[name] = switch, told
                setattr(self.torch._C, name, told)  # noqa: SLF001

    def _unwrap(self) -> None:
        for name, (switch, told) in self._wrapped.items():
            if getattr(self.torch._C, name) is told:  # noqa: SLF001
                setattr(self.torch._C, name, switch)  # noqa: SLF001
        self._wrapped.clear()

    def _switched(self, switch: Callable[..., Any], enabled: Any, *rest: Any, **options: Any) -> Any:
        with self._lock:
            if self._acts or not self._observers:
                return switch(enabled, *rest, **options)
            with suppress(Exception):  # the polling says it
                self.read()
            with self._acting():
                if self.is_ours and enabled:
                    torch_api.end_history(self.torch)  # other code gets an empty one, as without bfcviz
                try:
                    result = switch(enabled, *rest, **options)
                except BaseException:
                    if self.is_ours:
                        self._clear()
                        self._begin_anew()
                    raise
            if not enabled:
                self.is_ours, self._keeps = True, 0
                self._record()
            elif self.is_ours:
                self.is_ours, self._keeps = False, sys.maxsize
                self._begin_anew()
            return result
