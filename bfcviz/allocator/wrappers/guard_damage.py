"""Damage: guard words that somebody has overwritten, told with both chunks that may have done it."""

from typing import Literal, NamedTuple

Side = Literal["before", "after"]


class Guarded(NamedTuple):
    """A chunk in use between guard words, as its owner knows it; sizes in bytes.

    Attributes:
        address: what the owner was given.
        size: what the owner asked for.
        label: what it is for.
        start: where the chunk of the allocator inside begins.
        total: what that one was asked for, guard words included.
        number: of the request, counting this wrapper's successes from 1.
    """

    address: int
    size: int
    label: str
    start: int
    total: int
    number: int

    @property
    def end(self) -> int:
        """The first address behind what was asked for."""
        return self.address + self.size

    def __str__(self) -> str:
        return f"{self.label or 'a chunk without a label'!r} ({_bytes(self.size)} at {self.address:#x})"


class Damage(NamedTuple):
    """One side of a chunk whose guard words have changed.

    Attributes:
        chunk: whose guard words they are.
        side: on which side of it.
        address: the first changed byte.
        num_bytes: from there to the last changed byte.
        found: what stands there now.
        neighbour: the chunk in use next to that side, None where there is none.
    """

    chunk: Guarded
    side: Side
    address: int
    num_bytes: int
    found: bytes
    neighbour: Guarded | None

    def __str__(self) -> str:
        if self.side == "after":
            where = f"{_bytes(self.address - self.chunk.end)} past its end"
        else:
            where = f"{_bytes(self.chunk.address - self.address)} before its beginning"
        edge = "end" if self.side == "after" else "beginning"
        return (
            f"the guard words {self.side} {self.chunk} were overwritten, {_bytes(self.num_bytes)} from "
            f"{self.address:#x} on, {where}, with {self.found[:16].hex(' ')}: who wrote there passed this chunk's "
            f"{edge}, {self._other()}"
        )

    def _other(self) -> str:
        if self.neighbour is None:
            return f"for no other chunk is in use {self.side} it"
        if self.side == "after":
            return (
                f"or the beginning of {self.neighbour}, {_bytes(self.neighbour.address - self.chunk.end)} on"
            )
        return f"or the end of {self.neighbour}, {_bytes(self.chunk.address - self.neighbour.end)} back"


def _bytes(number: int) -> str:
    return "1 byte" if number == 1 else f"{number} bytes"
