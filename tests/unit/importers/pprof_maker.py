"""A memory profile as JAX writes it, made byte by byte."""

import json
from collections.abc import Iterable
from pathlib import Path

from shared import write_anew
from unit.importers.profile_maker import chunk, number, varint

from bfcviz.cli.info import info
from bfcviz.errors import FileError
from bfcviz.importers.open_trace import open_trace

FRAMES = [("compile", "/jax/compiler.py", 288), ("step", "/my/train.py", 7), ("main", "/my/train.py", 90)]


def made(
    holders: list[tuple[str, str, int, int]], types: tuple[str, ...] = ("allocations", "space")
) -> bytes:
    """A profile as JAX writes it: kind, device, allocations and bytes of each holder; the stack is FRAMES."""
    texts = ["", *types, "count", "bytes", "kind", "device"]

    def text(value: str) -> int:
        if value not in texts:
            texts.append(value)
        return texts.index(value)

    data = b"".join(
        chunk(1, number(1, text(name)) + number(2, text(unit)))
        for name, unit in zip(types, ("count", "bytes"), strict=False)
    )
    for kind, device, count, size in holders:
        body = chunk(1, b"".join(map(varint, range(1, len(FRAMES) + 1)))) + chunk(
            2, varint(count) + varint(size)
        )
        body += chunk(3, number(1, text("kind")) + number(2, text(kind)))
        if device:
            body += chunk(3, number(1, text("device")) + number(2, text(device)))
        data += chunk(2, body)
    for at, (function, file, line) in enumerate(FRAMES, 1):
        data += chunk(4, number(1, at) + chunk(4, number(1, at) + number(2, line)))
        data += chunk(5, number(1, at) + number(2, text(function)) + number(4, text(file)))
    return data + b"".join(chunk(6, each.encode()) for each in texts)


HOLDERS = [
    ("executable", "", 2, 5000),
    ("buffer", "cuda:0", 3, 3000),
    ("buffer", "cuda:1", 1, 64),
    ("buffer", "cuda:0", 1, 0),
    ("buffer", "cuda:0", 1, 4096),
]


def said_to_be_cut(folder: Path, data: bytes, lengths: Iterable[int]) -> int:
    """How many beginnings of a profile, of these lengths, open and say where it is cut off; others are one error."""
    said, path = 0, folder / "cut.prof"
    for keep in lengths:
        write_anew(path, data[:keep])
        try:
            trace = open_trace(path)
        except FileError:
            continue
        json.dumps(info(trace), allow_nan=False)
        cut = trace.origin.reasons[0] == f"the profile is cut off at byte {keep}"
        assert trace.origin.lacks_end >= cut
        said += cut
    return said
