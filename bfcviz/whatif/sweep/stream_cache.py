"""StreamCache: the request streams that a process has read, so that it reads each trace once."""

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from bfcviz.errors import BfcvizError
from bfcviz.whatif.requests import RequestStream

MOST_BYTES: Final = 1 << 30
"""Of the streams in memory; the one that was not used for longest is dropped."""


class CachedStream(NamedTuple):
    """A stream, and the most bytes that it requests at once."""

    stream: RequestStream
    peak_requested: int


class _ReadTrace:
    """What reading a trace gave."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # held while it is read: other threads wait, and do not read it again
        self.found: CachedStream | None = None
        self.error: BfcvizError | None = None

    def num_bytes(self) -> int:
        return self.found.stream.rows.nbytes if self.found is not None else 0


class StreamCache:
    """Streams by key, and the errors of traces that cannot be read. It is thread-safe.

    Args:
        most_bytes: of all streams together; the newest is always kept.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, _ReadTrace] = {}  # the one used last is the last
        self._most_bytes = most_bytes

    def get(self, key: str, read: Callable[[], RequestStream]) -> CachedStream:
        """The stream of this key, which `read` returns the first time.

        Raises:
            BfcvizError: what `read` raised the first time.
        """
        with self._lock:
            entry = self._entries.pop(key, None) or _ReadTrace()
            self._entries[key] = entry
        with entry.lock:
            if entry.found is None and entry.error is None:
                try:
                    stream = read()
                    entry.found = CachedStream(stream, int(stream.live_bytes.max(initial=0)))
                except BfcvizError as error:
                    entry.error = error
        if entry.found is None:
            assert entry.error is not None
            raise entry.error.with_traceback(None)
        self._drop()
        return entry.found

    def forget(self, prefix: str) -> None:
        """Drop all streams whose key begins with this."""
        with self._lock:
            self._entries = {key: entry for key, entry in self._entries.items() if not key.startswith(prefix)}

    def __len__(self) -> int:
        return len(self._entries)

    def _drop(self) -> None:
        with self._lock:
            total = sum(entry.num_bytes() for entry in self._entries.values())
            for key in list(self._entries)[:-1]:
                if total <= self._most_bytes:
                    break
                total -= self._entries.pop(key).num_bytes()


STREAMS: Final = StreamCache()
"""Of this process."""
