"""PaddlePaddle: what its allocator prints when the device refuses."""

from typing import Final

from bfcviz.formats.messages import Message, Number

MESSAGES: Final = (
    Message(
        "paddle",
        "PaddlePaddle",
        "The driver refused a request. What has been allocated is what all processes hold together, as the driver "
        "counts it.",
        ("Out of memory error on GPU {number}. Cannot allocate {size}",),
        "paddle/phi/core/memory/allocation/cuda_allocator.cc",
        family="paddle",
        numbers=(
            Number("requested", "bytes that were asked of the driver", ("Cannot allocate {size}",)),
            Number(
                "device_used",
                "in use on the device by all processes (2.0 and later)",
                ("{size} memory has been allocated",),
            ),
            Number("device_free", "free on the device", ("available memory is only {size}",)),
        ),
    ),
)
"""Texts of PaddlePaddle."""
