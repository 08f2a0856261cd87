"""The table: the ways to watch each framework, and the options and requirements of each way.

A new framework is one entry in `FRAMEWORKS`, and for each way a module `bfcviz.live.<framework>.<way>` with a function
`<way>_<framework>`. A test compares the options with the functions' arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from bfcviz.frameworks.option_types import (
    CAPTURE,
    COUNT,
    DEVICES,
    NUMBER,
    OBJECT,
    SECONDS,
    SIZE,
    OptionType,
    one_of,
)

WayName = Literal["serve", "observe"]


@dataclass(frozen=True)
class Option:
    """An argument of the function that serves or observes a framework.

    Attributes:
        name: in Python.
        type: the values it takes.
        help: what it does, for the command line.
    """

    name: str
    type: OptionType
    help: str = ""

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return f"--{self.name.removesuffix('_s').replace('_', '-')}"


@dataclass(frozen=True)
class Way:
    """One way to watch a framework.

    Attributes:
        name: `serve`: from our heap; `observe`: record its own allocator.
        help: what is recorded, for the command line.
        options: the arguments of its function.
        needs: requirements: packages, a GPU.
        needs_compiled: whether it needs the compiled build of bfcviz.
        has_heaps: False: it writes its own files to a folder, and only `bfcviz record` can begin it.
        serves_also: frameworks that may allocate from its heaps, and so cannot be served beside it.
    """

    name: WayName
    help: str
    options: tuple[Option, ...]
    needs: str = "a GPU"
    needs_compiled: bool = False
    has_heaps: bool = True
    serves_also: tuple[str, ...] = ()

    def option(self, name: str) -> Option | None:
        """The option of this name; None: there is none."""
        return next((each for each in self.options if each.name == name), None)

    @property
    def takes_stacks(self) -> bool:
        """Whether it can record Python's stack with each allocation."""
        capture = self.option("capture")
        return capture is not None and "stack" in capture.type.words

    def has_mechanism(self, word: str) -> bool:
        """Whether the word is one of its mechanisms."""
        mechanism = self.option("mechanism")
        return mechanism is not None and word in mechanism.type.words


@dataclass(frozen=True)
class Framework:
    """A framework, and how to watch it.

    Attributes:
        name: its import name.
        title: its name for people.
        ways: the usual one first.
        memory: where its arrays are.
        is_default: whether `bfcviz record` may choose it; it takes the first whose memory this machine has.
    """

    name: str
    title: str
    ways: tuple[Way, ...]
    memory: Literal["host", "gpu"] = "gpu"
    is_default: bool = False

    def way(self, name: str) -> Way | None:
        """The way of this name; None: there is none."""
        return next((each for each in self.ways if each.name == name), None)

    @property
    def is_watchable(self) -> bool:
        """Whether `bfcviz.watch` can watch it."""
        return any(way.has_heaps for way in self.ways)


_LIMIT: Final = Option(
    "limit",
    SIZE,
    "the most memory of a serving heap, such as 512MiB; beyond it memory runs out (default: all)",
)
_DEVICES: Final = Option(
    "devices", DEVICES, "numbers of the devices to observe (default: those in use, or all)"
)
_EVERY: Final = Option("every_s", SECONDS, "seconds between two readings")
_INTO: Final = (Option("log", OBJECT), Option("labels", OBJECT))
_SERVED: Final = (*_INTO, Option("options", OBJECT))
_CAPTURE_HELP: Final = "what to record with each allocation (default: the Python stack, where it can be read)"
_CAPTURE: Final = Option("capture", CAPTURE, _CAPTURE_HELP)
_SHARE: Final = (
    _LIMIT,
    Option("fraction", NUMBER, "the limit as a share of the device's total memory, such as 0.5"),
    Option("headroom", SIZE, "free memory to leave free"),
)


_TORCH: Final = "a GPU, and PyTorch 2.1 or later with CUDA; to be served by a pool 2.8"


def _memory(*kinds: str) -> Option:
    return Option("memory", one_of(*kinds), "the kind of memory of the heaps")


_ALL: Final = (
    Framework(
        "numpy",
        "NumPy",
        (
            Way(
                "serve",
                "arrays from one heap in host memory",
                (
                    _LIMIT,
                    Option("small", SIZE, "leave smaller requests to NumPy, unrecorded"),
                    _CAPTURE,
                    *_SERVED,
                ),
                needs="",
                needs_compiled=True,
            ),
        ),
        memory="host",
        is_default=True,
    ),
    Framework(
        "cupy",
        "CuPy",
        (
            Way(
                "serve",
                "arrays from a heap for each stream",
                (*_SHARE, _memory("device", "managed", "async", "virtual"), _CAPTURE, *_SERVED),
                needs_compiled=True,
            ),
            Way("observe", "its own pool, by memory hooks", (_CAPTURE, *_INTO)),
        ),
        is_default=True,
    ),
    Framework(
        "torch",
        "PyTorch",
        (
            Way(
                "observe",
                "the history that its allocator keeps",
                (
                    _EVERY,
                    Option(
                        "max_entries", COUNT, "events of each device that PyTorch keeps between two readings"
                    ),
                    Option("capture", one_of("nothing", "label", "stack"), _CAPTURE_HELP),
                    _DEVICES,
                    Option(
                        "most_time",
                        NUMBER,
                        "the most of the program's time that readings may take, such as 0.02; of a busier program "
                        "events are missed",
                    ),
                    *_INTO,
                ),
                needs=_TORCH,
            ),
            Way(
                "serve",
                "tensors, or the segments of its cache, from a heap for each stream; no lines of code",
                (
                    *_SHARE,
                    _memory("device", "managed", "virtual"),
                    Option(
                        "mechanism",
                        one_of("pool", "replace"),
                        "a memory pool under its own cache, or replace its allocator until the process ends",
                    ),
                    Option("capture", one_of("nothing", "label"), _CAPTURE_HELP),
                    *_SERVED,
                ),
                needs=_TORCH,
                needs_compiled=True,
            ),
        ),
    ),
    Framework(
        "rmm",
        "RMM",
        (
            Way(
                "observe",
                "the requests to its resources",
                (
                    Option(
                        "mechanism",
                        one_of("callback", "log"),
                        "callbacks, which name lines of code, or RMM's log, which names no caller and costs less",
                    ),
                    _CAPTURE,
                    _EVERY,
                    _DEVICES,
                    *_INTO,
                ),
            ),
            Way(
                "serve",
                "buffers from a heap for each stream, and all else that allocates through RMM",
                (*_SHARE, _memory("device", "managed", "async", "virtual"), _CAPTURE, *_SERVED),
                serves_also=("cupy", "torch"),
            ),
        ),
    ),
    Framework(
        "jax",
        "JAX",
        (
            Way(
                "observe",
                "its live arrays and totals, several times a second",
                (_DEVICES, _EVERY, *_INTO),
                needs="",
            ),
        ),
    ),
    Framework(
        "tensorflow",
        "TensorFlow",
        (
            Way(
                "observe",
                "windows of its own profiler",
                (
                    Option("window_s", SECONDS, "length of a window of TensorFlow's profiler"),
                    Option("every_s", SECONDS, "from the start of a window to the start of the next"),
                ),
                needs="a GPU, or TF_CPU_ALLOCATOR_USE_BFC=true",
                has_heaps=False,
            ),
        ),
    ),
)

FRAMEWORKS: Final[Mapping[str, Framework]] = {each.name: each for each in _ALL}
"""Every framework, by its import name."""

WATCHABLE: Final = tuple(each.name for each in _ALL if each.is_watchable)
"""The frameworks that `bfcviz.watch` takes."""
