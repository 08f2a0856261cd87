"""PyTorch's caching allocator: how it rounds, splits and grows, and the words of its settings.

Source: c10/cuda/CUDACachingAllocator.cpp at commit 001074d25084 (`round_size`, `get_allocation_size`, `should_split`,
`get_free_block`) and the parser of PYTORCH_CUDA_ALLOC_CONF in c10/core/AllocatorConfig.cpp. A size from 2^n to
2^(n + 1) is rounded up to a multiple of one step::

    no divisions      512 bytes
    d divisions       2^n / d, at least 512 bytes: the range has d steps

    rounded size      from a new segment of
    up to 1 MiB       2 MiB, for small requests only
    below 10 MiB      20 MiB
    10 MiB or more    the size, in whole 2 MiB
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any, Final, NamedTuple, Self

from bfcviz.code_places import UNKNOWN_FILE, CodePlace, own_place
from bfcviz.formats.settings import SettingWords

# ------------------------------------------------------------------------------
# Rules: how PyTorch's caching allocator rounds and splits blocks, by its settings; its history omits this.

UNIT: Final = 512
SMALL: Final = 1 << 20
"""Requests up to this, rounded, come from segments for small ones."""

SMALL_SEGMENT: Final = 2 << 20
LARGE_SEGMENT: Final = 20 << 20
OWN_SEGMENT: Final = 10 << 20
"""A request of at least so many bytes gets a segment of its size."""

SEGMENT_UNIT: Final = 2 << 20
LEAST_MAX_SPLIT: Final = 20 << 20
"""PyTorch takes no smaller `max_split_size`; its parser before AcceleratorAllocatorConfig wants more than this."""

_NO_MAX_SPLIT: Final = 1 << 60  # its default is -1, or the largest number there is
_INTERVALS: Final = 16  # of divisions: 1 MiB and less, 2 MiB, 4 MiB ... 32 GiB and more
_FIRST_INTERVAL: Final = 20  # 2^20 bytes
_LIST: Final = re.compile(r"\[\s*(?:(?:\d{1,18}|>)\s*:\s*\d{1,18}\s*(?:,\s*(?=[\d>])|(?=\])))+\]")
_ENTRY: Final = re.compile(r"(\d+|>)\s*:\s*(\d+)")
_BITS: Final = 64
_MOST_LINES: Final = 1 << 31


@dataclass(frozen=True)
class Rules:
    """The settings that the addresses and sizes of blocks depend on.

    Attributes:
        expandable: segments grow in place; then every block is split that leaves at least `UNIT` bytes.
        max_split: blocks of at least so many bytes are never split; None: no such limit.
        divisions: steps between powers of two, from 1 MiB to 32 GiB, 1: none; empty: sizes are multiples of `UNIT`.
        collection_threshold: share of the limit above which old segments are returned; 0: none are.
    """

    expandable: bool = False
    max_split: int | None = None
    divisions: tuple[int, ...] = ()
    collection_threshold: float = 0.0

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """The rules in a snapshot's `allocator_settings`; PyTorch's default for each that is missing or impossible."""
        largest = _number(settings.get("max_split_size"))
        threshold = _number(settings.get("garbage_collection_threshold"))
        try:
            divisions = divisions_of(settings.get("roundup_power2_divisions", 0))
        except ValueError:
            divisions = ()
        return cls(
            settings.get("expandable_segments") is True,
            int(largest) if LEAST_MAX_SPLIT <= largest < _NO_MAX_SPLIT else None,
            divisions,
            threshold if 0 < threshold <= 1 else 0.0,
        )

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """What sizes are rounded up to a multiple of: item n is for those from 2^n to 2^(n + 1) bytes, below 2^64."""
        if not self.divisions:
            return (UNIT,) * _BITS
        last = len(self.divisions) - 1
        there = (self.divisions[min(max(n - _FIRST_INTERVAL, 0), last)] for n in range(_BITS))
        return tuple(max(UNIT, (1 << n) // each) if each > 1 else UNIT for n, each in enumerate(there))

    def round_up(self, requested: int) -> int:
        """Bytes a request is rounded up to."""
        size = max(requested, 1)
        step = self.steps[size.bit_length() - 1]
        return -(-size // step) * step

    def block(self, requested: int, free: int) -> int:
        """Bytes of the block that serves a request, cut from a free one of `free` bytes; 0: unknown."""
        rounded = self.round_up(requested)
        return rounded if free <= rounded or self.splits(rounded, free) else free

    def splits(self, rounded: int, free: int) -> bool:
        """Whether a free block of `free` bytes is cut in two for a request."""
        rest = free - rounded
        if rounded <= SMALL or self.expandable:
            return rest >= UNIT
        return rest > SMALL and (self.max_split is None or rounded < self.max_split)

    def serves(self, rounded: int, free: int) -> bool:
        """Whether a free block of `free` bytes, of the right stream and kind, may serve a request."""
        if self.max_split is not None and rounded < self.max_split:
            return rounded <= free < self.max_split
        return rounded <= free and (self.max_split is None or free < rounded + LARGE_SEGMENT)

    @staticmethod
    def segment(rounded: int) -> int:
        """Bytes of a new segment for a request, where segments do not grow."""
        if rounded <= SMALL:
            return SMALL_SEGMENT
        return LARGE_SEGMENT if rounded < OWN_SEGMENT else -(-rounded // SEGMENT_UNIT) * SEGMENT_UNIT


DEFAULTS: Final = Rules()
"""The rules of PyTorch without settings."""


def divisions_of(value: Any) -> tuple[int, ...]:
    """The divisions of `roundup_power2_divisions`, one for each range of sizes; empty where sizes are not divided.

    Args:
        value: one number for all sizes; a list by size in MiB, as in PYTORCH_CUDA_ALLOC_CONF: `[256:1,512:2,>:8]`;
            or the table of a snapshot, such as `{"1": 0, "2": 4}`.

    Raises:
        ValueError: it is none of these, or has a number that is no power of two.
    """
    if isinstance(value, Mapping):
        found = tuple(value[key] for key in sorted(value, key=int)[:_INTERVALS])
    elif isinstance(value, str):
        found = _of_list(value)
    else:
        found = (value,) * _INTERVALS
    for each in found:
        if type(each) is not int or each < 0 or each & (each - 1) or each >= 1 << _BITS:
            raise ValueError(
                f"roundup_power2_divisions is {each!r:.40}; PyTorch takes powers of two, and 0 for none"
            )
    return tuple(max(each, 1) for each in found) if any(each > 1 for each in found) else ()


def divisions_text(divisions: Sequence[int]) -> str:
    """Divisions as PYTORCH_CUDA_ALLOC_CONF has them: one number, or a list by size."""
    if len(set(divisions)) <= 1:
        return str(divisions[0] if divisions else 0)
    equal = len(list(takewhile(lambda each: each == divisions[-1], reversed(divisions))))
    first = len(list(takewhile(lambda each: each == divisions[0], divisions))) - 1
    entries = [f"{1 << place}:{divisions[place]}" for place in range(first, len(divisions) - equal)]
    return f"[{','.join([*entries, f'>:{divisions[-1]}'])}]"


def line_number(line: int) -> int:
    """The line of a frame; 0: unknown. PyTorch has -1 as an unsigned number where Python knows no line."""
    return line if 0 <= line < _MOST_LINES else 0


def _of_list(text: str) -> tuple[int, ...]:
    """As PyTorch's parser: the first size is also of all smaller ones; `>`: all above the size before it, or 1 MiB."""
    if not _LIST.fullmatch(text.strip()):
        raise ValueError(f"roundup_power2_divisions is {text[:40]!r}; give a list such as [256:1,512:2,>:8]")
    found = [0] * _INTERVALS
    last, is_first = 0, True
    for key, number in _ENTRY.findall(text):
        size, divisions = 0 if key == ">" else int(key), int(number)
        if key == ">":
            found[last + 1 :] = [divisions] * (_INTERVALS - last - 1)
            continue
        if not size or size & (size - 1):
            raise ValueError(
                f"roundup_power2_divisions has a size of {size} MiB; PyTorch takes powers of two"
            )
        place = min(size.bit_length() - 1, _INTERVALS - 1)
        if is_first:
            found[:place] = [divisions] * place
        found[place] = divisions
        last, is_first = place, False
    return tuple(found)


