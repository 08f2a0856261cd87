"""ONNX Runtime: its arena is a BFC allocator, with messages of its own."""

from typing import Final

from bfcviz.formats.messages import Message, Number

_SOURCE: Final = "onnxruntime/core/framework/bfc_arena.cc"

MESSAGES: Final = (
    Message(
        "onnx-limit",
        "ONNX Runtime",
        "The arena reached its limit. It has one only if the program set it (gpu_mem_limit, max_mem).",
        ("Available memory of {number} is smaller than requested bytes of",),
        _SOURCE,
        family="onnx",
        numbers=(
            Number("requested", "bytes of the request, rounded to 256", ("requested bytes of {number}",)),
            Number("available", "how far the arena may still grow", ("Available memory of {number}",)),
        ),
        marks={"Available memory": "arena_limit"},
        behind=300,
    ),
    Message(
        "onnx-driver",
        "ONNX Runtime",
        "The device refused a region for the arena, also when the arena asked for less.",
        ("Failed to allocate memory for requested buffer of size",),
        _SOURCE,
        family="onnx",
        numbers=(Number("requested", "bytes of the request, rounded to 256", ("buffer of size {number}",)),),
        behind=300,
    ),
    Message(
        "onnx-arena",
        "ONNX Runtime",
        "The arena ran out; its chunks may follow.",
        (
            "BFC Arena ran out of memory trying to allocate",
            "Failed to find a free memory block despite calling Extend",
        ),
        _SOURCE,
        family="onnx",
        numbers=(
            Number(
                "requested", "bytes of the request", ("trying to allocate {number}", "rounded_bytes={number}")
            ),
        ),
    ),
)
"""Texts of ONNX Runtime."""
