"""The progress of a search as a line on a terminal, and Ctrl-C, which ends it with what is known so far."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bfcviz.cli.common.reading import ProgressBar
from bfcviz.periodic import Periodic
from bfcviz.whatif.search.control import SearchControl


@contextmanager
def search_control(text: str) -> Iterator[SearchControl]:
    """A control for one search; until the end of the `with` a terminal shows how far it is."""
    if not sys.stderr.isatty():
        yield SearchControl()
        return
    bar = ProgressBar(text, sys.stderr)

    def progress(done: int, total: int, _text: str) -> None:
        bar.share = done / max(total, 1)

    drawing = Periodic(bar.draw, "bfcviz-progress")
    drawing.start()
    try:
        yield SearchControl(progress)
    finally:
        bar.erase()
        drawing.stop()
