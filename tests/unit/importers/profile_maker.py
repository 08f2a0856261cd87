"""Profiles written byte by byte, so that the reader is not tested against itself."""

import struct
import zlib
from collections.abc import Iterable, Mapping

Stats = Mapping[str, object]


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers take ten bytes
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def chunk(field: int, payload: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(payload)) + payload


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


class PlaneMaker:
    """One plane; names become metadata on first use."""

    def __init__(self, name: str = "/host:CPU") -> None:
        self.name = name
        self.events: dict[str, int] = {}
        self.stats: dict[str, int] = {}
        self.lines = b""

    def _stat(self, name: str, value: object) -> bytes:
        out = number(1, self.stats.setdefault(name, len(self.stats) + 1))
        if isinstance(value, float):
            out += double(2, value)
        elif isinstance(value, int):
            out += number(4, value) if value < 1 << 63 else number(3, value)
        elif isinstance(value, bytes):
            out += chunk(5, value)
        else:
            out += number(7, self.stats.setdefault(str(value), len(self.stats) + 1))
        return chunk(4, out)

    def event(self, name: str, offset_ps: int, stats: Stats) -> bytes:
        out = number(1, self.events.setdefault(name, len(self.events) + 1)) + number(2, offset_ps)
        return chunk(4, out + b"".join(self._stat(*item) for item in stats.items()))

    def line(self, name: str, events: Iterable[tuple[str, int, Stats]], timestamp_ns: int = 1000) -> None:
        out = (
            number(1, zlib.crc32(name.encode()) & 0xFFFF) + chunk(2, name.encode()) + number(3, timestamp_ns)
        )
        self.lines += chunk(3, out + b"".join(self.event(*event) for event in events))

    def to_bytes(self) -> bytes:
        out = chunk(2, self.name.encode()) + self.lines
        for field, names in ((4, self.events), (5, self.stats)):
            for name, key in names.items():
                metadata = number(1, key) + chunk(2, name.encode())
                out += chunk(field, number(1, key) + chunk(2, metadata))
        return chunk(1, out)


def memory(allocator: str, address: int, size: int, in_use: int, **more: object) -> dict[str, object]:
    """The stats of a memory event; `more` adds to them or replaces some."""
    stats: dict[str, object] = {
        "allocator_name": allocator,
        "bytes_reserved": 0,
        "bytes_allocated": in_use,
        "bytes_available": (1 << 30) - in_use,
        "fragmentation": 0,
        "peak_bytes_in_use": in_use,
        "requested_bytes": size,
        "allocation_bytes": size,
        "addr": address,
        "id": 0,
        "data_type": 1,
    }
    return stats | more
