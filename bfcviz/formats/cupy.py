"""CuPy's text when memory runs out."""

from typing import Final

from bfcviz.formats.messages import Message, Number

MESSAGES: Final = (
    Message(
        "cupy",
        "CuPy",
        "The pool of CuPy asked the driver, returned its free blocks, asked again, and was refused; or it reached "
        "its own limit, which the text then names.",
        ("Out of memory allocating {number} bytes", "out of memory to allocate {number} bytes"),
        "cupy/cuda/memory.pyx, OutOfMemoryError",
        family="cupy",
        numbers=(
            Number(
                "requested",
                "bytes of the request, rounded to 512",
                ("allocating {size}", "to allocate {size}"),
            ),
            Number("allocated", "what the pool holds, in use or free", ("allocated so far: {size}",)),
            Number(
                "total_with_request", "the pool and the refused request (CuPy up to 5)", ("(total {size})",)
            ),
            Number("limit", "the limit that was set", ("limit set to: {size}",)),
        ),
        versions={"limit set to": "6 or later", "allocated so far": "6 or later", "(total": "1 to 5"},
        behind=40,
    ),
)
"""Texts of CuPy."""
