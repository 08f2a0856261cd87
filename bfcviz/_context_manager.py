"""A base class that makes objects with `close` context managers."""

from types import TracebackType
from typing import Self


class Closing:
    """Calls `close` at the end of a `with`; subclasses define `close`."""

    def close(self) -> None:
        """Release its resources."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
