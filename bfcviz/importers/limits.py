"""Limits: how much a profile may hold for the size of its file. Every cap of the importer is stated here.

A gzip file unpacks to as much as 1000 times its size, and a message of two bytes becomes a Python object of some
hundred. So each cap is a rate by the size of the file on disk. Every file may hold the floor, so that small files
are not refused for their small size.

===================  ===========  =========  ====================================================
what                 a file byte  floor      the most of the three bundled profiles, a file byte
===================  ===========  =========  ====================================================
unpacked bytes       16           4 MiB      7.3
parts of planes      1/8          131,072    1/309 (planes, lines, names, statistics)
events               1            131,072    1/9.5
stats                4            1,048,576  0.71 (of memory events)
memory events        1/6          65,536     1/18
labels               1/16         16,384     1/857
characters of names  4            2,097,152  0.08 (of labels and heaps)
===================  ===========  =========  ====================================================

A file that is not packed meets none of these in practice: its events take more bytes than that.
"""

from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from bfcviz.errors import FileError
from bfcviz.units import format_bytes

MAX_BYTES: Final = (2 << 30) - 1
"""Protocol Buffers allow no longer message."""

MAX_EVENT_BYTES: Final = 1 << 20
"""Of one event; those of the bundled profiles have 300 at most."""

MAX_NAME_BYTES: Final = 1 << 16
"""Of one name that is read: of an operation, a shape, a thread, a plane; 284 at most in the bundled profiles."""


class Cap(NamedTuple):
    """The most of one thing: `rate` for each byte of the file, and at least `floor`."""

    what: str
    rate: float
    floor: int

    def most(self, file_size: int) -> int:
        """The cap of a file of this size."""
        return max(self.floor, int(self.rate * file_size))


UNPACKED: Final = Cap("unpacked bytes", 16, 4 << 20)
PARTS: Final = Cap("parts of planes (lines, names, statistics)", 1 / 8, 1 << 17)
EVENTS: Final = Cap("events", 1, 1 << 17)
STATS: Final = Cap("stats of memory events", 4, 1 << 20)
MEMORY_EVENTS: Final = Cap("memory events", 1 / 6, 1 << 16)
LABELS: Final = Cap("different labels", 1 / 16, 1 << 14)
TEXT: Final = Cap("characters of names", 4, 1 << 21)


class Limits:
    """Counts what one file holds, and refuses what is more than a file of its size can honestly hold.

    Args:
        path: of the file, for the error.
        file_size: its bytes on disk, packed or not.
    """

    def __init__(self, path: object, file_size: int) -> None:
        self.path = path
        self.file_size = file_size
        self._counted = Counter[Cap]()

    @classmethod
    def of(cls, path: Path) -> "Limits":
        """The limits of a file on disk.

        Raises:
            FileError: there is no such file.
        """
        try:
            return cls(path, path.stat().st_size)
        except (OSError, ValueError) as error:
            raise FileError(path, "", f"cannot be read: {getattr(error, 'strerror', error)}") from None

    def count(self, cap: Cap, more: int, place: str = "") -> None:
        """Count `more` of something.

        Raises:
            FileError: that is more than the cap.
        """
        self._counted[cap] += more
        if self._counted[cap] > cap.most(self.file_size):
            raise self.exceeded(cap, place)

    def exceeded(self, cap: Cap, place: str = "") -> FileError:
        """The error for a file that holds more than a cap."""
        return FileError(
            self.path,
            place,
            f"holds more than {cap.most(self.file_size):,} {cap.what}, the most that a file of "
            f"{format_bytes(self.file_size)} may hold; a real profile holds far fewer. If this one is real and packed, "
            "unpack it with gunzip first; otherwise record it again",
        )
