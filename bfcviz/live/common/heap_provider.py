"""HeapProvider: serves or observes a framework for the length of a `with`, and provides its heaps."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from types import TracebackType
from typing import Any, ClassVar, Self

from bfcviz.errors import LiveError, OutOfMemory
from bfcviz.frameworks.supported_frameworks import WayName
from bfcviz.live.capture import marks
from bfcviz.units import format_bytes


class HeapProvider(ABC):
    """Base of everything that serves or observes a framework; it can be entered again after it ended.

    A subclass begins in `_start` and ends in `_stop`. A failed `_start` raises.

    Attributes:
        way: how the framework is watched.
        title: the framework's name for people.
        is_shared: whether several of a class may be active at once. One object never is active twice.
    """

    way: ClassVar[WayName]
    title: ClassVar[str]
    is_shared: ClassVar[bool] = False
    _active: ClassVar[tuple["HeapProvider", ...]] = ()
    """The active objects of a class; each class has its own."""

    @property
    @abstractmethod
    def description(self) -> str:
        """How the framework is watched and what that means, in a sentence."""

    @property
    @abstractmethod
    def heaps(self) -> list[Any]:
        """The heaps so far, each of which `LiveDashboard` can watch; more may come.

        The first heap writes to the log that was given.
        """

    @property
    @abstractmethod
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last failed request; None: none failed. The heap may have changed since."""

    @property
    def logs(self) -> list[Any]:
        """The event log of each heap."""
        return [heap.log for heap in self.heaps]

    @property
    def names(self) -> list[str]:
        """The name of each heap."""
        return [str(heap.name) for heap in self.heaps]

    @property
    def is_active(self) -> bool:
        """Whether its `with` has begun and has not ended."""
        return any(each is self for each in self._active)

    def new_heaps(self, known: Iterable[Any]) -> list[Any]:
        """The heaps that are not in `known`."""
        before = {id(heap) for heap in known}
        return [heap for heap in self.heaps if id(heap) not in before]

    def settle(self) -> None:  # noqa: B027  most have nothing to do
        """Record deferred events."""

    def watch_here(self) -> None:  # noqa: B027  most watch the whole process
        """Also watch this context (`contextvars`): NumPy is served per context, all others per process."""

    def close(self) -> None:
        """End, as leaving the `with` does; does nothing if it is not active."""
        if self.is_active:
            self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        self._refuse_second()
        self._start()
        cls = type(self)
        cls._active = (*cls._active, self)
        marks.begin(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        marks.end(self)
        cls = type(self)
        cls._active = tuple(each for each in cls._active if each is not self)
        self._stop(error)

    def _refuse_second(self) -> None:
        """Raise LiveError if another one is active and only one may be."""
        if self.is_active or (self._active and not self.is_shared):
            done = "served" if self.way == "serve" else "observed"
            heaps = ", ".join(map(_described, self._active[-1].heaps)) or "files of its own"
            raise LiveError(f"{self.title} is {done} already ({heaps}): leave that `with` first")

    @abstractmethod
    def _start(self) -> None:
        """Begin to serve or observe; if it raises it must first restore everything."""

    @abstractmethod
    def _stop(self, error: BaseException | None) -> None:
        """End it; `error` is the exception that ends the `with`."""


def _described(heap: Any) -> str:
    """The name and limit of a heap."""
    limit = heap.limit
    return str(heap.name) if limit is None else f"{heap.name} of at most {format_bytes(limit)}"
