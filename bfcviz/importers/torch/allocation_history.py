"""HistoryRows: the entries of a snapshot's traces as columns, and its stacks, each once."""

from array import array
from typing import Any, Final, NamedTuple

from bfcviz.formats.torch import BLOCK_SIZE, line_number, metadata_text

TRACE_ENTRY: Final = object()
"""Stands for the newest row, until a list takes it."""

SPENT: Final = object()
"""Stands for a row in the memo of the pickle: no snapshot refers to it again."""

MISSING: Final = object()
"""Stands for a place of the memo that was never set."""

UNKNOWN: Final = -1
"""In a column of numbers: the entry does not say it."""

ACTIONS: Final = (
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
    "oom", "snapshot", "annotate",
)  # fmt: skip
ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP = range(7)
OOM, SNAPSHOT, ANNOTATE, OTHER = range(7, 11)
_NUMBERS: Final = {action: number for number, action in enumerate(ACTIONS)}
_LIMIT: Final = 1 << 63


class CodeFrame:
    """One line of a stack in the allocation history.

    Attributes:
        line: 0: unknown.
        node: of code that torch.compile generated, its FX node: `relu_1 (call_function)`.
        origin: of such code, the traceback of the program's own line.
    """

    def __init__(self, filename: str, line: int, name: str, node: str, origin: str) -> None:
        self.filename = filename
        self.line = line
        self.name = name
        self.node = node
        self.origin = origin


class FrameStack:
    """A stack in the allocation history. `number`: its place in `HistoryRows.stacks`."""

    def __init__(self, number: int) -> None:
        self.number = number


class TraceRange(NamedTuple):
    """The rows of one trace in the allocation history: [first, stop)."""

    first: int
    stop: int


class HistoryEntrySource(NamedTuple):
    """What several entries of the allocation history share: where they come from.

    `stack`: a number; 0: none. `forward`: of a gradient, the traceback of the forward pass.
    """

    stack: int
    metadata: str
    context: str
    pool: str
    forward: str = ""


