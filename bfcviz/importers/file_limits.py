"""How much an imported file may hold for its size on disk. All caps of the importers are defined here.

A gzip file can unpack to 1000 times its size, and a message of two bytes becomes a Python object of some hundred
bytes. So each cap is proportional to the size of the file on disk. Every file may hold the floor, so that small files
are not refused.

An uncompressed file does not reach these caps in practice: its events need more bytes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bfcviz.errors import FileError
from bfcviz.units import format_bytes

MAX_BYTES: Final = (2 << 30) - 1
"""Maximum length of a Protocol Buffers message."""

MAX_EVENT_BYTES: Final = 1 << 20
"""Of one event; events in the bundled profiles have at most 300."""

MAX_NAME_BYTES: Final = 1 << 16
"""Of one name: of an operation, a shape, a thread or a plane; at most 284 in the bundled profiles."""


@dataclass(frozen=True, eq=False)  # compared and hashed by identity, which is fast
class Cap:
    """The maximum count of `what` in an imported file: `rate` for each byte of the file, and at least `floor`."""

    what: str
    rate: float
    floor: int

    def most(self, file_size: int) -> int:
        """The maximum for a file of this size in bytes."""
        return max(self.floor, int(self.rate * file_size))


# Behind each: the most in the three bundled profiles, per byte of the file.
UNPACKED: Final = Cap("unpacked bytes", 16, 4 << 20)  # 7.3
UNPACKED_TEXT: Final = Cap("unpacked bytes of text", 128, 64 << 20)  # 80, of a log
UNPACKED_JSON: Final = Cap("unpacked bytes", 64, 4 << 20)
"""Of a Chrome trace, which is read in pieces; its text repeats itself more than a profile does."""
PARTS: Final = Cap("parts of planes (lines, names, statistics)", 1 / 8, 1 << 17)  # 1/309, planes included
EVENTS: Final = Cap("events", 1, 1 << 17)  # 1/9.5
STATS: Final = Cap("stats of memory events", 4, 1 << 20)  # 0.71
MEMORY_EVENTS: Final = Cap("memory events", 1 / 6, 1 << 16)  # 1/18
CHUNKS: Final = Cap("chunks", 1 / 12, 1 << 17)  # 1/28, of a memory dump
LABELS: Final = Cap("different labels", 1 / 16, 1 << 14)  # 1/857
TEXT: Final = Cap("characters of names", 4, 1 << 21)  # 0.08, of labels and heaps


class Limits:
    """Counts what an imported file holds; raises an error above the cap for its bytes on disk, compressed or not."""

    def __init__(self, path: object, file_size: int) -> None:
        self.path = path
        self.file_size = file_size
        self._left: dict[Cap, int] = {}  # how many more of each cap the file may hold

    @classmethod
    def of(cls, path: Path) -> "Limits":
        """The limits of a file on disk.

        Raises:
            FileError: the file does not exist.
        """
        try:
            return cls(path, path.stat().st_size)
        except (OSError, ValueError) as error:
            raise FileError(path, "", f"cannot be read: {getattr(error, 'strerror', error)}") from None

    def count(self, cap: Cap, more: int, place: str = "") -> None:
        """Add `more` to the count of what the file holds.

        Raises:
            FileError: the count exceeds the cap.
        """
        left = self._left.get(cap)
        self._left[cap] = left = (cap.most(self.file_size) if left is None else left) - more
        if left < 0:
            raise self.exceeded(cap, place)

    def exceeded(self, cap: Cap, place: str = "") -> FileError:
        """The error for a file that holds more than a cap."""
        return FileError(
            self.path,
            place,
            f"holds more than {cap.most(self.file_size):,} {cap.what}, the limit for a file of "
            f"{format_bytes(self.file_size)}; real profiles hold far fewer. If this one is real and compressed, "
            "unpack it with gunzip first; otherwise record it again",
        )
