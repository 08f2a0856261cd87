"""Labels: interned names of operations, call stacks, shapes; an event carries only their number.

Number 0 is the empty label. Numbers increase by one. The label with number n is line n of `labels.jsonl`, unless a line
was damaged; therefore each line carries its number.
"""
# ruff: noqa: TRY004  all damage in a file is one error, a ValueError

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from itertools import chain
from threading import RLock
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from bfcviz import _forks
from bfcviz.errors import TraceError
from bfcviz.events.log import highest_label
from bfcviz.events.schema import Events
from bfcviz.events.storage.files import MAX_JSON_VALUES, parse_file_json
from bfcviz.events.structured_arrays import copied

MAX_LABELS = 1 << 32
MAX_LABEL_BYTES = 1 << 24
"""Of one label as JSON: a longer one is a mistake of the writer, or a hostile file."""

SHORTEST_LINE = len(b'{"id":1,"name":""}\n')
_START = b'{"id":'
"""Start of a line. JSON escapes quotes inside texts, so it occurs nowhere else but before a detail `id`."""

NO_LABEL: Final = "no label"
"""What is shown in place of a name."""

STACK_DETAILS: Final = frozenset({"stack", "no_stack"})
"""Details that are no facts beside the name: the stack, a frame a line, or why there is none."""

NO_DETAILS: Mapping[str, str] = MappingProxyType({})


class Label(NamedTuple):
    """A label: a name and further details, such as shape, data_type, region_type or stack."""

    name: str
    details: Mapping[str, str]


_Pending = tuple[int, str, Mapping[str, str], object, bytes | None, int]
"""An append that is not finished: number, name, details, key, line for the file (None: no file), offset of the line."""