class HistoryRows:
    """Takes the values of a snapshot when complete; keeps its allocation history, the entries, as columns.

    Attributes:
        count: rows so far.
        pending: rows that no list has taken yet.
        action: number of the action.
        address: of an OOM, the bytes that the device had free.
        size, stream: as in the file.
        block: bytes of the block, which only snapshots that bfcviz wrote tell; 0: unknown.
        time: microseconds; UNKNOWN: the entry has none.
        source: index in `sources`.
        sources: what entries share.
        stacks: all different stacks, the innermost frame first; number 0 is the empty one.
        strange: counts of unknown actions, by name.
    """

    def __init__(self) -> None:
        self.count = 0
        self.pending = 0
        self.action = array("B")
        self.address = array("Q")
        self.size = array("Q")
        self.block = array("Q")
        self.stream = array("Q")
        self.time = array("q")
        self.source = array("I")
        self.sources: list[HistoryEntrySource] = [HistoryEntrySource(0, "", "", "")]
        self.stacks: list[tuple[CodeFrame, ...]] = [()]
        self.strange: dict[str, int] = {}
        self._frames: dict[tuple[str, int, str, str, str], CodeFrame] = {}
        self._stacks: dict[tuple[CodeFrame, ...], FrameStack] = {}
        self._sources: dict[tuple[int, str, str, str, str], int] = {}

    # -- what the reader of the pickle calls ----------------------------------------------------------------------

    def of_dict(self, items: list[Any]) -> Any:
        """A dict: keys, which are texts, and values in turn. An entry becomes a row, a frame a `CodeFrame`."""
        made = {}
        for place in range(0, len(items), 2):
            made[items[place]] = items[place + 1]
        if "action" in made:
            self._add_row(made)
            return TRACE_ENTRY
        if "filename" in made and "line" in made and "name" in made:
            return self._frame(made)
        return made

    def of_list(self, items: list[Any]) -> Any:
        """A list of a snapshot; of frames alone it becomes a `FrameStack`."""
        if not items or type(items[0]) is not CodeFrame:
            return items
        for frame in items:
            if type(frame) is not CodeFrame:
                raise ValueError("mixes frames with other values in one list")
        frames = tuple(items)
        known = self._stacks.get(frames)
        if known is None:
            known = self._stacks[frames] = FrameStack(len(self.stacks))
            self.stacks.append(frames)
        return known

    def of_trace(self, first: int, count: int) -> TraceRange:
        """A list of entries of the allocation history."""
        return TraceRange(first, first + count)

    def _frame(self, made: dict[str, Any]) -> CodeFrame:
        line = made["line"]
        if type(line) is not int:
            raise ValueError(f"holds a frame whose line is not a number: {type(line).__name__}")
        operation, node = words_in(made.get("fx_node_op")), words_in(made.get("fx_node_name"))
        node = f"{node} ({operation})" if node and operation else node
        origin = words_in(made.get("fx_original_trace"))
        key = made["filename"], line_number(line), made["name"], node, origin
        if type(key[0]) is not str or type(key[2]) is not str:
            raise ValueError("holds a frame whose filename or name is not text")
        known = self._frames.get(key)
        if known is None:
            known = self._frames[key] = CodeFrame(key[0], key[1], key[2], node, origin)
        return known

    def _add_row(self, entry: dict[str, Any]) -> None:
        action = entry["action"]
        if type(action) is not str:
            raise ValueError("holds a trace entry whose action is not text")
        number = _NUMBERS.get(action, OTHER)
        if number == OTHER:
            self.strange[action] = self.strange.get(action, 0) + 1
        address = entry.get("addr")
        if address is None or number == OOM:
            address = entry.get("device_free", 0 if address is None else address)
        self.address.append(number_in(address, "address"))
        self.size.append(number_in(entry.get("size", 0), "size"))
        self.block.append(number_in(entry.get(BLOCK_SIZE, 0), BLOCK_SIZE))
        self.stream.append(number_in(entry.get("stream", 0), "stream"))
        time = entry.get("time_us", UNKNOWN)
        self.time.append(UNKNOWN if time == UNKNOWN else number_in(time, "time_us"))
        self.action.append(number)
        self.source.append(self._source(entry))
        self.count += 1
        self.pending += 1

    def _source(self, entry: dict[str, Any]) -> int:
        metadata = entry.get("user_metadata")
        key = (
            number_of(entry.get("frames")),
            "" if metadata is None else metadata_text(metadata),
            words_in(entry.get("compile_context")),
            pool_words(entry.get("pool_id")),
            forward_in(entry.get("forward_frames")),
        )
        known = self._sources.get(key)
        if known is None:
            known = self._sources[key] = len(self.sources)
            self.sources.append(HistoryEntrySource(*key))
        return known


def number_of(frames: Any) -> int:
    """The number of a stack in the allocation history; 0: there is none."""
    if type(frames) is not FrameStack:
        return 0
    stack = frames
    return stack.number


def number_in(value: Any, what: str) -> int:
    """A number of the allocation history or its segments, from 0 to 2^63 - 1.

    Raises:
        ValueError: it is not one.
    """
    if type(value) is not int or not 0 <= value < _LIMIT:
        raise ValueError(
            f"holds an impossible {what}: {value if type(value) is int else type(value).__name__}"
        )
    return value


def is_entry(value: Any) -> bool:
    """Whether a value stands for a row of the allocation history."""
    return value is TRACE_ENTRY


def words_in(value: Any) -> str:
    """A text in an entry of the history; empty if it has none, or PyTorch's word for none."""
    return value if type(value) is str and value != "N/A" else ""


def forward_in(value: Any) -> str:
    """The forward pass of an entry of the history: the lines of a traceback, the outermost first."""
    if type(value) is not list:
        return ""
    return "".join([each for each in value if type(each) is str])


def pool_words(value: Any) -> str:
    """The private pool of an entry of the history, such as `0.1`; empty for the default pool (0, 0)."""
    if type(value) is list:  # in JSON
        value = tuple(value)
    if type(value) is not tuple or len(value) != 2 or value == (0, 0):
        return ""
    return f"{value[0]}.{value[1]}" if type(value[0]) is type(value[1]) is int else ""
