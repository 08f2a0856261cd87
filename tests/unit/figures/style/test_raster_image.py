import base64
import struct
import zlib

import numpy as np

from bfcviz.figures.raster_image import data_uri, encode_png


def decode(body):
    """A PNG reader of its own, for what the writer may produce."""
    assert body[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = [], 8
    while at < len(body):
        (length,) = struct.unpack(">I", body[at : at + 4])
        name, content = body[at + 4 : at + 8], body[at + 8 : at + 8 + length]
        (check,) = struct.unpack(">I", body[at + 8 + length : at + 12 + length])
        assert check == zlib.crc32(name + content)
        chunks.append((name, content))
        at += 12 + length
    assert [name for name, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colours, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert (depth, colours, rest) == (8, 6, [0, 0, 0])
    lines = np.frombuffer(zlib.decompress(chunks[1][1]), np.uint8).reshape(height, 1 + 4 * width)
    pixels = lines[:, 1:].copy()
    for line in np.flatnonzero(lines[:, 0]):
        assert lines[line, 0] == 2
        pixels[line] += pixels[line - 1]
    return pixels.reshape(height, width, 4)


def test_every_pixel_comes_back():
    pixels = np.random.default_rng(1).integers(0, 256, (13, 7, 4), dtype=np.uint8)
    assert np.array_equal(decode(encode_png(pixels)), pixels)


def test_lines_that_repeat_cost_next_to_nothing():
    pixels = np.random.default_rng(1).integers(0, 256, (1, 300, 4), dtype=np.uint8)
    many = np.repeat(pixels, 100, axis=0)
    assert np.array_equal(decode(encode_png(many)), many)
    assert len(encode_png(many)) < 2 * len(encode_png(pixels))


def test_lines_can_be_some_high_with_clear_ones_around():
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 4), dtype=np.uint8)
    lines = np.repeat(pixels[:, None], 6, axis=1)
    lines[:, :2] = lines[:, -2:] = 0
    assert np.array_equal(decode(encode_png(pixels, 6, 2)), lines.reshape(30, 7, 4))


def test_data_uri_holds_the_png():
    pixels = np.zeros((2, 3, 4), np.uint8)
    head, body = data_uri(pixels).split(",", 1)
    assert head == "data:image/png;base64"
    assert np.array_equal(decode(base64.b64decode(body)), pixels)