class Labels:
    """A table of labels that only grows. It is thread-safe.

    An append has several steps, and Ctrl-C can raise between any two of them. Each step is idempotent, and the next
    call first repeats the steps of an interrupted append.

    Attributes:
        error: why a label could not be appended to the file; None if there was no error. After an error, new names get
            number 0: no event on disk may name a label that is not in the file.
    """

    def __init__(self) -> None:
        self._lock = _forks.keep(RLock(), _forks.LABELS)
        self._names = [""]
        self._details = [NO_DETAILS]
        self._ids: dict[object, int] | None = {"": 0}  # None: not built yet, by `from_json`
        self._pending: _Pending | None = None
        self._file: FileIO | None = None
        self._place = 0  # offset in the file, after the last label
        self.error: OSError | None = None

    def intern(self, name: str, /, **details: str) -> int:
        """The number of this label; a new number if name and details are not in the table together.

        0 if a finalizer or a signal handler calls it while this thread interns another label.
        """
        key = _label_key(name, details)
        ids = self._ids
        if ids is not None and (known := ids.get(key)) is not None:
            return known
        if self._lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001
            return 0
        with self._lock:
            self._finish()
            ids = self._index()
            if (known := ids.get(key)) is not None:
                return known
            name = without_surrogates(name)
            details = {without_surrogates(k): without_surrogates(str(v)) for k, v in details.items()}
            clean_key = _label_key(name, details)
            number = ids.get(clean_key)
            if number is None:
                number = self._append(name, details, clean_key)
            if number:
                ids[key] = number  # under both keys, so that unusual text is cleaned only once
            return number

    def append_to(self, file: FileIO | None) -> None:
        """Write all labels to `file`, and each new one before `intern` returns its number. None ends this.

        If the process is killed, at most the last line is incomplete.

        Args:
            file: empty, and not opened for appending.
        """
        with self._lock:
            self._finish()
            self._file, place = None, 0
            if file is None:
                return
            self.error = None
            for number in range(1, len(self._names)):
                line = _encoded_label(number, self._names[number], self._details[number])
                self._write(file, line, place)
                place += len(line)
            self._place = place
            self._file = file

    def after_fork(self) -> None:
        """Forget the file of labels in a forked process: the parent continues to write it."""
        self._file = None

    def add_line(self, line: bytes, most_missing: int = 0) -> int:
        """Add a line of a `labels.jsonl`. Bytes before its start are the rest of an incomplete line, and are ignored.

        Args:
            line: a label with its number; it replaces a known label.
            most_missing: how many labels may be missing before this one; they become empty.

        Returns:
            How many were missing.

        Raises:
            ValueError: the line is not a label, or too many are missing before it.
        """
        try:
            entry = parse_file_json(line)
        except ValueError:
            if (start := line.rfind(_START)) <= 0:
                raise
            entry = parse_file_json(line[start:])
        number = entry.get("id") if isinstance(entry, dict) else None
        if type(number) is not int or not 0 < number <= len(self._names) + most_missing:
            raise ValueError(f"is not label {len(self._names)}")
        name = entry.get("name")
        _expect_label_texts((name,), "name")
        details = _checked_label_details(entry["details"]) if "details" in entry else NO_DETAILS
        with self._lock:
            self._ids = None
            missing = max(number - len(self._names), 0)
            while len(self._names) < number:
                self._put(len(self._names), "", NO_DETAILS)
            self._put(number, str(name), details)
        return missing

    def add_next_lines(self, lines: Sequence[bytes]) -> bool:
        """Add lines of a `labels.jsonl`, parsed together: a fifth of the time of `add_line` for each.

        Returns:
            False if they are not the next labels, one a line, or one is damaged: then none is added.
        """
        try:
            entries = parse_file_json(b"[" + b",".join(lines) + b"]")
            numbers = [entry["id"] for entry in entries]
            names = [entry["name"] for entry in entries]
            details = [entry.get("details", NO_DETAILS) for entry in entries]
            given = [each for each in details if each is not NO_DETAILS]
            _expect_label_texts(chain(names, *given, *map(dict.values, given)), "text")
        except (ValueError, TypeError, KeyError):
            return False
        with self._lock:
            first = len(self._names)
            is_next = len(entries) == len(lines) and set(map(type, numbers)) <= {int}
            if not is_next or numbers != list(range(first, first + len(numbers))):
                return False
            self._ids = None
            self._details[first:] = details
            self._names += names  # last: it makes the labels visible
        return True

    def name(self, number: int) -> str:
        """The name of label `number`; empty for 0."""
        return self._names[number]

    @property
    def names(self) -> Sequence[str]:
        """All names, by number. Do not modify."""
        return self._names

    def __getitem__(self, number: int) -> Label:
        return Label(self._names[number], self._details[number])

    def __len__(self) -> int:
        return len(self._names)

    def to_json(self) -> str:
        """The whole table of labels as compact JSON text."""
        count = len(self._names)
        details = {n: dict(d) for n, d in enumerate(self._details[:count]) if d}
        return json.dumps({"names": self._names[:count], "details": details}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, most: int = MAX_JSON_VALUES) -> "Labels":
        """The table of labels that `to_json` wrote.

        Raises:
            ValueError: `text` is not such a table, or holds more than about `most` names and details.
        """
        table = parse_file_json(text, most)
        if not isinstance(table, dict) or not isinstance(names := table.get("names"), list):
            raise ValueError("is not a table of labels")
        _expect_label_texts(names, "name")
        if not names or names[0] != "":
            raise ValueError("label 0 is not the empty label")
        details = table.get("details")
        if not isinstance(details, dict):
            raise ValueError("has no details of labels")
        labels = cls()
        labels._names = names
        labels._details = [NO_DETAILS] * len(names)
        labels._ids = None
        for number, entry in details.items():
            place = int(number[:11]) if number.isdecimal() else 0
            if not 0 < place < len(names):
                raise ValueError(f"has details of label {number[:20]!r}, of {len(names)} labels")
            labels._details[place] = _checked_label_details(entry)
        return labels

    def _index(self) -> dict[object, int]:
        if self._ids is None:
            # Not strict: an interrupted append may have stored details without a name.
            pairs = zip(self._names, self._details, strict=False)
            self._ids = {_label_key(name, details): number for number, (name, details) in enumerate(pairs)}
        return self._ids

    def _append(self, name: str, details: Mapping[str, str], key: object) -> int:
        """Append a label; returns its number, 0 if it cannot be written to the file."""
        number = len(self._names)
        if number == MAX_LABELS:
            raise TraceError(f"a trace holds at most {MAX_LABELS} labels: use names with less detail")
        if self.error is not None and self._file is not None:
            return 0
        line = None if self._file is None else _encoded_label(number, name, details)
        kept = MappingProxyType(details) if details else NO_DETAILS
        self._pending = (number, name, kept, key, line, self._place)
        return self._finish()

    def _finish(self) -> int:
        """Perform all steps of a label's pending append again; returns its number, or 0 if none or failed."""
        if self._pending is None:
            return 0
        number, name, details, key, line, place = self._pending
        if line is not None and self._file is not None:
            self._write(self._file, line, place)
            if self.error is not None:
                self._pending = None
                return 0
            self._place = place + len(line)
        self._put(number, name, details)
        self._index()[key] = number
        self._pending = None
        return number

    def _put(self, number: int, name: str, details: Mapping[str, str]) -> None:
        """Store label `number`, a known or the next one. The name is stored last: it makes the label visible."""
        self._details[number : number + 1] = [details]
        self._names[number : number + 1] = [name]

    def _write(self, file: FileIO, line: bytes, place: int) -> None:
        """Write a label's line at its offset in the file; an interrupted call may have written a part of it."""
        if self.error is not None:
            return
        rest = line
        try:
            while rest:
                rest = rest[os.pwrite(file.fileno(), rest, place + len(line) - len(rest)) :]
        except OSError as error:
            self.error = error
            with suppress(OSError):
                os.ftruncate(file.fileno(), place)


