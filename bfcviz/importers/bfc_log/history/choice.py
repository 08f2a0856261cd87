"""Choose how to read a log: as a history, or as the states of its dumps."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bfcviz.events.trace import Trace
from bfcviz.importers.bfc_log.history.log_memory import holds_log_memory, read_log_memory
from bfcviz.importers.bfc_log.history.vlog import holds_regions, holds_requests, read_vlog
from bfcviz.importers.bfc_log.records import LogRecord

HistoryReader = Callable[[Iterable[LogRecord], Path, Sequence[str]], Trace]


def history_reader(text: str) -> HistoryReader | None:
    """What reads the history in a log; None if it holds none, or only regions beside the dump of a failure."""
    if holds_requests(text):
        return read_vlog
    if holds_log_memory(text):
        return read_log_memory
    return read_vlog if holds_regions(text) and "ran out of memory trying" not in text else None
