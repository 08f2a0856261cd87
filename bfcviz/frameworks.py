"""The frameworks that bfcviz can watch, as one table: ways, options, requirements; a request is checked against it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from bfcviz.errors import LiveError
from bfcviz.units import parse_bytes

# ------------------------------------------------------------------------------
# The types of frameworks' options: check values from Python, and parse words of the command line.


@dataclass(frozen=True)
class OptionType:
    """The type of values that an option of a framework takes.

    Attributes:
        text: what to give, for errors.
        check: returns a valid value from Python as it is passed on; raises TypeError or ValueError for others.
        metavar: the name of a value on the command line; "": the option exists only in Python.
        parse: makes a value from a word of the command line; raises ValueError.
        words: all values, if they are a few words.
    """

    text: str
    check: Callable[[Any], Any]
    metavar: str = ""
    parse: Callable[[str], Any] = str
    words: tuple[str, ...] = ()


def one_of(*words: str) -> OptionType:
    """The type of a framework's option that is one of a few words."""

    def check(value: Any) -> Any:
        if value not in words:
            raise ValueError
        return value

    return OptionType(f"one of {', '.join(words)}", check, f"{{{','.join(words)}}}", check, words)


def _framework_option_size(value: Any) -> Any:
    return value if value is None else parse_bytes(_framework_option_not_bool(value))


def _framework_option_number(value: Any) -> Any:
    if value is not None and not isinstance(_framework_option_not_bool(value), int | float):
        raise TypeError
    return value


def _framework_option_count(value: Any) -> Any:
    if not isinstance(_framework_option_not_bool(value), int):
        raise TypeError
    return value


def _framework_option_not_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise TypeError
    return value


def _framework_option_devices(value: Any) -> Any:
    if value is not None and (isinstance(value, str) or not isinstance(value, Iterable)):
        raise TypeError
    return value if value is None else list(value)


def _option_device_numbers(text: str) -> list[int]:
    if not all(each.isdecimal() for each in text.split(",")):
        raise ValueError(repr(text))
    return [int(each) for each in text.split(",")]


SIZE: Final = OptionType("bytes, or text such as '512MiB'", _framework_option_size, "SIZE", parse_bytes)
NUMBER: Final = OptionType("a number", _framework_option_number, "NUMBER", float)
SECONDS: Final = OptionType("seconds", _framework_option_number, "SECONDS", float)
COUNT: Final = OptionType("a whole number", _framework_option_count, "COUNT", int)
DEVICES: Final = OptionType(
    "numbers of devices, such as 0 and 1", _framework_option_devices, "0,1,...", _option_device_numbers
)
_WORDS: Final = one_of("nothing", "label", "stack")
CAPTURE: Final = replace(_WORDS, check=lambda value: _WORDS.check(value) if isinstance(value, str) else value)
"""What is recorded with each allocation; in Python also `Stacks`, which the function that gets it checks."""

OBJECT: Final = OptionType("an object of bfcviz", lambda value: value)
"""Checked by the function that gets it; not for the command line."""


# ------------------------------------------------------------------------------
# The table: the ways to watch each framework, and the options and requirements of each way.
#
# A new framework is a `Way` for each way, one entry in `_ALL`, and for each way a function `<way>_<framework>` in the
# module `bfcviz.live.<framework>`, or `bfcviz.live.<framework>.<way>`. A test compares the options with its arguments.

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
        """The name of a framework's option on the command line."""
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
        """The option of a framework's way of this name; None: there is none."""
        return next((each for each in self.options if each.name == name), None)

    @property
    def takes_stacks(self) -> bool:
        """Whether this way to watch a framework can record Python's stack with each allocation."""
        return self.takes_word("capture", "stack")

    def takes_word(self, option: str, word: str) -> bool:
        """Whether the word is a value of this option of the way."""
        found = self.option(option)
        return found is not None and word in found.type.words


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
        """The way to watch the framework by this name; None: there is none."""
        return next((each for each in self.ways if each.name == name), None)

    @property
    def is_watchable(self) -> bool:
        """Whether `bfcviz.watch` can watch the framework."""
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


def _framework_memory_option(*kinds: str) -> Option:
    return Option("memory", one_of(*kinds), "the kind of memory of the heaps")