_ENCODER = json.JSONEncoder(separators=(",", ":"))  # created once: json.dumps would create one for each label


def _encoded_label(number: int, name: str, details: Mapping[str, str]) -> bytes:
    """A label as a line of JSON."""
    entry: dict[str, Any] = {"id": number, "name": name}
    if details:
        entry["details"] = dict(details)
    line = _ENCODER.encode(entry).encode() + b"\n"
    if len(line) > MAX_LABEL_BYTES:
        raise TraceError(f"a label has {len(line)} bytes; the limit is {MAX_LABEL_BYTES}")
    return line


def _label_key(name: str, details: Mapping[str, str]) -> object:
    return (name, *sorted(details.items())) if details else name


def without_surrogates(text: str) -> str:
    """Text as a label may hold it, which every file format accepts: a lone surrogate becomes its escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _expect_label_texts(values: Iterable[object], what: str) -> None:
    try:
        together = "".join(values)  # type: ignore[arg-type]
    except TypeError as error:
        raise ValueError(f"has a {what} that is not text") from error
    try:
        together.isascii() or together.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"has a {what} with a lone surrogate ({error.reason})") from error


def _checked_label_details(entry: object) -> Mapping[str, str]:
    if not isinstance(entry, dict):
        raise ValueError("has details that are not an object")
    _expect_label_texts([*entry, *entry.values()], "detail")
    return entry


def has_unknown_label(events: Events, num_labels: int) -> bool:
    """Whether an event names a label that is not in the table."""
    return highest_label(events["label"]) >= num_labels


def without_unknown_labels(events: Events, num_labels: int) -> Events:
    """A copy of events in which labels that the table does not know are 0."""
    events = copied(events)
    forget_unknown_labels(events, num_labels)
    return events


def forget_unknown_labels(events: Events, num_labels: int) -> None:
    """Set labels that the table does not know to 0, in place."""
    events["label"][events["label"] >= num_labels] = 0
