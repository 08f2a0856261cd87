"""Parse the `__LOG_MEMORY__` lines of `log_memory.cc` (TensorFlow 1; later with `TF_CPP_MAX_VLOG_LEVEL=1`).

::

    __LOG_MEMORY__ MemoryLogTensorAllocation { step_id: 2 kernel_name: "a0" tensor { dtype: DT_FLOAT
        shape { dim { size: 250000 } } allocation_description { requested_bytes: 1000000 allocated_bytes: 1000192
        allocator_name: "GPU_0_bfc" allocation_id: 3 has_single_reference: true ptr: 30076651520 } } }
    __LOG_MEMORY__ MemoryLogTensorDeallocation { allocation_id: 3 allocator_name: "GPU_0_bfc" }

The text has the fields of tensorflow/core/framework/log_memory.proto; a field with the value 0 is left out.
"""

import re
from typing import NamedTuple

from bfcviz.events.labels import Labels
from bfcviz.importers.limits import LABELS, MAX_NAME_BYTES, TEXT, Limits

MARKER = "__LOG_MEMORY__"
_MESSAGE = re.compile(rf"{MARKER} MemoryLog(\w{{1,40}}) {{")
_NUMBER = re.compile(
    r"\b(step_id|requested_bytes|allocated_bytes|num_bytes|allocation_id|ptr): (-?\d{1,20})\b"
)
_TEXT = re.compile(r'\b(kernel_name|operation|allocator_name): "([^"\n]*)"')
_DTYPE = re.compile(r"\bdtype: (?:DT_)?(\w{1,40})")
_SHAPE = re.compile(r"\bshape \{([^\n]*?)\} (?:allocation_description|\})")
_SIZE = re.compile(r"\bsize: (-?\d{1,20})")


class TensorMemory(NamedTuple):
    """One message. Numbers are 0 and texts "" where they are left out.

    Attributes:
        kind: `TensorAllocation`, `TensorDeallocation`, `TensorOutput`, `RawAllocation`, `RawDeallocation`, `Step`.
        allocated: bytes of the chunk; the requested bytes if the allocator does not tell.
        kernel: name of the operation.
        is_whole: the message is complete.
    """

    kind: str
    step: int
    requested: int
    allocated: int
    allocation_id: int
    address: int
    kernel: str
    allocator: str
    dtype: str
    shape: str
    is_whole: bool

    @property
    def has_memory(self) -> bool:
        """Whether address and sizes can be those of an allocation; a tensor without elements has none."""
        half = 1 << 63  # processes use the lower half of all addresses
        return self.address > 0 and 0 < self.requested <= self.allocated < half - self.address

    def label(self, labels: Labels, limits: Limits) -> int:
        """The number of its label; 0 without a name.

        Raises:
            FileError: the log holds more labels than a file of its size may.
        """
        details = {"data_type": self.dtype, "shape": self.shape}
        details = {name: text for name, text in details.items() if text}
        if not self.kernel and not details:
            return 0
        known = len(labels)
        number = labels.intern(self.kernel, **details)
        if len(labels) > known:
            limits.count(LABELS, 1)
            limits.count(TEXT, len(self.kernel) + len(self.shape))
        return number


def tensor_memory(message: str) -> TensorMemory | None:
    """The message in a log record; None if it has none."""
    found = _MESSAGE.match(message)
    if found is None:
        return None
    text = message.split("\n", 1)[0][: 4 * MAX_NAME_BYTES]
    numbers = {name: int(value) for name, value in _NUMBER.findall(text)}
    texts = {name: value[:MAX_NAME_BYTES] for name, value in _TEXT.findall(text)}
    dtype, shape = _DTYPE.search(text), _SHAPE.search(text)
    requested = numbers.get("requested_bytes", numbers.get("num_bytes", 0))
    return TensorMemory(
        kind=found[1],
        step=numbers.get("step_id", 0),
        requested=requested,
        allocated=numbers.get("allocated_bytes", requested),
        allocation_id=numbers.get("allocation_id", 0),
        address=numbers.get("ptr", 0),
        kernel=texts.get("kernel_name", texts.get("operation", "")),
        allocator=texts.get("allocator_name", ""),
        dtype=dtype[1].lower() if dtype else "",
        shape="[" + ",".join(_SIZE.findall(shape[1])) + "]" if shape else "",
        is_whole=text.rstrip().endswith("}") and text.count("{") == text.count("}"),
    )