_SERVE_NUMPY: Final = Way(
    "serve",
    "arrays from one heap in host memory",
    (_LIMIT, Option("small", SIZE, "leave smaller requests to NumPy, unrecorded"), _CAPTURE, *_SERVED),
    needs="",
    needs_compiled=True,
)
_SERVE_CUPY: Final = Way(
    "serve",
    "arrays from a heap for each stream",
    (*_SHARE, _framework_memory_option("device", "managed", "async", "virtual"), _CAPTURE, *_SERVED),
    needs_compiled=True,
)
_OBSERVE_CUPY: Final = Way("observe", "its own pool, by memory hooks", (_CAPTURE, *_INTO))
_OBSERVE_TORCH: Final = Way(
    "observe",
    "the history that its allocator keeps",
    (
        _EVERY,
        Option("max_entries", COUNT, "events of each device that PyTorch keeps between two readings"),
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
)
_SERVE_TORCH: Final = Way(
    "serve",
    "tensors, or the segments of its cache, from a heap for each stream; no lines of code",
    (
        *_SHARE,
        _framework_memory_option("device", "managed", "virtual"),
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
)
_OBSERVE_RMM: Final = Way(
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
)
_SERVE_RMM: Final = Way(
    "serve",
    "buffers from a heap for each stream, and all else that allocates through RMM",
    (*_SHARE, _framework_memory_option("device", "managed", "async", "virtual"), _CAPTURE, *_SERVED),
    serves_also=("cupy", "torch"),
)
_OBSERVE_JAX: Final = Way(
    "observe", "its live arrays and totals, several times a second", (_DEVICES, _EVERY, *_INTO), needs=""
)
_OBSERVE_TENSORFLOW: Final = Way(
    "observe",
    "windows of its own profiler",
    (
        Option("window_s", SECONDS, "length of a window of TensorFlow's profiler"),
        Option(
            "every_s",
            SECONDS,
            "from the start of a window to the start of the next (default: one after the other)",
        ),
    ),
    needs="a GPU, or TF_CPU_ALLOCATOR_USE_BFC=true",
    has_heaps=False,
)

_ALL: Final = (
    Framework("numpy", "NumPy", (_SERVE_NUMPY,), memory="host", is_default=True),
    Framework("cupy", "CuPy", (_SERVE_CUPY, _OBSERVE_CUPY), is_default=True),
    Framework("torch", "PyTorch", (_OBSERVE_TORCH, _SERVE_TORCH)),
    Framework("rmm", "RMM", (_OBSERVE_RMM, _SERVE_RMM)),
    Framework("jax", "JAX", (_OBSERVE_JAX,)),
    Framework("tensorflow", "TensorFlow", (_OBSERVE_TENSORFLOW,)),
)

FRAMEWORKS: Final[Mapping[str, Framework]] = {each.name: each for each in _ALL}
"""Every framework, by its import name."""

WATCHABLE: Final = tuple(each.name for each in _ALL if each.is_watchable)
"""The frameworks that `bfcviz.watch` takes."""


# ------------------------------------------------------------------------------
# Check a request for a framework, way and options against the table, for `bfcviz.watch` and `bfcviz record`.


class WatchRequest(NamedTuple):
    """A framework to watch, the way, and the options of that way's function."""

    framework: str
    way: str
    options: Mapping[str, Any]


def resolve(
    name: str,
    way: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    for_command: bool = False,
) -> WatchRequest:
    """Resolve a request: find the way to watch a framework, and check its options.

    Args:
        name: its import name.
        way: `serve` or `observe`; a mechanism stands for its way. Default: the usual way, or the way whose own options
            are given. A limit or capture alone selects none: it may apply to every framework.
        options: by their names in Python.
        for_command: whether errors name options as on the command line.

    Raises:
        LiveError: there is no such framework, way or option, or an option has an invalid value.
    """
    framework = find(name)
    given = dict(options or {})
    if way is None:
        own = given.keys() - {"limit", "capture"}
        found = next((each for each in framework.ways if takes(each, own)), framework.ways[0])
    else:
        found, given = _named_framework_way(framework, way, given, for_command=for_command)
    for option, value in given.items():
        known = found.option(option)
        if known is None:
            raise _unknown_framework_option(framework, found, option, for_command=for_command)
        try:
            given[option] = known.type.check(value)
        except (TypeError, ValueError):
            raise LiveError(
                f"{framework.title}, way {found.name!r}: {_option_spelling(known, for_command)}={value!r} was given; "
                f"give {known.type.text}"
            ) from None
    return WatchRequest(name, found.name, given)


def find(name: str) -> Framework:
    """The framework of this name; raises LiveError if there is none."""
    if name not in FRAMEWORKS:
        raise LiveError(f"{name} is unknown to bfcviz; choose one of {', '.join(FRAMEWORKS)}")
    return FRAMEWORKS[name]


def way_of(request: WatchRequest) -> Way:
    """The entry of a framework's way in the table of frameworks."""
    return next(each for each in FRAMEWORKS[request.framework].ways if each.name == request.way)


def takes(way: Way, options: Iterable[str]) -> bool:
    """Whether a way to watch a framework has all these options."""
    return all(way.option(name) is not None for name in options)


def _named_framework_way(
    framework: Framework, word: str, options: dict[str, Any], *, for_command: bool
) -> tuple[Way, dict[str, Any]]:
    """The framework's way that a word names, directly or by its mechanism."""
    if (found := framework.way(word)) is not None:
        return found, options
    for way in framework.ways:
        if way.takes_word("mechanism", word):
            if options.get("mechanism", word) != word:
                raise LiveError(
                    f"{framework.title}: way {word!r} and mechanism {options['mechanism']!r} were given; give "
                    f"way {way.name!r} and one mechanism"
                )
            return way, {**options, "mechanism": word}
    ways = " or ".join(repr(way.name) for way in framework.ways)
    asked = f"--{framework.name} --way {word}" if for_command else f"{framework.name}={word!r}"
    raise LiveError(f"{asked} was asked for; {framework.title} can be watched by {ways}")


def _unknown_framework_option(framework: Framework, way: Way, name: str, *, for_command: bool) -> LiveError:
    options = [each for each in way.options if not for_command or each.type.metavar]
    there = [_option_spelling(option, for_command) for option in options]
    others = [other.name for other in framework.ways if other.option(name) is not None]
    hint = f"; way {others[0]!r} takes it" if others else ""
    word = Option(name, OBJECT)
    return LiveError(
        f"{framework.title}, way {way.name!r}, does not take {_option_spelling(word, for_command)}; its options are "
        f"{', '.join(there) or 'none'}{hint}"
    )


def _option_spelling(option: Option, for_command: bool) -> str:  # noqa: FBT001  its only variant
    return option.flag if for_command else option.name


def is_on_host(request: WatchRequest) -> bool:
    """Whether the framework's memory is host memory, not a device's."""
    return FRAMEWORKS[request.framework].memory == "host"


def details_of(request: WatchRequest) -> dict[str, Any]:
    """The details of a recording on its framework: its name, the way, and the mechanism if there is one."""
    mechanism = request.options.get("mechanism")
    found = {"framework": request.framework, "way": request.way}
    return found if mechanism is None else {**found, "mechanism": mechanism}


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a framework raises this error when memory runs out, or it came from one that a framework raised."""
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or any(each is before for before in seen):
            continue
        if _is_framework_out_of_memory(each):
            return True
        seen.append(each)
        waiting += [each.__cause__, None if each.__suppress_context__ else each.__context__]
    return False


def _is_framework_out_of_memory(error: BaseException) -> bool:
    # PyTorch and XLA raise RuntimeErrors: one of PyTorch has this name, others this text.
    name = type(error).__name__
    if isinstance(error, MemoryError) or name in {"OutOfMemoryError", "ResourceExhaustedError"}:
        return True
    return isinstance(error, RuntimeError) and "out of memory" in str(error).casefold()


# ------------------------------------------------------------------------------
# What `bfcviz.watch` is asked for: the argument of one framework as a request.

Asked = bool | str | Mapping[str, Any] | None
"""The value of a framework's argument. None: the default choice. True: the usual way. `serve` or `observe`: that way. A
mapping: options of its function in `bfcviz.live`, and optionally `way`."""


def title_of(request: WatchRequest) -> str:
    """The usual name of the framework."""
    return FRAMEWORKS[request.framework].title


def check_watchable_framework(name: str) -> None:
    """Raise LiveError for a framework that cannot be watched from inside the program."""
    if not find(name).is_watchable:
        raise LiveError(
            f"{FRAMEWORKS[name].title} cannot be watched from inside the program: record it with "
            f"bfcviz record --{name}; bfcviz.watch takes {', '.join(WATCHABLE)}"
        )


def request_of(name: str, wanted: Asked) -> WatchRequest:
    """The request for one framework.

    Raises:
        LiveError: the framework, way or option is unknown, or the framework cannot be watched from inside.
    """
    check_watchable_framework(name)
    options = dict(wanted) if isinstance(wanted, Mapping) else {}
    way = wanted if isinstance(wanted, str) else options.pop("way", None)
    return resolve(name, way, options)


def unwatchable(name: str, error: Exception) -> LiveError:
    """The error for a framework that failed to start with an error of its own."""
    text = str(error).partition("\n")[0]
    return LiveError(f"{name} cannot be watched here and stays unchanged: {type(error).__name__}: {text}")
