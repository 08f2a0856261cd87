"""HeapProvider: serves or observes a framework for the length of a `with`, and provides its heaps."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from types import TracebackType
from typing import Any, ClassVar, Self

from bfcviz.errors import LiveError, OutOfMemory
from bfcviz.frameworks.table import WayName
from bfcviz.live.capture import marks
from bfcviz.units import format_bytes


class HeapProvider(ABC):
    """Base of what the modules of `bfcviz.live` make of a framework; it can be entered again after it ended.

    A subclass begins in `_start`, ends in `_stop`, and may leave a failed `_start` by raising.

    Attributes:
        way: how the framework is watched.
        title: what people call the framework.
        is_shared: whether several of a class may be active at once; the same one never is twice.
    """

    way: ClassVar[WayName]
    title: ClassVar[str]
    is_shared: ClassVar[bool] = False
    _active: ClassVar[tuple["HeapProvider", ...]] = ()
    """Those of a class whose `with` has begun; each class has its own."""

    @property
    @abstractmethod
    def says(self) -> str:
        """How the framework is watched and what that means, in a sentence."""

    @property
    @abstractmethod
    def heaps(self) -> list[Any]:
        """The heaps there are now, each something that `LiveDashboard` can watch; more may come.

        The log that was given is the first one's.
        """

    @property
    @abstractmethod
    def out_of_memory(self) -> OutOfMemory | None:
        """The numbers of the last request that failed; None: none has. The heap may have changed since."""

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
        """The heaps that are not among the known ones."""
        before = {id(heap) for heap in known}
        return [heap for heap in self.heaps if id(heap) not in before]

    def settle(self) -> None:  # noqa: B027  most have nothing to do
        """Record what was put off."""

    def close(self) -> None:
        """End, as leaving the `with` does; does nothing where it has not begun or has ended."""
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
        """Refuse to begin beside one that is active; raises LiveError."""
        if self.is_active or (self._active and not self.is_shared):
            done = "served" if self.way == "serve" else "observed"
            heaps = ", ".join(map(_described, self._active[-1].heaps)) or "files of its own"
            raise LiveError(f"{self.title} is {done} already ({heaps}): leave that `with` first")

    @abstractmethod
    def _start(self) -> None:
        """Begin to serve or observe; what raises must put everything back."""

    @abstractmethod
    def _stop(self, error: BaseException | None) -> None:
        """End it; `error` is what the `with` ends by."""


def _described(heap: Any) -> str:
    """A heap by its name and limit."""
    limit = heap.limit
    return str(heap.name) if limit is None else f"{heap.name} of at most {format_bytes(limit)}"
