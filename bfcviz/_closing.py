"""Closing: for what has a `close`, as a context manager."""

from types import TracebackType
from typing import Self


class Closing:
    """Closes itself at the end of a `with`; a subclass has `close`."""

    def close(self) -> None:
        """Give back what it has."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
