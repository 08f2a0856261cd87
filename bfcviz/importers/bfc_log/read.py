"""Read a log of TensorFlow, XLA or JAX: each dump of a heap becomes a pool of the trace."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bfcviz.errors import FileError, TraceError
from bfcviz.events.label_table import Labels
from bfcviz.events.origin import MAX_POOLS, STATE_ONLY, Origin, Status, end_missing
from bfcviz.events.schema import Events
from bfcviz.events.trace import Trace
from bfcviz.formats import onnxruntime
from bfcviz.formats.xla import JAX_WORDS, REACTANT, TENSORFLOW_WORDS, XLA_ERROR
from bfcviz.importers.bfc_log.failure_dumps import (
    RERUN,
    Dump,
    DumpCollector,
    FailedPool,
    attach_errors,
    dumps_for_notes,
    failed_pools,
)
from bfcviz.importers.bfc_log.log_lines import (
    CHUNK_LINES,
    LogPieces,
    LogRecord,
    LogText,
    log_text,
    records,
)
from bfcviz.importers.bfc_log.log_memory_lines import holds_log_memory, read_log_memory
from bfcviz.importers.bfc_log.peak_buffers import peak_buffer_tables
from bfcviz.importers.bfc_log.vlog import holds_regions, holds_requests, read_vlog
from bfcviz.importers.event_makers import one_after_another
from bfcviz.importers.file_content import UNPACKED_TEXT, read_content
from bfcviz.importers.file_format import Format
from bfcviz.importers.message_reader import device_of_messages

HistoryReader = Callable[[Iterable[LogRecord], Path, Sequence[str]], Trace]


def history_reader(pieces: Iterable[str]) -> HistoryReader | None:
    """What reads the history in a log; None if it holds none, or only regions beside the dump of a failure."""
    requests = tensors = regions = failure = False
    for text in pieces:
        if requests := requests or holds_requests(text):  # decides alone
            continue
        tensors = tensors or holds_log_memory(text)
        regions = regions or holds_regions(text)
        failure = failure or "ran out of memory trying" in text
    if requests:
        return read_vlog
    if tensors:
        return read_log_memory
    return read_vlog if regions and not failure else None


def read_log(path: Path) -> Trace:
    """The trace in a log: the history of its heaps, or else one pool for each dump, in the order of the file.

    Raises:
        FileError: the file cannot be read, or holds no line about the memory of a BFC allocator.
    """
    pieces = LogPieces(path)
    read_history = history_reader(pieces.pieces)
    if read_history is not None and not pieces.needs_whole:
        return read_history(records(pieces), path, [] if pieces.cut is None else [pieces.cut])
    content = read_content(path, unpacked=UNPACKED_TEXT)
    log = log_text(content.data)
    read_history = history_reader(log.pieces) if pieces.needs_whole else None
    if read_history is not None:
        return read_history(records(log), path, [] if content.cut is None else [content.cut])
    collector = DumpCollector()
    collector.take_all(records(log, CHUNK_LINES.pattern))
    dumps = attach_errors(collector.dumps, collector.texts)
    dumps += dumps_for_notes(dumps, collector.notes)
    if not dumps:
        raise FileError(path, "", f"the log holds no dump of a BFC allocator and no failed request; {RERUN}")
    labels = Labels()
    kept = dumps[:MAX_POOLS]
    try:
        pools = failed_pools(kept, collector.notes, labels)
        reasons = _bfc_log_reasons(pools)
        if collector.left_out or len(dumps) > MAX_POOLS:
            reasons.append(_dumps_left_out(dumps, collector))
        status = _bfc_log_status(pools, reasons)
        if content.cut is not None:
            reasons.append(content.cut)
            status = Status.TRUNCATED if status is Status.COMPLETE else status
        origin = Origin(
            format=Format.TENSORFLOW_LOG.value,
            source=path.name,
            status=status,
            reasons=tuple(reasons),
            pools=tuple(each.pool for each in pools),
            details=_bfc_log_details(kept, pools, log) | end_missing(content.cut),
        )
        return Trace.from_events(_bfc_log_events(pools), labels, origin)
    except TraceError as error:
        raise FileError(path, f"from line {dumps[0].line}", str(error)) from None


def _bfc_log_reasons(pools: list[FailedPool]) -> list[str]:
    """What is wrong with the dumps of a log, as reasons of the trace's origin."""
    reasons = []
    for each in pools:
        wrong = [*each.findings.wrong, *filter(None, [each.findings.cut])]
        reasons += [f"{each.pool.name}: {why}" for why in wrong]
    return reasons


def _dumps_left_out(dumps: list[Dump], collector: DumpCollector) -> str:
    """A reason of the trace's origin: how many dumps of the log were left out."""
    more = dumps[MAX_POOLS:]
    line = more[0].line if more else collector.left_out_line
    return (
        f"the log holds more than {MAX_POOLS} dumps and failures, the most that a trace can hold: at least "
        f"{len(more) + collector.left_out:,} from line {line:,} on were left out; cut the log there to open them"
    )


def _bfc_log_status(pools: list[FailedPool], reasons: list[str]) -> Status:
    """How complete a log with dumps is, for the trace's origin."""
    if not reasons:
        return Status.COMPLETE
    only_end = len(reasons) == 1 and pools[-1].findings.cut and not pools[-1].findings.wrong
    return Status.TRUNCATED if only_end else Status.DEGRADED


def _bfc_log_details(dumps: list[Dump], pools: list[FailedPool], log: LogText) -> dict[str, Any]:
    """The details of the trace's origin, from a log with dumps."""
    failures, end, text, device = [], 0, log.text, device_of_messages(log.text)
    for each in pools:
        end += len(each.events)
        if each.failure is not None:
            failures.append(replace(each.failure, event=end - 1, **device).to_json())
    details: dict[str, Any] = {
        "history": STATE_ONLY,
        "facts": [each.facts for each in pools],
        "totals": [each.totals for each in pools],
        "failures": failures,
        "framework": _bfc_log_framework(text),
        "framework_version": _bfc_log_framework_version(text),
        "stats": [each.stats for each in pools],
        "lines": [dump.line for dump in dumps],
        "occupancy": [dump.strip for dump in dumps],
    }
    tables = peak_buffer_tables(text)
    return details | ({"buffers": tables} if tables else {})


def _bfc_log_framework(text: str) -> str:
    """Which framework wrote a log with dumps, by its words."""
    if onnxruntime.SOURCE in text:
        return "onnxruntime"
    if any(word in text for word in TENSORFLOW_WORDS):
        return "tensorflow"
    if REACTANT in text:
        return "reactant"
    return "jax" if any(word in text for word in (*JAX_WORDS, XLA_ERROR)) else "tensorflow"


_FIRST_OF_2: Final = "2019-09"
"""The month of TensorFlow 2.0."""

_MONTH: Final = re.compile(r"^(20[12]\d-\d\d)-\d\d \d\d:", re.MULTILINE)


def _bfc_log_framework_version(text: str) -> str:
    """`1.x` for a log that TensorFlow 1 wrote, as its date or the way it prints nodes tells; "" for others."""
    month = _MONTH.search(text)
    is_old = "[[Node:" in text or (month is not None and month[1] < _FIRST_OF_2)
    return "1.x" if is_old else ""


def _bfc_log_events(pools: list[FailedPool]) -> Events:
    """The events of all pools of a log; times count from the first one, and do not decrease within a pool."""
    events = one_after_another([each.events for each in pools])
    times = events["time"]
    known = times[times != 0]
    if len(known):
        first = int(known.min())
        events["time"] = (times - first) * (times != 0)
    return events
