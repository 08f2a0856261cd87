"""Places in code: the frames of a stack as text, and the one that names an allocation: `train.py:41 forward`."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

_FRAME: Final = re.compile(r"^(?P<function>.*) \((?P<file>.*):(?P<line>\d{1,9})\)$")
_LIBRARIES: Final = re.compile(
    r"[/\\](?:site-packages|dist-packages|torch|tensorflow|jax|numpy|cupy|lib[/\\]python3[^/\\]*)[/\\]"
    r"|^<(?:frozen |__array_function__)"
)
_CELL: Final = re.compile(r"[/\\]ipykernel_\d+[/\\]\d+\.py$")
UNKNOWN_FILE: Final = "??"
"""The file of a frame that PyTorch could not find."""


class CodePlace(NamedTuple):
    """A frame of a stack.

    Attributes:
        function: its name, qualified or not: `Net.forward`, `<module>`.
        file: its path as the program knows it; `??` or empty: unknown.
        line: 0: unknown.
    """

    function: str
    file: str
    line: int

    @property
    def text(self) -> str:
        """A line of a stack: `forward (/home/me/train.py:41)`."""
        return f"{self.function} ({self.file}:{self.line})"

    @property
    def name(self) -> str:
        """`train.py:41 forward`; `train.py:41` outside of a function; the function alone if the file is unknown."""
        if self.file in ("", UNKNOWN_FILE):
            return self.function
        file = "cell" if _CELL.search(self.file) else self.file.replace("\\", "/").rpartition("/")[2]
        line = f":{self.line}" if self.line else ""
        return f"{file}{line} {self._scope}".rstrip()

    @property
    def _scope(self) -> str:
        """The function around a lambda or comprehension; empty at module level."""
        scopes = self.function.split(".<locals>.")
        return next((scope for scope in reversed(scopes) if not scope.startswith("<")), "")


def own_place(places: Iterable[CodePlace]) -> CodePlace | None:
    """The first place in Python code outside of libraries, else the first in Python code, else the first one.

    Args:
        places: a stack, the innermost frame first.
    """
    best: CodePlace | None = None
    rank = 0
    for place in places:
        found = _rank(place)
        if found > rank:
            best, rank = place, found
    return best


def places_of(stack: str) -> list[CodePlace]:
    """The frames of a stack as text; lines of another form are left out."""
    matches = (_FRAME.match(line) for line in stack.split("\n"))
    return [CodePlace(match["function"], match["file"], int(match["line"])) for match in matches if match]


def _rank(place: CodePlace) -> int:
    if place.file == UNKNOWN_FILE:
        return 1
    if not place.file.endswith((".py", ">", "]")):  # In[5]: a cell of a notebook
        return 2
    return 3 if _LIBRARIES.search(place.file) else 4
