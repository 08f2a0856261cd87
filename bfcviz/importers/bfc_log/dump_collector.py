"""Collect the dumps of a log from its records.

A header, the lines of bins, chunks and sums, and the statistics follow each other, but the lines of another process or
thread may lie between them. A thread writes a whole dump, so records are told apart by process and thread where the log
names them.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

from bfcviz.events.origin import MAX_POOLS
from bfcviz.importers.bfc_log import messages
from bfcviz.importers.bfc_log.dump import BinLine, Dump, Note, Stage
from bfcviz.importers.bfc_log.printed_sizes import printed_size
from bfcviz.importers.bfc_log.records import BFC_ALLOCATOR, LogRecord

_FIRST_WORD: Final = re.compile(r"\s{0,40}(\w{1,40})")
_MOST_WRITERS: Final = 4096
_SMALLEST_BIN: Final = 256
_LONGEST: Final = 1000  # characters of a message
_ADDRESSES: Final = 1 << 63
_SOON: Final = 2 * 10**9  # ns


class DumpCollector:
    """Takes records in the order of the log.

    Attributes:
        dumps: in the order of their first lines.
        notes: lines beside them.
        texts: (number of dumps before it, record) of each record that may hold an error message about memory.
        left_out: dumps after the first `MAX_POOLS`; they are only counted.
        left_out_line: where the first of these begins.
    """

    def __init__(self) -> None:
        self.dumps: list[Dump] = []
        self.notes: list[Note] = []
        self.texts: list[tuple[int, LogRecord]] = []
        self.left_out = 0
        self.left_out_line = 0
        self._open: dict[tuple[str, str], Dump] = {}
        self._by_first_word: dict[str, Callable[[LogRecord], bool]] = {
            "Allocator": self._header,
            "Ran": self._header,
            "Garbage": self._garbage_collection,
            "BFCAllocator": self._dump_for,
            "Bin": self._bin,
            "Next": self._region,
            "Summary": self._summary_begins,
            "Sum": self._sum,
            "total_region_allocated_bytes_": self._pool,
            "Total": self._pool,
            "Stats": self._stats,
        }

    def take_all(self, records: Iterable[LogRecord]) -> None:
        """Take every record of a log."""
        for record in records:
            if record.file not in {BFC_ALLOCATOR, ""} or not self._take_line(record):
                self._take_text(record)

    def _take_line(self, record: LogRecord) -> bool:
        """Take a line of the allocator; returns whether it is one."""
        message = record.message
        if messages.CHUNK.match(message) is not None:
            self._chunks(record)
            return True
        word = _FIRST_WORD.match(message)
        if word is None:
            return self._strip(record)
        if word[1].isdecimal():
            return self._summary(record)
        take = self._by_first_word.get(word[1], self._strip)
        return take(record)

    def _take_text(self, record: LogRecord) -> None:
        refused = messages.REFUSED.search(record.message)
        if refused is not None:
            self._note(record, "", "the device had no memory for a region", int(refused["bytes"]))
        if not self.left_out and ("memory" in record.message or "OOM" in record.message):
            self.texts.append((len(self.dumps), record))

    def _new(self, record: LogRecord) -> Dump:
        dump = Dump(record.line, record.time, writer=record.writer)
        if len(self.dumps) < MAX_POOLS:
            self.dumps.append(dump)
        else:
            self.left_out += 1
            self.left_out_line = self.left_out_line or record.line
        if len(self._open) == _MOST_WRITERS:
            self._open.clear()
        self._open[record.writer, record.thread] = dump
        return dump

    def _current(self, record: LogRecord, stage: Stage) -> Dump:
        """The dump that a line belongs to; a new one if the last one has ended."""
        dump = self._open.get((record.writer, record.thread))
        if dump is None and self.dumps and not self.left_out:
            # Some logs name process or thread only in some of their lines.
            last = self.dumps[-1]
            fits = last.writer in {"", record.writer} or not record.writer
            if fits and not last.ended and (last.stage <= Stage.HEADER or not record.file):
                dump = self._open[record.writer, record.thread] = last
        if dump is None or dump.ended:
            dump = self._new(record)
        dump.stage = max(dump.stage, stage)
        return dump

    def _header(self, record: LogRecord) -> bool:
        found = messages.HEADER.match(record.message) or messages.LATE_HEADER.match(record.message)
        size = None if found is None else printed_size(found["size"])
        if found is None or size is None:
            return self._pool(record) or self._growth(record)
        parts = found.groupdict()
        name, rounded = parts.get("name") or "", parts.get("rounded")
        if messages.NOT_A_FAILURE.search(record.message):
            self._note(record, name, f"a request for {size.text} found no memory (not a failure)", size.value)
            return True
        dump = self._of_late_header(record) if not name else None
        dump = dump or self._new(record)
        dump.has_warning, dump.requested = True, size
        dump.name = name or dump.name
        dump.rounded = None if rounded is None else int(rounded)
        dump.message = " ".join(record.message.split("\n", 1)[0].split())[:_LONGEST]
        op = messages.REQUESTED_BY.search(record.message)
        dump.op = "" if op is None else op["op"].partition(".  Current allocation")[0].strip()
        return True

    def _of_late_header(self, record: LogRecord) -> Dump | None:
        """The dump that ended just before its warning, as until 2017."""
        dump = self._open.get((record.writer, record.thread))
        if dump is None or dump.has_warning or dump.stage is Stage.HEADER:
            return None
        if dump.time is None or record.time is None or 0 <= record.time - dump.time < _SOON:
            dump.stage = Stage.STRIP
            return dump
        return None

    def _note(self, record: LogRecord, name: str, text: str, size: int) -> None:
        self.notes.append(Note(record.line, record.time, name, record.writer, text, size, len(self.dumps)))

    def _garbage_collection(self, record: LogRecord) -> bool:
        if not messages.GARBAGE_COLLECTION.match(record.message):
            return False
        self._note(record, "", "garbage collection: free regions are returned", 0)
        return True

    def _dump_for(self, record: LogRecord) -> bool:
        found = messages.DUMP_FOR.match(record.message)
        if found is None:
            return False
        dump = self._current(record, Stage.HEADER)
        if dump.stage > Stage.HEADER or dump.name not in {"", found["name"]}:
            dump = self._new(record)
        dump.name = found["name"]
        return True

    def _bin(self, record: LogRecord) -> bool:
        found = messages.BIN.match(record.message)
        if found is None:
            return self._bin_for(record)
        bytes_, requested = printed_size(found["bytes"]), printed_size(found["requested"])
        if bytes_ is None or requested is None:
            return False
        size = int(found["bin"])
        dump = self._current(record, Stage.BINS)
        if size == _SMALLEST_BIN and (len(dump.bins) > 1 or dump.stage > Stage.BINS):
            dump = self._new(record)
            dump.stage = Stage.BINS
        dump.repeated += size in dump.bins
        line = BinLine(int(found["chunks"]), int(found["used"]), bytes_, requested, found["old"] is not None)
        dump.bins.setdefault(size, line)
        return True

    def _bin_for(self, record: LogRecord) -> bool:
        found = messages.BIN_FOR.match(record.message)
        if found is None:
            return False
        self._current(record, Stage.BINS).bin_for = printed_size(found["size"])
        return True

    def _region(self, record: LogRecord) -> bool:
        found = messages.REGION.match(record.message)
        if found is None:
            return False
        self._current(record, Stage.CHUNKS).regions.append(int(found["size"]))
        return True

    def _chunks(self, record: LogRecord) -> None:
        """Take the chunk lines of one record: one, or a run of them."""
        dump = self._current(record, Stage.CHUNKS)
        lines, region = dump.chunks, len(dump.regions) - 1
        for word, address_text, size_text, tag, op, annotation in messages.CHUNK.findall(record.message):
            address, size = int(address_text, 16), int(size_text)
            if not size or address + size > _ADDRESSES:
                lines.impossible += 1
                continue
            note = 0
            if tag or op or annotation:
                note = lines.notes.setdefault((op or annotation, tag), len(lines.notes))
            lines.address.append(address)
            lines.size.append(size)
            lines.in_use.append(word != "Free")
            lines.region.append(region)
            lines.note.append(note)

    def _summary(self, record: LogRecord) -> bool:
        found = messages.SUMMARY.match(record.message)
        if found is None:
            return False
        dump, size = self._current(record, Stage.SUMMARY), int(found["size"])
        dump.repeated += size in dump.summary
        dump.summary.setdefault(size, int(found["count"]))
        return True

    def _sum(self, record: LogRecord) -> bool:
        found = messages.SUM.match(record.message)
        if found is None:
            return False
        self._current(record, Stage.SUMMARY).sum_in_use = printed_size(found["size"])
        return True

    def _summary_begins(self, record: LogRecord) -> bool:
        self._current(record, Stage.SUMMARY)
        return True

    def _pool(self, record: LogRecord) -> bool:
        found = messages.POOL.match(record.message) or messages.MEMORY_SUMMARY.match(record.message)
        if found is None:
            return False
        dump = self._current(record, Stage.SUMMARY)
        dump.pool, dump.limit = printed_size(found["pool"]), printed_size(found["limit"])
        dump.available = printed_size(found["available"])
        following = found.groupdict().get("next")
        dump.next_region = None if following is None else printed_size(following)
        return True

    def _growth(self, record: LogRecord) -> bool:
        found = messages.GROWTH.search(record.message)
        if found is not None:
            self._current(record, Stage.SUMMARY).growth = found["growth"] == "enabled"
        return found is not None

    def _stats(self, record: LogRecord) -> bool:
        dump = self._current(record, Stage.STATS)
        for name, text in messages.STAT.findall(record.message):
            size = printed_size(text)
            if size is not None:
                dump.stats.setdefault(name, size)
        return True

    def _strip(self, record: LogRecord) -> bool:
        found = messages.STRIP.match(record.message)
        if found is None:
            return False
        dump = self._open.get((record.writer, record.thread))
        if dump is None or dump.stage is not Stage.STATS:
            dump = self._current(record, Stage.STRIP)
        dump.stage, dump.strip = Stage.STRIP, found[1]
        return True
