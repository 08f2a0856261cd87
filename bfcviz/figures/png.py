"""A picture as PNG bytes, in a few lines: 8 bits of red, green, blue and opacity, zlib.

A line that is the same as the one above it is written as no difference (the filter called Up): rows of a map are
several lines each.
"""

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGBA_8_BIT = (8, 6, 0, 0, 0)
_PLAIN, _UP = 0, 2  # filters
_FAST = 1  # flat colours compress well at any level, and the slider is waiting


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """`pixels` (height, width, 4) as a PNG file."""
    height, width, _ = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, *_RGBA_8_BIT)
    flat = np.ascontiguousarray(pixels).reshape(height, 4 * width)
    repeats = np.zeros(height, dtype=bool)
    repeats[1:] = (flat[1:] == flat[:-1]).all(axis=1)
    # Each line begins with the number of its filter.
    lines = np.zeros((height, 1 + 4 * width), dtype=np.uint8)
    lines[:, 0] = np.where(repeats, _UP, _PLAIN)
    lines[~repeats, 1:] = flat[~repeats]
    body = zlib.compress(lines.tobytes(), _FAST)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def data_uri(pixels: NDArray[np.uint8]) -> str:
    """`pixels` as the text plotly takes for an image's source."""
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels)).decode("ascii")


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
