"""RMM: its rounding, the words of its settings, its messages, and the lines of its log of requests."""

import re
from math import isfinite
from typing import Final, NamedTuple

from bfcviz.formats.message_grammar import messages_of
from bfcviz.formats.setting_words import SettingWords

# ------------------------------------------------------------------------------
# Rules and settings.

UNIT: Final = 256
"""RMM's alignment: sizes are rounded up to it."""


def round_up(requested: int) -> int:
    """Bytes that RMM rounds a request up to."""
    return -(-requested // UNIT) * UNIT


_LOG: Final = "bfcviz record --rmm, or rmm.enable_logging(log_file_name=path)"

WORDS: Final = SettingWords(
    title="RMM",
    limit="rmm.mr.PoolMemoryResource(upstream, maximum_pool_size={size})",
    one_region="rmm.mr.PoolMemoryResource(upstream, initial_pool_size={size})",
    other="rmm.mr.CudaAsyncMemoryResource()",
    heap=_LOG,
    history=_LOG,
)

# ------------------------------------------------------------------------------
# What RMM says when a request fails.


MESSAGES: Final = messages_of(r"""
rmm-pool | RMM | behind=400
    = The pool could not grow: its maximum is reached, or its upstream refused. Old versions say no more.
    in rmm/mr/pool_memory_resource.hpp (since 25.10 cpp/src/mr/detail/pool_memory_resource_impl.cpp)
    > Maximum pool size exceeded
    > FAILURE maximum pool size exceeded
    requested: bytes of the request <- "exceeded (failed to allocate {size}"
        "current/max/try size = {skip}, {skip}, {size}" "[Upstream {number}B]"
    reserved: what the pool holds <- "current/max/try size = {size}"
    limit: the maximum of the pool <- "current/max/try size = {skip}, {size}"
    mark upstream <- "CUDA error" "cudaErrorMemoryAllocation"
    mark arena <- "No room in arena"
    mark pool_start <- "PoolMemoryResource.__cinit__"
    version 24.10 or later <- "current/max/try"
    version 24.04 or later <- "failed to allocate"
rmm-limit | RMM
    = A limiting adaptor reached its limit, or one request is larger than its resource allows.
    in rmm/mr/limiting_resource_adaptor.hpp
    > Exceeded memory limit
    > Maximum allocation size exceeded
    requested: bytes of the request <- "(failed to allocate {size}"
    mark adaptor <- "Exceeded memory limit" "Maximum allocation size"
rmm-driver | RMM | behind=400
    = The driver refused the request.
    in rmm/detail/error.hpp, RMM_CUDA_TRY_ALLOC
    > out_of_memory: CUDA error
    > bad_alloc: CUDA error at: {word}rmm/{word} cudaErrorMemoryAllocation
    > RMM_ERROR_OUT_OF_MEMORY
    requested: bytes of the request <- "(failed to allocate {size}" "Attempted to allocate: {size}"
    mark upstream <- "CUDA error" "RMM_ERROR"
    mark pool_start <- "PoolMemoryResource.__cinit__"
""")


# ------------------------------------------------------------------------------
# The format of the lines of RMM's log of requests (CSV), of every version: of a file, or of a process at work.
#
# ==============  ==========================================================================================
# version         header
# ==============  ==========================================================================================
# up to 0.13      `Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,...,Location`
# early 0.14      `Time,Action,Size,Stream`, then `Time,Action,Pointer,Size,Stream`
# 0.15 and later  `Thread,Time,Action,Pointer,Size,Stream`
# ==============  ==========================================================================================
#
# `Location` came later than the columns before it. A line may have one field more than the header: the thread, first.

ALLOCATE, FREE, FAIL, REALLOCATE = "allocate", "free", "allocate failure", "reallocate"

CURRENT_HEADER: Final = "Thread,Time,Action,Pointer,Size,Stream"

_DAY_NS: Final = 86_400_000_000_000
_NS: Final = 1_000_000_000
_HALF_SPACE: Final = 1 << 63  # processes use the lower half of all addresses
_MAX_SECONDS: Final = 1 << 31
_HEADERS: Final = re.compile(r"\s*(Thread,|Time,Action,|Event Type,)")
_HEXADECIMAL: Final = re.compile(r"0[xX]([0-9a-fA-F]+)|(?=.*[a-fA-F])([0-9a-fA-F]+)")
_ACTIONS: Final = {
    "allocate": ALLOCATE,
    "alloc": ALLOCATE,
    "free": FREE,
    "deallocate": FREE,
    "allocate failure": FAIL,
    "realloc": REALLOCATE,
}
_NAMES: Final = {
    "event type": "action",
    "device id": "device",
    "address": "pointer",
    "size (bytes)": "size",
    "start": "time",
}
"""A column of the oldest header -> its name in later ones."""


class RmmRequest(NamedTuple):
    """One line in the format of RMM's log. Bytes and nanoseconds; `pointer` is 0 for a null pointer, -1 where unknown.

    Attributes:
        is_clock: whether `time` is a time of day, which restarts at midnight.
        device_free, device_total: memory of the device, as the driver counts it; 0: unknown.
    """

    action: str
    time: int
    pointer: int
    size: int
    stream: int
    thread: str
    is_clock: bool
    device: int | None
    device_free: int
    device_total: int
    location: str


class RmmLogFormat:
    """The format of RMM's log by its last header: parses lines of a file, or of a process at work."""

    def __init__(self) -> None:
        self._columns = self._columns_of(CURRENT_HEADER)

    @property
    def has_pointers(self) -> bool:
        """Whether the format of RMM's log names the addresses."""
        return "pointer" in self._columns

    def take_header(self, line: str) -> bool:
        """Whether the line is a header in the format of RMM's log; if so, the next lines are read by it."""
        if _HEADERS.match(line) is None:
            return False
        self._columns = self._columns_of(line)
        return True

    def parse(self, line: str) -> RmmRequest:
        """The request in a line, by the format of RMM's log.

        Raises:
            ValueError: it holds none.
        """
        columns = self._columns
        fields = line.strip().split(",", len(columns) - ("location" in columns))
        if len(fields) == len(columns) + 1 and "thread" not in columns and "location" not in columns:
            columns = ["thread", *columns]
        if len(fields) != len(columns):
            raise ValueError(f"{len(fields)} fields, {len(columns)} columns")
        entry = dict(zip(columns, map(str.strip, fields), strict=True))
        action = _ACTIONS.get(entry["action"].lower())
        if action is None:
            raise ValueError(f"there is no action {entry['action'][:40]!r}")
        return RmmRequest(
            action,
            _time_in_rmm_format(entry["time"]),
            _pointer_in_rmm_format(entry["pointer"]) if "pointer" in entry else -1,
            _number_in_rmm_format(entry["size"]),
            _pointer_in_rmm_format(entry["stream"]),
            entry.get("thread", ""),
            ":" in entry["time"],
            _number_in_rmm_format(entry["device"]) if "device" in entry else None,
            _number_in_rmm_format(entry.get("free memory", "0")),
            _number_in_rmm_format(entry.get("total memory", "0")),
            entry.get("location", ""),
        )

    @staticmethod
    def _columns_of(header: str) -> list[str]:
        names = [name.strip().lower() for name in header.split(",")]
        columns = [_NAMES.get(name, name) for name in names]
        if any(columns.count(name) != 1 for name in ("time", "action", "size", "stream")):
            return RmmLogFormat._columns_of(CURRENT_HEADER)
        return columns


class RmmDayCount:
    """Turns the times of day in the format of RMM's log into times that do not restart at midnight; nanoseconds."""

    def __init__(self) -> None:
        self._last = -1
        self._midnights = 0

    def time(self, time_of_day: int) -> int:
        """Nanoseconds since the first midnight. A time in RMM's format more than half a day back is of the next day."""
        if time_of_day < self._last - _DAY_NS // 2:
            self._midnights += 1
        self._last = time_of_day
        return time_of_day + self._midnights * _DAY_NS


def _time_in_rmm_format(text: str) -> int:
    """Nanoseconds in RMM's format: `16:53:04.281065` or `16:53:04:281065` of a day; or seconds, `1582062034.281065`."""
    if ":" not in text:
        return _seconds_in_rmm_format(text)
    hours, minutes, rest = text.split(":", 2)
    seconds, _, fraction = rest.replace(".", ":").partition(":")
    fraction_ns = int((fraction or "0").ljust(9, "0")[:9])
    found = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * _NS + fraction_ns
    if not 0 <= found < _DAY_NS:
        raise ValueError(f"{text[:40]} is no time of day")
    return found


def _seconds_in_rmm_format(text: str) -> int:
    seconds = float(text)
    if not isfinite(seconds) or not 0 <= seconds < _MAX_SECONDS:
        raise ValueError(f"{text[:40]} seconds are no time")
    whole, _, fraction = text.partition(".")
    if whole.isdigit() and (fraction.isdigit() or not fraction):  # exact; a float has only 15 digits
        return int(whole) * _NS + int(fraction.ljust(9, "0")[:9])
    return round(seconds * _NS)


def _pointer_in_rmm_format(text: str) -> int:
    """A pointer or stream in RMM's format: `0x7f00`, `7f00`, `32512`, `(nil)`."""
    if text.lower() in ("(nil)", "nil", "null", "nullptr"):
        return 0
    match = _HEXADECIMAL.fullmatch(text)
    found = int(match[1] or match[2], 16) if match else _number_in_rmm_format(text)
    if found >= _HALF_SPACE:
        raise ValueError(f"{text[:40]} is no address")
    return found


def _number_in_rmm_format(text: str) -> int:
    if not text.isdigit() or len(text) > 19 or (found := int(text)) >= _HALF_SPACE:
        raise ValueError(f"{text[:40]} is no number")
    return found
