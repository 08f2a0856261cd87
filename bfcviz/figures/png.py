"""Encode an image as PNG: 8 bits each of red, green, blue and opacity, compressed by zlib.

A line equal to the one above it is stored as zero differences (filter type Up): a row of a map is several equal
lines.
"""

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGBA_8_BIT = (8, 6, 0, 0, 0)
_PLAIN, _UP = 0, 2  # filters
_FAST = 1  # flat colours compress well at any level, and low levels are fast


def encode_png(pixels: NDArray[np.uint8], high: int = 1, gap: int = 0) -> bytes:
    """`pixels` (height, width, 4) as a PNG file.

    Args:
        pixels: red, green, blue and opacity.
        high: lines of the image per line of `pixels`.
        gap: of these lines, how many are transparent at the top and at the bottom each; fewer than half.
    """
    height, width, _ = pixels.shape
    # Each line begins with the number of its filter type.
    if high > 1:
        clear, same = bytes(1 + 4 * width), bytes([_UP]) + bytes(4 * width)
        before, after = clear * gap + bytes([_PLAIN]), same * (high - 2 * gap - 1) + clear * gap
        lines = b"".join(before + line.tobytes() + after for line in pixels)
    else:
        flat = np.ascontiguousarray(pixels).reshape(height, 4 * width)
        repeats = np.zeros(height, dtype=bool)
        repeats[1:] = (flat[1:] == flat[:-1]).all(axis=1)
        table = np.zeros((height, 1 + 4 * width), dtype=np.uint8)
        table[:, 0] = np.where(repeats, _UP, _PLAIN)
        table[~repeats, 1:] = flat[~repeats]
        lines = table.tobytes()
    header = struct.pack(">IIBBBBB", width, height * high, *_RGBA_8_BIT)
    body = zlib.compress(lines, _FAST)
    return _SIGNATURE + _png_chunk(b"IHDR", header) + _png_chunk(b"IDAT", body) + _png_chunk(b"IEND", b"")


def data_uri(pixels: NDArray[np.uint8], high: int = 1, gap: int = 0) -> str:
    """The PNG of `encode_png` as a data URI, plotly's `source` of an image."""
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels, high, gap)).decode("ascii")


def _png_chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
