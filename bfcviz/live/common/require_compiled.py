"""Serving a framework and recording stacks need the compiled build: a framework calls C functions for its memory."""

from typing import Final

from bfcviz import _compiled
from bfcviz.errors import LiveError

IS_COMPILED: Final = all(_compiled.load(name) for name in ("bfcviz._heap", "bfcviz._live"))
"""Whether the heap and the functions that frameworks call run as machine code in this process."""


def require_compiled(what: str) -> None:
    """Refuse what only the compiled build can do; call this before anything changes.

    Args:
        what: the request, as the subject of a sentence: "Serving NumPy".

    Raises:
        LiveError: bfcviz runs as plain Python here.
    """
    if not IS_COMPILED:
        why, advice = _compiled.why_uncompiled()
        raise LiveError(f"{what} needs the compiled build of bfcviz, and {why}. {advice}")
