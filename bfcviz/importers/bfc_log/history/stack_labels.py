"""Labels from the C++ stacks that `bfc_allocator.cc` logs at level 4."""

import re

from bfcviz.events.labels import Labels
from bfcviz.importers.limits import LABELS, MAX_NAME_BYTES, TEXT, Limits

_BEGIN, _END = "*** Begin stack trace ***", "*** End stack trace ***"
_INSIDE = re.compile(
    r"(?:tsl|tensorflow|stream_executor|xla)::(?:CurrentStackTrace|BFCAllocator::|Tensor::Tensor\()"
)
_COMPUTE = re.compile(r"(.{1,1000}?)::Compute(?:Async)?\(")
_NAMESPACE = re.compile(r"(?:\(anonymous namespace\)|\w{1,200})::")
_DEVICE = re.compile(r"\b\w{1,40}Device(?:, )?")
_OUTER = re.compile(r"^(?:tensorflow|tsl|xla|stream_executor)::")


class LogStackLabels:
    """Interns each distinct stack once: the name is the operation that allocated, the detail `stack` the frames."""

    def __init__(self, labels: Labels, limits: Limits) -> None:
        self._labels = labels
        self._limits = limits
        self._known: dict[str, int] = {}

    def label(self, text: str) -> int:
        """The label of the stack in a record after its address; 0 if it has none. Frames without a name are dropped.

        Raises:
            FileError: the log holds more labels than a file of its size may.
        """
        begin = text.find(_BEGIN)
        if begin < 0:
            return 0
        end = text.find(_END, begin)
        raw = text[begin + len(_BEGIN) : end if end >= 0 else len(text)][:MAX_NAME_BYTES]
        number = self._known.get(raw)
        if number is None:
            number = self._known[raw] = self._new(raw)
        return number

    def _new(self, raw: str) -> int:
        frames = [frame for line in raw.splitlines() if (frame := line.strip())]
        frames = [frame for frame in frames if not _INSIDE.match(frame)]
        if not frames:
            return 0
        stack = "\n".join(frames)
        self._limits.count(LABELS, 1)
        self._limits.count(TEXT, len(stack))
        return self._labels.intern(_name(frames), stack=stack)


def _name(frames: list[str]) -> str:
    """The kernel that computes, or else the function that allocated."""
    for frame in frames:
        found = _COMPUTE.match(frame)
        if found and (kernel := _DEVICE.sub("", _NAMESPACE.sub("", found[1]))):
            return kernel.replace("<>", "").replace(" >", ">")
    return _OUTER.sub("", frames[0].split("(", 1)[0]) or frames[0]
