"""PickleBytes: reads numbers, texts and lines from the bytes of a pickle."""

from bfcviz.errors import FileError


class EndOfPickle(Exception):
    """The data ends before the pickle does."""


class PickleBytes:
    """The bytes of a pickle, and a position in them.

    Args:
        path: of the file, for errors.
        data: all of it.
    """

    def __init__(self, path: object, data: bytes) -> None:
        self._path = path
        self._data = data
        self._bytes = data
        self._at = 0
        self._stop = len(data)

    def _number(self, size: int) -> int:
        """The next `size` bytes as a number without a sign."""
        if size > self._stop - self._at:
            raise EndOfPickle
        number = 0
        for place in range(self._at + size - 1, self._at - 1, -1):
            number = (number << 8) | self._bytes[place]
        self._at += size
        return number

    def _slice(self, length: int) -> bytes:
        if length > self._stop - self._at:
            self._slice_length(length)
            raise EndOfPickle
        start = self._at
        self._at += length
        return self._data[start : start + length]

    def _slice_length(self, length: int) -> None:
        """A length beyond the end means that the file is cut off; one beyond all files means damage."""
        if length >> 40:
            raise self._damage(f"announces {length:,} bytes")

    def _line(self, longest: int) -> bytes:
        end = self._data.find(b"\n", self._at, self._at + longest + 1)
        if end < 0:
            if self._stop - self._at <= longest:
                raise EndOfPickle
            raise self._damage(f"holds a number of more than {longest} digits")
        start, self._at = self._at, end + 1
        return self._data[start:end]

    def _damage(self, reason: str, back: int = 0) -> FileError:
        return FileError(self._path, f"byte {self._at - back:,}", reason)
