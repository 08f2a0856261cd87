"""Kinds: what memory is for: parameters, gradients, optimizer state, activations, inputs, KV cache or workspace.

The first of these that decides, per allocation:

1. a rule of the user's own: a regular expression found in the name or the stack of its label;
2. the innermost frame that a built-in rule knows: of an optimizer, of a backward pass, of a data loader, of a KV cache,
   of the constructor or loader of a module, of a forward pass; or the name that an annotation gave;
3. its lifetime: what a forward or backward pass frees soon is workspace, and so is what an optimizer frees at all;
4. its size: memory that is older than the recording, and as large as optimizer state, is a parameter.

What none of these decides is unknown. A buffer of a module counts as a parameter.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bfcviz.errors import BfcvizError, FileError
from bfcviz.events.origin import HISTORY_BEGINS, holds_only_states
from bfcviz.events.schema import Kind
from bfcviz.events.storage.files import read_small
from bfcviz.events.trace import Trace
from bfcviz.model.find_steps import history_begins
from bfcviz.model.lifetimes import born_of
from bfcviz.stack_frames import holder_name, places_of

PARAMETERS, GRADIENTS, OPTIMIZER_STATE = "parameters", "gradients", "optimizer state"
ACTIVATIONS, INPUTS, KV_CACHE, WORKSPACE = "activations", "inputs", "KV cache", "workspace"
UNKNOWN: Final = "unknown kind"
KINDS: Final = (PARAMETERS, GRADIENTS, OPTIMIZER_STATE, ACTIVATIONS, INPUTS, KV_CACHE, WORKSPACE)
"""The built-in kinds."""

SOON: Final = 32
"""Events after which memory of a forward or backward pass is freed that is only workspace."""

# ------------------------------------------------------------------------------
# Rules.

_FRAME_RULES: Final = (
    (KV_CACHE, r"kv_?cache|KVCache|past_key_value|[/\\]cache_utils\.py|paged_?attention|cache_engine|\binit_cache"),
    (KV_CACHE, r"allocate_kv|(?:Static|Dynamic|Sliding\w{0,40}|Hybrid|Quantized)Cache"),
    (WORKSPACE, r"[wW]orkspace|cublas|ncclComm|\bcub::|gpu_reduce_kernel|index_put_with_sort"),
    (OPTIMIZER_STATE, r"[/\\]torch[/\\]optim[/\\](?!lr_scheduler)|Optimizer\w{0,40}\.step\b"),
    (OPTIMIZER_STATE, r"[/\\](?:optax|apex[/\\]optimizers|bitsandbytes[/\\]optim)[/\\]"),
    (ACTIVATIONS, r"[/\\]torch[/\\]utils[/\\]checkpoint\.py"),
    (GRADIENTS, r"torch::autograd::(?:generated::|Node\b|Engine\b|python::|accumulate\b|AccumulateGrad|Copy)"),
    (GRADIENTS, r"Backward\d{0,3}\b|_engine_run_backward|\bgradient of "),
    (GRADIENTS, r"^gradients?(?:_tape)?/|transpose\(jvp\("),
    (OPTIMIZER_STATE, r"(?:^|/)(?:Adam|AdamW|Adagrad|Adafactor|Lion|RMSprop|SGD)/"),
    (INPUTS, r"IteratorGetNext|PrefetchDataset"),
    (INPUTS, r"[/\\]torch[/\\]utils[/\\]data[/\\]|[/\\]datasets?[/\\]|[dD]ata_?[lL]oader|pin_memory"),
    (INPUTS, r"collate\w{0,40} \("),
    (INPUTS, r"\b(?:get|next|load|fetch|prepare|make|sample)_(?:\w{1,40}_)?(?:batch|inputs?)\b"),
    (ACTIVATIONS, r"(?:(?:^|[. ])forward|softmax|cross_entropy|attention|loss)\w{0,40} \("),
    (ACTIVATIONS, r"[/\\]torch[/\\]nn[/\\](?:functional|modules[/\\](?!module\.py))"),
    (PARAMETERS, r"[/\\]torch[/\\](?:nn[/\\](?:parameter|init)|serialization)\.py|safetensors|load_state_dict"),
    (PARAMETERS, r"from_pretrained|\b(?:init|load|reset)_(?:\w{1,40}_)?(?:weights?\w{0,40}|parameters?|model)\b"),
    (PARAMETERS, r"(?:^|[. ])__init__ \("),
)  # fmt: skip
"""Of a frame of a stack, or of a name: the kind and a regular expression; the first that is found counts.

