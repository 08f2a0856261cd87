"""ONNX Runtime: its arena is a BFC allocator, with messages of its own."""

import re
from typing import Final

from bfcviz.formats.message_grammar import messages_of
from bfcviz.formats.setting_words import SettingWords

MESSAGES: Final = messages_of(r"""
onnx-limit | ONNX Runtime | behind=300
    = The arena reached its limit. It has one only if the program set it (gpu_mem_limit, max_mem).
    in onnxruntime/core/framework/bfc_arena.cc
    > Available memory of {number} is smaller than requested bytes of
    requested: bytes of the request, rounded to 256 <- "requested bytes of {number}"
    available: how far the arena may still grow <- "Available memory of {number}"
    mark arena_limit <- "Available memory"
onnx-driver | ONNX Runtime | behind=300
    = The device refused a region for the arena, also when the arena asked for less.
    in onnxruntime/core/framework/bfc_arena.cc
    > Failed to allocate memory for requested buffer of size
    requested: bytes of the request, rounded to 256 <- "buffer of size {number}"
    mark host <- "_nchwc'"
onnx-arena | ONNX Runtime
    = The arena ran out; its chunks may follow.
    in onnxruntime/core/framework/bfc_arena.cc
    > BFC Arena ran out of memory trying to allocate
    > Failed to find a free memory block despite calling Extend
    requested: bytes of the request <- "trying to allocate {number}" "rounded_bytes={number}"
""")
"""`_nchwc` is a layout that only the CPU has."""


# ------------------------------------------------------------------------------
# The arena's log. It lists its chunks as TensorFlow's allocator does; only what stands before each line differs.

_PREFIX: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d) (?P<clock>\d\d:\d\d:\d\d\.\d{1,6})\d{0,6} \[(?P<level>[VIWEF]):[^,\n\]]{1,80}, "
    r"bfc_arena\.cc:(?P<line>\d{1,6}) [^\]\n]{1,200}\] {0,4}"
)
_HEADER: Final = re.compile(r"BFC Arena ran out of memory trying to allocate (\d{1,19})\b")
SOURCE: Final = "onnxruntime/core/bfc_allocator.cc"
"""What stands before its lines after `as_tensorflow`."""

NAME: Final = "BFCArena"
"""The arena's name in a trace: its own stands only in some lines."""


ARENA: Final = "bfc_arena.cc:"
"""In each text that `as_tensorflow` changes."""


def as_tensorflow(text: str) -> str:
    """The lines of an arena's log as TensorFlow's allocator writes them; other text is returned as it is."""
    if ARENA not in text:
        return text
    text = _PREFIX.sub(_onnx_prefix_as_tensorflow, text)
    return _HEADER.sub(rf"Allocator ({NAME}) ran out of memory trying to allocate \1B", text)


def _onnx_prefix_as_tensorflow(found: re.Match[str]) -> str:
    """The prefix of a line of ONNX Runtime's log as TensorFlow writes it."""
    clock = found["clock"].ljust(15, "0")
    return f"{found['date']} {clock}: I {SOURCE}:{found['line']}] "


# ------------------------------------------------------------------------------
# Words of its settings.

WORDS: Final = SettingWords(
    title="ONNX Runtime",
    limit="gpu_mem_limit={size} of the CUDA provider (max_mem of OrtArenaCfg)",
    release="memory.enable_memory_arena_shrinkage=gpu:0 in the RunOptions",
    heap="log_severity_level=0",
    history="log_severity_level=0",
)
