"""Labels: interned names of operations, call stacks, shapes; an event carries only their number.

Number 0 is the empty label. Numbers count up by one, so the label with number n is line n of `labels.jsonl`.
"""
# ruff: noqa: TRY004  all damage in a file is one error, a ValueError

import json
from collections.abc import Mapping, Sequence
from io import FileIO
from threading import RLock
from types import MappingProxyType
from typing import Any, NamedTuple

from bfcviz.errors import TraceError
from bfcviz.events.files import loads

MAX_LABELS = 1 << 32
MAX_LABEL_BYTES = 1 << 24
"""Of one label as JSON: more is a mistake of the writer, or a hostile file."""

NO_DETAILS: Mapping[str, str] = MappingProxyType({})


class Label(NamedTuple):
    """A name with what else is known of it, such as shape, data_type, region_type or stack."""

    name: str
    details: Mapping[str, str]


class Labels:
    """A table of labels that only grows. Any number of threads may use it at once.

    Attributes:
        error: why a label could not be appended to the file, None while all were. From then on unknown names
            get number 0: no event on disk may name a label that is not there.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._names = [""]
        self._details = [NO_DETAILS]
        self._ids: dict[object, int] | None = {"": 0}  # None: not built yet, by `from_json`
        self._file: FileIO | None = None
        self.error: OSError | None = None

    def intern(self, name: str, /, **details: str) -> int:
        """The number of this label, a new one when name and details were not seen together before.

        0 where this thread is in the midst of interning another, and a finalizer or signal handler asks.
        """
        key = _key(name, details)
        ids = self._ids
        if ids is not None and (known := ids.get(key)) is not None:
            return known
        if self._lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001
            return 0
        with self._lock:
            ids = self._index()
            if (known := ids.get(key)) is not None:
                return known
            name, details = _clean(name), {_clean(k): _clean(str(v)) for k, v in details.items()}
            clean_key = _key(name, details)
            number = ids.get(clean_key)
            # Under both keys, so that odd text is cleaned once only.
            ids[clean_key] = ids[key] = self._append(name, details) if number is None else number
            return ids[key]

    def append_to(self, file: FileIO | None) -> None:
        """Write all labels to `file` now, and each new one from now on before its number is handed out.

        One `write` a line, so that a killed process leaves at most the last line cut. None ends it.
        """
        with self._lock:
            self._file = file
            for number in range(1, len(self._names)):
                self._write(number, self._names[number], self._details[number])

    def after_fork(self) -> None:
        """Let go of the file, in a process that was forked: it is the parent's, which goes on writing it."""
        self._lock = RLock()  # a thread that is not here any more may have held it
        self._file = None

    def add_line(self, line: bytes) -> None:
        """Take over the next line of a `labels.jsonl`.

        Raises:
            ValueError: the line is not the label with the next number.
        """
        entry = loads(line)
        if not isinstance(entry, dict) or entry.get("id") != len(self._names):
            raise ValueError(f"is not label {len(self._names)}")
        name = entry.get("name")
        _expect_texts((name,), "name")
        details = _checked_details(entry["details"]) if "details" in entry else NO_DETAILS
        with self._lock:
            self._ids = None
            self._details.append(details)
            self._names.append(str(name))

    def name(self, number: int) -> str:
        """The name of label `number`; empty for 0."""
        return self._names[number]

    @property
    def names(self) -> Sequence[str]:
        """All names, by number. Do not change it."""
        return self._names

    def __getitem__(self, number: int) -> Label:
        return Label(self._names[number], self._details[number])

    def __len__(self) -> int:
        return len(self._names)

    def to_json(self) -> str:
        """The whole table as compact JSON text."""
        count = len(self._names)
        details = {n: dict(d) for n, d in enumerate(self._details[:count]) if d}
        return json.dumps({"names": self._names[:count], "details": details}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "Labels":
        """The table that `to_json` wrote.

        Raises:
            ValueError: `text` is not such a table.
        """
        table = loads(text)
        if not isinstance(table, dict) or not isinstance(names := table.get("names"), list):
            raise ValueError("is not a table of labels")
        _expect_texts(names, "name")
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
            labels._details[place] = _checked_details(entry)
        return labels

    def _index(self) -> dict[object, int]:
        if self._ids is None:
            pairs = zip(self._names, self._details, strict=True)
            self._ids = {_key(name, details): number for number, (name, details) in enumerate(pairs)}
        return self._ids

    def _append(self, name: str, details: Mapping[str, str]) -> int:
        number = len(self._names)
        if number == MAX_LABELS:
            raise TraceError(f"a trace holds at most {MAX_LABELS} labels: put less detail into their names")
        self._write(number, name, details)
        if self.error is not None:
            return 0
        self._details.append(MappingProxyType(details) if details else NO_DETAILS)
        self._names.append(name)
        return number

    def _write(self, number: int, name: str, details: Mapping[str, str]) -> None:
        if self._file is None or self.error is not None:
            return
        entry: dict[str, Any] = {"id": number, "name": name}
        if details:
            entry["details"] = dict(details)
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        if len(line) > MAX_LABEL_BYTES:
            raise TraceError(f"a label of {len(line)} bytes was given; at most {MAX_LABEL_BYTES} are kept")
        try:
            while line:
                line = line[self._file.write(line) or 0 :]
        except OSError as error:
            self.error = error


def _key(name: str, details: Mapping[str, str]) -> object:
    return (name, *sorted(details.items())) if details else name


def _clean(text: str) -> str:
    """Text that every file format takes: half a surrogate pair becomes its escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _expect_texts(values: Sequence[object], what: str) -> None:
    try:
        together = "".join(values)  # type: ignore[arg-type]
    except TypeError as error:
        raise ValueError(f"has a {what} that is no text") from error
    try:
        together.isascii() or together.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"has a {what} with half a character ({error.reason})") from error


def _checked_details(entry: object) -> Mapping[str, str]:
    if not isinstance(entry, dict):
        raise ValueError("has details that are no object")
    _expect_texts([*entry, *entry.values()], "detail")
    return entry