The time of each grows with the length of the text, not with its square: names may be long.
"""

_COMPILED: Final = tuple((kind, re.compile(text)) for kind, text in _FRAME_RULES)


@dataclass(frozen=True)
class KindRules:
    """Rules of the user's own, which come before the built-in ones.

    Attributes:
        rules: the kind and the regular expression of each, in order; the name and the stack of a label are searched.
    """

    rules: tuple[tuple[str, re.Pattern[str]], ...] = ()

    @classmethod
    def of(cls, rules: Mapping[str, str] | Iterable[tuple[str, str]]) -> "KindRules":
        """Rules from texts.

        Raises:
            BfcvizError: a text is no regular expression, or a kind has no name.
        """
        made = []
        for kind, text in rules.items() if isinstance(rules, Mapping) else rules:
            if not kind.strip():
                raise BfcvizError(f"the rule {text!r} has no kind: give a name, such as `experts: moe\\.py`")
            try:
                made.append((kind.strip(), re.compile(text)))
            except re.error as error:
                raise BfcvizError(
                    f"the rule of {kind!r} is no regular expression: {text!r} ({error}); "
                    "put a backslash before characters such as ( and ["
                ) from None
        return cls(tuple(made))

    @classmethod
    def of_text(cls, text: str) -> "KindRules":
        """Rules from a text with one `KIND: REGULAR EXPRESSION` a line; `#` begins a comment line.

        Raises:
            BfcvizError: a line has no colon, or as for `of`.
        """
        found = []
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            kind, colon, rule = line.partition(":")
            if not colon or not rule.strip():
                raise BfcvizError(
                    f"line {number} of the rules is {line[:80]!r}: give KIND: REGULAR EXPRESSION, "
                    r"such as `experts: moe\.py`"
                )
            found.append((kind, rule.strip()))
        return cls.of(found)

    def kind_of(self, text: str) -> str | None:
        """The kind of memory by the first rule that is found in a text."""
        return next((kind for kind, pattern in self.rules if pattern.search(text)), None)


_chosen: WeakKeyDictionary[Trace, KindRules] = WeakKeyDictionary()


def use_rules(trace: Trace, rules: KindRules) -> None:
    """Put rules for kinds of memory before the built-in ones, in every view of this trace."""
    _chosen[trace] = rules


# ------------------------------------------------------------------------------
# The kinds of the allocations of one heap.


class MemoryKinds:
    """The kinds of memory of one heap; its numbers index `names`.

    Attributes:
        names: the built-in kinds, the user's own, and `UNKNOWN`, which is number 0.
    """

    def __init__(self, trace: Trace, pool: int) -> None:
        self._trace = trace
        self._pool = pool
        self._rules = _chosen.get(trace, KindRules())
        own = [kind for kind, _ in self._rules.rules if kind not in KINDS]
        self.names = list(dict.fromkeys([UNKNOWN, *KINDS, *own]))
        self._numbers = {name: number for number, name in enumerate(self.names)}
        self._of_label = np.zeros(0, np.uint16)
        self._is_own = np.zeros(0, bool)
        self._short = self._freed = np.zeros(0, np.uint64)
        is_torch = trace.origin.details.get("framework") == "torch"
        stacks = (trace.labels[number].details.get("stack", "") for number in range(len(trace.labels)))
        self._has_python = is_torch and any(".py:" in stack for stack in stacks)
        self._begins = 0
        if not holds_only_states(trace.origin.details):
            self._read_lifetimes()
        self._parameter_sizes = self._sizes_of_parameters()

    def of(self, records: NDArray[np.void]) -> NDArray[np.intp]:
        """The number of the kind of memory of each record in use: chunks, lifetimes, or ALLOCATE events."""
        names = records.dtype.names or ()
        born = records["born"] if "born" in names else records["seq"]
        labels = records["label"].astype(np.intp)
        self._learn(int(labels.max(initial=-1)))
        found = self._of_label[labels].astype(np.intp)
        ours = ~self._is_own[labels]
        number = self._numbers
        passes = (found == number[ACTIVATIONS]) | (found == number[GRADIENTS])
        found[ours & passes & _is_in_kind_table(born, self._short)] = number[WORKSPACE]
        state = found == number[OPTIMIZER_STATE]
        found[ours & state & _is_in_kind_table(born, self._freed)] = number[WORKSPACE]
        old = ours & (found == 0) & (born < self._begins)
        if len(self._parameter_sizes) and old.any():
            found[old & _is_in_kind_table(records["requested"], self._parameter_sizes)] = number[PARAMETERS]
        return found

    def path(self, number: int) -> tuple[str | None, ...]:
        """The path of a kind of memory; None: unknown."""
        return (self.names[number] if number else None,)

    def _learn(self, highest: int) -> None:
        """Find the kinds of memory of labels up to a number."""
        known = len(self._of_label)
        if highest < known:
            return
        more = [self._kind_of(number) for number in range(known, highest + 1)]
        kinds = [self._numbers[kind] for kind, _ in more]
        self._of_label = np.append(self._of_label, kinds).astype(np.uint16)
        self._is_own = np.append(self._is_own, [own for _, own in more])

    def _kind_of(self, label: int) -> tuple[str, bool]:
        """The kind of memory by the label alone, and whether a rule of the user's own decided."""
        if label >= len(self._trace.labels):
            return UNKNOWN, False
        name, details = self._trace.labels[label]
        stack = details.get("stack", "")
        own = self._rules.kind_of(f"{name}\n{stack}") if self._rules.rules else None
        if own is not None:
            return own, True
        lines = stack.split("\n") if stack else []
        # Not the line of code: an annotation, or an operation of another framework.
        if name and name != holder_name(places_of(stack)):
            lines = [f"{name} (", *lines]
        found = (kind for line in lines for kind, pattern in _COMPILED if pattern.search(line))
        kind = next(found, UNKNOWN)
        if not lines and self._has_python and label == 0:
            return GRADIENTS, False  # threads of autograd have no Python frames
        return kind, False

    def _read_lifetimes(self) -> None:
        """For kinds of memory, which allocations are freed soon, and which of optimizers at all: one pass."""
        short, freed = [], []
        number = self._numbers
        self._begins = history_begins(self._trace, self._pool, (HISTORY_BEGINS,))
        for block in self._trace.blocks():
            at = np.flatnonzero((block["kind"] == Kind.FREE) & (block["pool"] == self._pool))
            labels = block["label"][at].astype(np.intp)
            self._learn(int(labels.max(initial=-1)))
            kinds, born = self._of_label[labels], born_of(block, at)
            is_short = block["seq"][at] - born <= SOON
            passes = (kinds == number[ACTIVATIONS]) | (kinds == number[GRADIENTS])
            short.append(born[is_short & passes])
            freed.append(born[kinds == number[OPTIMIZER_STATE]])
        nothing = np.zeros(0, np.uint64)
        self._short, self._freed = (np.sort(np.concatenate([nothing, *parts])) for parts in (short, freed))

    def _sizes_of_parameters(self) -> NDArray[np.uint64]:
        """Requested sizes that old memory and optimizer state share, as many of the first as parameters can be."""
        if not self._begins:
            return np.zeros(0, np.uint64)
        old: dict[int, int] = {}
        state: dict[int, int] = {}
        for block in self._trace.blocks():
            at = np.flatnonzero((block["kind"] == Kind.ALLOCATE) & (block["pool"] == self._pool))
            rows = block[at]
            self._learn(int(rows["label"].max(initial=0)))
            kinds = self._of_label[rows["label"]]
            is_state = kinds == self._numbers[OPTIMIZER_STATE]
            is_state &= ~_is_in_kind_table(rows["seq"], self._freed)
            for counts, mine in ((old, (kinds == 0) & (rows["seq"] < self._begins)), (state, is_state)):
                for size, count in zip(*np.unique(rows["requested"][mine], return_counts=True), strict=True):
                    counts[int(size)] = counts.get(int(size), 0) + int(count)
        # An optimizer has one or two tensors of state a parameter, so parameters and gradients together are no fewer.
        found = sorted(size for size, count in old.items() if count <= state.get(size, 0))
        return np.array(found, np.uint64)


def _is_in_kind_table(values: NDArray[np.uint64], ordered: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each value is in a sorted array, such as the births or sizes of one kind."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: NDArray[np.bool_] = ordered[at] == values
    return found


# ------------------------------------------------------------------------------
# Rules of the user's own for the kinds of memory.

_LONGEST_RULES: Final = 1 << 20  # bytes


def kind_rules(path: str) -> KindRules:
    """The rules for kinds of memory in a file.

    Raises:
        FileError: it cannot be read, or a line is no rule.
    """
    try:
        return KindRules.of_text(read_small(Path(path), _LONGEST_RULES).decode())
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(path, "", f"cannot be read as rules of kinds: {error}") from None


def use_kinds(trace: Trace, path: str | None) -> None:
    """Put a file's rules for kinds of memory before the built-in ones in every view of this trace."""
    if path is not None:
        use_rules(trace, kind_rules(path))