def _number(value: Any) -> float:
    """A number of a file; 0: it is none."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0


# ------------------------------------------------------------------------------
# Words of PyTorch's settings.

CONF: Final = "PYTORCH_CUDA_ALLOC_CONF"
"""The variable that every version for CUDA reads."""

HIP_CONF: Final = "PYTORCH_HIP_ALLOC_CONF"
NEW_CONF: Final = "PYTORCH_ALLOC_CONF"
"""The name since 2.9, for every kind of device."""

CONF_NAMES: Final = (CONF, NEW_CONF)
"""The variables of the settings on CUDA, the older one first."""

UNCACHED: Final = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING")
"""Turn the allocator off, whatever they are set to."""


def setting(name: str, value: str | int) -> str:
    """A setting of the allocator, as a user types it."""
    return f"{CONF}={name}:{value}"


WORDS: Final = SettingWords(
    title="PyTorch",
    share="torch.cuda.set_per_process_memory_fraction({share})",
    release="torch.cuda.empty_cache()",
    other=setting("backend", "cudaMallocAsync"),
    heap="torch.cuda.memory._dump_snapshot(path) after the failure",
    history="torch.cuda.memory._record_memory_history() at the start, or bfcviz record --torch",
)


# ------------------------------------------------------------------------------
# Names of allocations from PyTorch's frames, and numbers of its streams.

_LAST_STREAM: Final = 0xFFFF


class StackWords(NamedTuple):
    """`name` of an allocation, and its whole `stack` as text, the innermost line first; empty where unknown."""

    name: str
    stack: str


def stack_words(metadata: str, frames: Sequence[CodePlace]) -> StackWords:
    """The name is the metadata that the user set, or the innermost frame outside of libraries."""
    best = own_place(frames)
    name = metadata or ("" if best is None else best.name)
    return StackWords(name, "\n".join(frame.text for frame in frames if frame.file != UNKNOWN_FILE))


class StreamNumbers:
    """Numbers CUDA's stream handles in the order of their first use; 0: the default stream."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def of(self, handle: int) -> int:
        """The number of a stream; all streams after the 65,534th share one."""
        if handle == 0:
            return 0
        return self._numbers.setdefault(handle, min(len(self._numbers) + 1, _LAST_STREAM))
